"""Finds what is installed under the seam's entry points."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from shoal.core import Invalid


@dataclass(frozen=True, slots=True)
class Found:
    """An installed entry point; loading it imports its module."""

    name: str
    entry: EntryPoint

    def load(self) -> Any:
        """Raises Invalid when its module cannot be imported."""
        try:
            return self.entry.load()
        except (ImportError, AttributeError) as error:
            raise Invalid(
                f"{self.entry.group} {self.name} cannot be loaded: {error}",
                where=self.entry.value,
                hint="install what it needs, or uninstall the package that offers it",
            ) from error


@cache
def find(group: str) -> dict[str, Found]:
    """By name, in the order of names. Of two with one name the first that Python finds counts."""
    found: dict[str, Found] = {}
    for entry in entry_points(group=group):
        found.setdefault(entry.name, Found(entry.name, entry))
    return dict(sorted(found.items()))


def load(group: str, name: str, *, what: str) -> Any:
    """Raises Invalid when there is none of this name."""
    known = find(group)
    if name not in known:
        raise Invalid(f"there is no {what} {name!r}", hint=f"installed: {', '.join(known) or 'none'}")
    return known[name].load()
