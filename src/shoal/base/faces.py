"""The face of a room: names that are imported on first use, so that the room's commands start without its libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_first_use(room: dict[str, Any], names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `room` is its globals, `names` says which module of the package has each."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {room['__name__']!r} has no attribute {name!r}")
        value = room[name] = getattr(import_module(f"{room['__name__']}.{names[name]}"), name)
        return value

    return find
