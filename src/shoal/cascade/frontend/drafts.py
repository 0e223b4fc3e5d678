"""A feature group while its pipeline is being read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from shoal.cascade.program import Group
from shoal.cascade.steps.base import Step
from shoal.cascade.steps.columns import AsNumbers
from shoal.cascade.table import Key, Table


@dataclass(frozen=True)
class Draft:
    """`width` is -1 while it is unknown."""

    name: str
    columns: tuple[Key, ...]
    one: bool
    width: int
    steps: tuple[Step, ...] = ()
    original: Callable[[Table], Any] | None = None

    def then(self, step: Step, width: int) -> Draft:
        return replace(self, steps=(*self.steps, step), width=width)

    def group(self) -> Group:
        steps = self.steps or (AsNumbers(),)
        return Group(self.name or "input", self.columns, self.one, steps, self.width, self.original)
