"""Finds the installed components, and what each declares.

Shoal's own names are reserved. A name that two other packages claim belongs to neither, and so does one of Shoal's own
that another package claims; a declaration that cannot be read is left out. `problems` has an error for each, which
names the packages: one broken package must cost its users nothing but that package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from shoal.base.component import Component
from shoal.core import Invalid

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "shoal.components"
_OWN = "shoal"
_HINT = "install what it needs, or uninstall the package that offers it"


@dataclass(frozen=True, slots=True)
class Found:
    """Something that a component declares; loading it imports its module."""

    part: str
    name: str
    target: str
    package: str

    @property
    def own(self) -> bool:
        """Whether it is Shoal's own."""
        return self.package == _OWN

    def load(self) -> Any:
        """Raises Invalid when its module cannot be imported."""
        module, _, attribute = self.target.partition(":")
        try:
            loaded = import_module(module)
            return getattr(loaded, attribute) if attribute else loaded
        except (Exception, SystemExit) as error:  # whatever a package of others does when it is imported
            what = f"{self.part} {self.name} of the package {self.package} cannot be loaded: {error}"
            raise Invalid(what, where=self.target, hint=_HINT) from error


@dataclass(frozen=True, slots=True)
class _Declared:
    name: str
    package: str
    component: Component


@dataclass(frozen=True, slots=True)
class _Catalogue:
    found: Mapping[str, Mapping[str, Found]]
    """By part and name, in the order of names."""
    problems: tuple[Invalid, ...]
    claimed: Mapping[tuple[str, str], Invalid]
    """By part and name, the error of a name that several packages claim."""


def find(part: str) -> Mapping[str, Found]:
    """All that the installed components declare under a field of `Component`, by name, in the order of names."""
    return _catalogue().found[part]


def find_one(part: str, name: str) -> Found | None:
    """The one of this name. Shoal's own are found without a look at every installed package. Raises Invalid for a name
    that several packages claim."""
    # A component's own name is the likeliest: then no declaration of another one is imported.
    for entry in sorted(_own_entries(), key=lambda entry: entry.name != name):
        if (target := _own(entry).named(part, entry.name).get(name)) is not None:
            return Found(part, name, target, _OWN)
    if (claimed := _catalogue().claimed.get((part, name))) is not None:
        raise claimed
    return find(part).get(name)


def load_all(part: str) -> tuple[dict[str, Any], tuple[Invalid, ...]]:
    """All of a part that can be loaded, by name, and the errors of the others. Raises Invalid where one of Shoal's own
    cannot be."""
    loaded: dict[str, Any] = {}
    wrong: list[Invalid] = []
    for name, found in find(part).items():
        try:
            loaded[name] = found.load()
        except Invalid as error:
            if found.own:
                raise
            wrong.append(error)
    return loaded, tuple(wrong)


def problems() -> tuple[Invalid, ...]:
    """What is wrong with the declarations of installed packages: they are left out, the rest works."""
    return _catalogue().problems


@cache
def _catalogue() -> _Catalogue:
    from importlib.metadata import entry_points

    own = _own_entries()
    others = (entry for entry in entry_points(group=GROUP) if entry not in own)
    return _catalogued((*own, *sorted(others, key=_package)))


@cache
def _own_entries() -> tuple[EntryPoint, ...]:
    from importlib.metadata import PackageNotFoundError, distribution  # takes as long to import as a short command

    try:
        return tuple(distribution(_OWN).entry_points.select(group=GROUP))
    except PackageNotFoundError:
        return ()


@cache
def _own(entry: EntryPoint) -> Component:
    declared: Component = entry.load()
    return declared


def _package(entry: EntryPoint) -> str:
    if entry in _own_entries():
        return _OWN  # a distribution reads all of its metadata each time that it is asked for its name
    return entry.dist.name if entry.dist is not None else entry.value


def _catalogued(entries: tuple[EntryPoint, ...]) -> _Catalogue:
    wrong: list[Invalid] = []
    declared = list(_read(entries, wrong))
    found: dict[str, dict[str, Found]] = {}
    claimed: dict[tuple[str, str], Invalid] = {}
    for part in (one.name for one in fields(Component)):
        claims: dict[str, list[Found]] = {}
        for one in declared:
            for name, target in one.component.named(part, one.name).items():
                claims.setdefault(name, []).append(Found(part, name, target, one.package))
        found[part] = {}
        for name in sorted(claims):
            first, *others = claims[name]
            if others:
                wrong.append(_contested(first, others))
            if not others or first.own:
                found[part][name] = first
            else:
                claimed[part, name] = wrong[-1]
    return _Catalogue(found, tuple(wrong), claimed)


def _contested(first: Found, others: list[Found]) -> Invalid:
    packages = [f"{one.package} ({one.target})" for one in (first, *others)]
    kept = "Shoal's own is used" if first.own else "neither is used"
    what = f"{first.part} {first.name} is claimed by {' and by '.join(packages)}: {kept}"
    return Invalid(what, where=GROUP, hint="uninstall one of the packages")


def _read(entries: tuple[EntryPoint, ...], wrong: list[Invalid]) -> Iterator[_Declared]:
    for entry in entries:
        package = _package(entry)
        try:
            component = entry.load()
            if not isinstance(component, Component):
                raise TypeError(f"{entry.value} is no shoal.extension.Component")
        except (Exception, SystemExit) as error:  # whatever a package of others does when it is imported
            what = f"the component {entry.name} of the package {package} cannot be read: {error}"
            wrong.append(Invalid(what, where=entry.value, hint=_HINT))
        else:
            yield _Declared(entry.name, package, component)
