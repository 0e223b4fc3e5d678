"""Planes have turns, by the weights of their tenants: one plane's flood makes its own queue long.

The queue is deficit round robin (Shreedhar and Varghese, SIGCOMM 1995). Each flow has a queue of its own. In its turn a
flow is given credit in proportion to its weight, and is served as long as the credit lasts; what is left is kept for
its next turn. To serve an item takes constant time, however many flows there are, as long as a turn's credit pays for
an item. A flow without items takes no memory, and keeps no credit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

F = TypeVar("F", bound=Hashable)
T = TypeVar("T", bound=Hashable)


@dataclass(slots=True)
class _Flow(Generic[T]):
    """`items`: those that wait, in order, with their costs."""

    weight: float
    items: dict[T, float] = field(default_factory=dict)
    credit: float = 0.0
    in_turn: bool = False


class FairQueue(Generic[F, T]):
    """A flow of weight 1 has a credit of 1 in each turn. An item costs 1 unless more is said, and is put once."""

    def __init__(self) -> None:
        self._flows: dict[F, _Flow[T]] = {}
        self._turns: deque[F] = deque()

    @property
    def flows(self) -> int:
        """How many flows have items that wait."""
        return len(self._flows)

    def waiting(self, flow: F) -> int:
        known = self._flows.get(flow)
        return len(known.items) if known is not None else 0

    def put(self, flow: F, item: T, *, weight: float = 1.0, cost: float = 1.0) -> None:
        """`weight` holds for the flow from now on. Raises ValueError unless both are above 0."""
        if not (weight > 0 and cost > 0):
            raise ValueError(f"weight and cost are above 0, not {weight} and {cost}")
        known = self._flows.get(flow)
        if known is None:
            known = self._flows[flow] = _Flow(weight)
            self._turns.append(flow)
        known.weight = weight
        known.items.setdefault(item, cost)

    def take(self) -> tuple[F, T] | None:
        """The next item; None when nothing waits."""
        while self._turns:
            name = self._turns[0]
            flow = self._flows[name]
            if not flow.in_turn:
                flow.in_turn = True
                flow.credit += flow.weight
            item = next(iter(flow.items))
            if flow.items[item] <= flow.credit:
                flow.credit -= flow.items.pop(item)
                if not flow.items:
                    self._drop(name)
                return name, item
            flow.in_turn = False
            self._turns.rotate(-1)
        return None

    def remove(self, flow: F, item: T) -> None:
        """It waits no more; nothing where it does not."""
        known = self._flows.get(flow)
        if known is None or item not in known.items:
            return
        del known.items[item]
        if not known.items:
            self._drop(flow)

    def _drop(self, name: F) -> None:
        del self._flows[name]
        self._turns.remove(name)  # it is the first of them, except where an item was removed


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
                self._free += 1
                self._grant()

    def _grant(self) -> None:
        while self._free and (taken := self._queue.take()) is not None:
            turn = self._waiting[taken[1]]
            if not turn.cancelled():
                self._free -= 1
                turn.set_result(None)
