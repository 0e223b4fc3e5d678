"""Contributions of the installed components to the server: their extensions, and the settings of engines."""

from __future__ import annotations

from functools import cache

from pydantic import BaseModel

from shoal.base.discover import Found, find, load_all, problems
from shoal.base.imports import models_built_later
from shoal.core import Capability, Invalid
from shoal.extension import Extension


def installed_extensions() -> tuple[type[Extension], ...]:
    """In the order of their names."""
    return _extensions()[0]


def engine_sections() -> dict[str, type[BaseModel]]:
    """The sections of the settings that engines have, by the engine's name."""
    return load_all("engine_settings")[0]


def broken_components() -> tuple[Invalid, ...]:
    """What the packages of others declare and the server cannot use: it runs without."""
    return (*problems(), *_extensions()[1], *load_all("engine_settings")[1])


def missing_components() -> tuple[Capability, ...]:
    """The same for `shoal status` and `shoal doctor`."""
    return tuple(Capability("components", False, str(one), "all else works without it") for one in broken_components())


@cache
def _extensions() -> tuple[tuple[type[Extension], ...], tuple[Invalid, ...]]:
    with models_built_later():  # of Shoal's own: a model of others that cannot be built has to be known at the start
        for part in ("extension", "engine_settings"):
            for one in find(part).values():
                if one.own:
                    one.load()
    loaded, broken = load_all("extension")
    wrong = list(broken)
    found: dict[str, tuple[type[Extension], Found]] = {}
    # Shoal's own first: their names are reserved.
    for declared in sorted(find("extension").values(), key=lambda one: (not one.own, one.name)):
        if (kind := loaded.get(declared.name)) is None:
            continue
        if not (isinstance(kind, type) and issubclass(kind, Extension) and hasattr(kind, "name")):
            what = f"{declared.target} of the package {declared.package} is no class derived from Extension with a name"
            wrong.append(Invalid(what, where=declared.target))
        elif kind.name in found:
            packages = f"{found[kind.name][1].package} and by {declared.package}"
            what = f"the extension {kind.name} is claimed by {packages}: the first is used"
            wrong.append(Invalid(what, where=declared.target, hint="uninstall one of the packages"))
        else:
            found[kind.name] = kind, declared
    return tuple(found[name][0] for name in sorted(found)), tuple(wrong)
