"""The face of a package: names that are imported on first use, so that its commands start without its libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_first_use(package: dict[str, Any], names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `package` is its globals, `names` the names that each of its modules has."""
    places = {name: module for module, listed in names.items() for name in listed.split()}

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = package[name] = getattr(import_module(f"{package['__name__']}.{places[name]}"), name)
        return value

    return find
