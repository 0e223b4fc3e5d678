"""Fan-out of status changes: every consumer starts with the present, and a slow one gets each gang's latest only."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Iterable

from shoal.engine.protocol import GangStatus


class Watcher(AsyncIterator[GangStatus]):
    """One consumer's view; it ends when the engine closes, after the last change. The memory that it holds is bounded
    by the number of gangs."""

    def __init__(self, present: Iterable[GangStatus]) -> None:
        self._pending = {status.name: status for status in present}
        self._closed = False
        self._wake = asyncio.Event()

    def put(self, status: GangStatus) -> None:
        self._pending[status.name] = status
        self._wake.set()

    def close(self, *, at_once: bool) -> None:
        if at_once:
            self._pending.clear()
        self._closed = True
        self._wake.set()

    async def __anext__(self) -> GangStatus:
        while not self._pending:
            if self._closed:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._pending.pop(next(iter(self._pending)))


class Changes:
    """Holds its watchers weakly: a watcher that is no longer iterated costs nothing. They are told in the order in
    which they came."""

    def __init__(self) -> None:
        self._watchers: weakref.WeakKeyDictionary[Watcher, None] = weakref.WeakKeyDictionary()

    def watch(self, present: Iterable[GangStatus]) -> Watcher:
        watcher = Watcher(present)
        self._watchers[watcher] = None
        return watcher

    def put(self, status: GangStatus) -> None:
        for watcher in self._watchers:
            watcher.put(status)

    def close(self, *, at_once: bool = False) -> None:
        """`at_once`: what was not told yet is told no more."""
        for watcher in self._watchers:
            watcher.close(at_once=at_once)
