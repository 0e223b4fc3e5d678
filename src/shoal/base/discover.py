"""Finds what is installed under the seam's entry points."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from shoal.core import Invalid

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_OWN = "shoal"


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
    """By name, in the order of names. Of two with one name Shoal's own counts, else the first that Python finds."""
    from importlib.metadata import entry_points  # takes as long to import as a short command

    found: dict[str, Found] = {}
    for entry in (*_own(group), *entry_points(group=group)):
        found.setdefault(entry.name, Found(entry.name, entry))
    return dict(sorted(found.items()))


def find_one(group: str, name: str) -> Found | None:
    """The one of this name. Shoal's own are found without a look at every installed package."""
    own = next((entry for entry in _own(group) if entry.name == name), None)
    return Found(name, own) if own is not None else find(group).get(name)


@cache
def _own(group: str) -> tuple[EntryPoint, ...]:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return tuple(distribution(_OWN).entry_points.select(group=group))
    except PackageNotFoundError:
        return ()
