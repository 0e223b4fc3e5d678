"""Headroom: how long a best-effort execution may be that starts in a gap of guaranteed work.

Executions cannot be interrupted, so a slot that is lent is gone until the execution ends. Each guaranteed service with
an objective tolerates that one of its requests waits for its *patience*: half of what its objective leaves beyond its
own cautious execution time (the other half is for waiting on its own class). Hence:

- an execution that surely ends within the smallest patience may use any free slot;
- longer ones may together hold slots as long as enough are left for every service whose patience they exceed. Enough
  are as many as its widest execution needs, and enough that the guaranteed class's recent use fills at most 70 %.

On a device with one slot, work longer than the patience therefore never runs: there is no gap in which it could not
break a promise. A guaranteed service without an objective promised nothing that waiting could break, and only goes
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, inf

PATIENCE_SHARE = 0.5
FULL = 0.7
"""How far the slots kept for guaranteed work may be filled by it: above, waiting among themselves grows steeply."""


@dataclass(frozen=True, slots=True)
class ProtectedService:
    """A guaranteed service with an objective: what its executions need, and for how long they may be kept waiting."""

    key: str
    slots: int
    patience_s: float


def patience_s(slo_s: float, execution_s: float) -> float:
    return max(0.0, PATIENCE_SHARE * (slo_s - execution_s))


class Headroom:
    """For each length of an execution, the slots that less patient services need: a staircase."""

    def __init__(self, slots: int, services: Iterable[ProtectedService] = ()) -> None:
        self.slots = slots
        self._stairs: list[tuple[ProtectedService, int]] = []
        need = 0
        for service in sorted(services, key=lambda each: each.patience_s):
            if service.slots > need:
                need = service.slots
                self._stairs.append((service, need))

    def longest_s(self, slots: int, held: Sequence[tuple[float, int]], used: float) -> float:
        """The longest that a best-effort execution on this number of slots may take if it starts now.

        `held` are the best-effort executions that run, as (time left, slots), and `used` the slots that the
        guaranteed class used in the recent past, on average.
        """
        busy = ceil(used / FULL)
        for service, need in self._stairs:
            long_ones = sum(wide for left_s, wide in held if left_s > service.patience_s)
            if long_ones + slots + max(need, busy) > self.slots:
                return service.patience_s
        return inf

    def never(self, slots: int, execution_s: float) -> ProtectedService | None:
        """The service that such an execution would endanger even if nothing else happened on the device."""
        for service, need in self._stairs:
            if execution_s > service.patience_s and slots + need > self.slots:
                return service
        return None
