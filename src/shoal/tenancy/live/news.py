"""Word of what begins, for all planes in rounds: of each gang its last status alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_PAUSE_S = 0.05
_PASSES = 10
"""Between a note and its round: this time, and this number of passes of the event loop, which are slow under a flood.
What begins and ends at once is told once, and written once by its plane."""


class News(Generic[T]):
    """`tell` is called with what was noted, once: at once with what is `over`, with all else in the next round, unless
    it `changes` then: more is about to be known of it."""

    def __init__(self, tell: Callable[[T], None], changes: Callable[[T], bool]) -> None:
        self._tell = tell
        self._changes = changes
        self._noted: dict[T, None] = {}
        self._next: asyncio.Handle | None = None

    def note(self, what: T, *, over: bool) -> None:
        if over:
            self._noted.pop(what, None)
            self._tell(what)
            return
        self._noted[what] = None
        self._plan()

    def close(self) -> None:
        """What was not told yet is told to nobody."""
        if self._next is not None:
            self._next.cancel()

    def _plan(self) -> None:
        if self._next is None:
            self._next = asyncio.get_running_loop().call_later(_PAUSE_S, self._round, _PASSES)

    def _round(self, passes: int) -> None:
        if passes:
            self._next = asyncio.get_running_loop().call_soon(self._round, passes - 1)
            return
        self._next = None
        for what in [what for what in self._noted if not self._changes(what)]:
            del self._noted[what]
            self._tell(what)
        if self._noted:
            self._plan()
