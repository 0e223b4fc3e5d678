"""Every decision carries its reason, as data that a person can be shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Reason:
    """`code` is a stable word for programs, `text` a sentence for people, `facts` the JSON-able numbers behind it."""

    code: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code, "text": self.text, "facts": dict(self.facts)}
