"""Queues that are served in turns by weight: deficit round robin (Shreedhar and Varghese, SIGCOMM 1995). Pure.

Each flow has a queue of its own. In its turn a flow is given credit in proportion to its weight, and is served as long
as the credit lasts; what is left is kept for its next turn. To serve an item takes constant time, however many flows
there are, as long as a turn's credit pays for an item. A flow without items takes no memory, and keeps no credit.

An item is in its queue once, however often it is put. One that is put while it is being processed is dirty: it is
queued again when it is done, though its flow may have been dropped meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
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
    """`quantum` is the credit of a flow of weight 1 in each turn. An item costs 1 unless more is said."""

    def __init__(self, quantum: float = 1.0) -> None:
        self._quantum = quantum
        self._flows: dict[F, _Flow[T]] = {}
        self._turns: deque[F] = deque()
        self._processing: dict[tuple[F, T], tuple[float, float] | None] = {}
        self._length = 0

    def __len__(self) -> int:
        """How many items wait."""
        return self._length

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
        if (flow, item) in self._processing:
            self._processing[flow, item] = weight, cost
            return
        known = self._flows.get(flow)
        if known is None:
            known = self._flows[flow] = _Flow(weight)
            self._turns.append(flow)
        known.weight = weight
        if item not in known.items:
            known.items[item] = cost
            self._length += 1

    def take(self) -> tuple[F, T] | None:
        """The next item, which is being processed until `done`; None when nothing waits."""
        while self._turns:
            name = self._turns[0]
            flow = self._flows[name]
            if not flow.in_turn:
                flow.in_turn = True
                flow.credit += self._quantum * flow.weight
            item = next(iter(flow.items))
            if flow.items[item] <= flow.credit:
                flow.credit -= flow.items.pop(item)
                self._length -= 1
                self._processing[name, item] = None
                if not flow.items:
                    self._drop(name)
                return name, item
            flow.in_turn = False
            self._turns.rotate(-1)
        return None

    def done(self, flow: F, item: T) -> None:
        """It is no longer being processed; where it was put meanwhile it waits again."""
        again = self._processing.pop((flow, item), None)
        if again is not None:
            self.put(flow, item, weight=again[0], cost=again[1])

    def remove(self, flow: F, item: T) -> None:
        """It waits no more; nothing where it does not."""
        known = self._flows.get(flow)
        if known is None or item not in known.items:
            return
        del known.items[item]
        self._length -= 1
        if not known.items:
            self._drop(flow)

    def _drop(self, name: F) -> None:
        del self._flows[name]
        self._turns.remove(name)  # it is the first of them, except where an item was removed
