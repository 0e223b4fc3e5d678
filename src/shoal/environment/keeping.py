"""Choice of the environments that make room for a new one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

ROOM = 0.5
"""Before something is made, what the tenant has takes at most this part of its limit."""


class Kept(Protocol):
    """An environment that is there."""

    @property
    def id(self) -> str: ...

    @property
    def bytes(self) -> int: ...

    @property
    def used_at(self) -> float: ...


def to_remove(kept: Iterable[Kept], used: Collection[str], limit_bytes: int) -> list[str]:
    """The ids of those to remove, the one first that was not used for the longest time; none that is `used`."""
    oldest = sorted(kept, key=lambda one: (one.used_at, one.id))
    over = sum(one.bytes for one in oldest) - limit_bytes * ROOM
    found: list[str] = []
    for one in oldest:
        if over <= 0:
            break
        if one.id not in used:
            found.append(one.id)
            over -= one.bytes
    return found
