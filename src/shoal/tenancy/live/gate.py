"""Planes have turns, by the weights of their tenants: one plane's flood makes its own queue long."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import count

from shoal.tenancy.fair_queue import FairQueue


class Gate:
    """At most `width` have their turn at a time; the others wait in the queues of their planes."""

    def __init__(self, width: int) -> None:
        self._free = width
        self._queue: FairQueue[str, int] = FairQueue()
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def waiting(self, plane: str) -> int:
        """How many of a plane wait for their turn."""
        return self._queue.waiting(plane)

    @contextlib.asynccontextmanager
    async def turn(self, plane: str, weight: float = 1.0, cost: float = 1.0) -> AsyncIterator[None]:
        """A turn of this plane's begins when this is entered."""
        number = next(self._numbers)
        turn = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._queue.put(plane, number, weight=weight, cost=cost)
        self._grant()
        try:
            await turn
            yield
        finally:
            del self._waiting[number]
            self._queue.remove(plane, number)
            if turn.done() and not turn.cancelled():
                self._queue.done(plane, number)
                self._free += 1
                self._grant()

    def _grant(self) -> None:
        while self._free and (key := self._queue.take()) is not None:
            turn = self._waiting[key[1]]
            if turn.cancelled():
                self._queue.done(*key)
            else:
                self._free -= 1
                turn.set_result(None)
