"""Planes hand over in turns, by the weights of their tenants: one plane's flood delays its own gangs only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from shoal.tenancy.fair_queue import FairQueue


class Gate:
    """At most `width` gangs are being handed over at a time; the others wait in the queues of their planes."""

    def __init__(self, width: int = 512) -> None:
        self._free = width
        self._queue: FairQueue[str, str] = FairQueue()
        self._waiting: dict[tuple[str, str], asyncio.Future[None]] = {}

    def waiting(self, plane_id: str) -> int:
        """How many gangs of a plane wait for their turn."""
        return self._queue.waiting(plane_id)

    @contextlib.asynccontextmanager
    async def turn(self, plane_id: str, gang: str, weight: float, cost: float) -> AsyncIterator[None]:
        """The gang's turn begins when this is entered. A gang is handed over by one caller at a time."""
        key = plane_id, gang
        turn = self._waiting[key] = asyncio.get_running_loop().create_future()
        self._queue.put(plane_id, gang, weight=weight, cost=cost)
        self._grant()
        try:
            await turn
            yield
        finally:
            del self._waiting[key]
            self._queue.remove(plane_id, gang)
            if turn.done() and not turn.cancelled():
                self._queue.done(plane_id, gang)
                self._free += 1
                self._grant()

    def _grant(self) -> None:
        while self._free and (key := self._queue.take()) is not None:
            turn = self._waiting[key]
            if turn.cancelled():
                self._queue.done(*key)
            else:
                self._free -= 1
                turn.set_result(None)
