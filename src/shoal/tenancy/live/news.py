"""One round of news for all planes: of each gang its last status alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_PAUSE_S = 0.05
"""Between two rounds, so that what begins and ends at once is told once, and written once by its plane."""


class News(Generic[T]):
    """`tell` is called with each of those that were noted since the last round, once. The first round after a pause
    comes at once."""

    def __init__(self, tell: Callable[[T], None]) -> None:
        self._tell = tell
        self._noted: dict[T, None] = {}
        self._next: asyncio.TimerHandle | None = None
        self._not_before = 0.0

    def note(self, what: T) -> None:
        self._noted[what] = None
        if self._next is None:
            self._next = asyncio.get_running_loop().call_at(self._not_before, self._round)

    def close(self) -> None:
        """What was not told yet is told to nobody."""
        if self._next is not None:
            self._next.cancel()

    def _round(self) -> None:
        self._next = None
        self._not_before = asyncio.get_running_loop().time() + _PAUSE_S
        noted, self._noted = self._noted, {}
        for what in noted:
            self._tell(what)
