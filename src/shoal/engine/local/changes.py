"""Fan-out of status changes: every consumer has its own queue, and starts with the present."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterable

from shoal.engine.protocol import GangStatus


class Watcher(AsyncIterator[GangStatus]):
    """One consumer's view; it ends when the engine closes, after the last change."""

    def __init__(self, present: Iterable[GangStatus]) -> None:
        self._pending: deque[GangStatus] = deque(present)
        self._closed = False
        self._wake = asyncio.Event()

    def put(self, status: GangStatus) -> None:
        self._pending.append(status)
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    async def __anext__(self) -> GangStatus:
        while not self._pending:
            if self._closed:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._pending.popleft()


class Changes:
    """Holds its watchers weakly: a watcher that is no longer iterated costs nothing."""

    def __init__(self) -> None:
        self._watchers: weakref.WeakSet[Watcher] = weakref.WeakSet()

    def watch(self, present: Iterable[GangStatus]) -> Watcher:
        watcher = Watcher(present)
        self._watchers.add(watcher)
        return watcher

    def put(self, status: GangStatus) -> None:
        for watcher in self._watchers:
            watcher.put(status)

    def close(self) -> None:
        for watcher in self._watchers:
            watcher.close()
