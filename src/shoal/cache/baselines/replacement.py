"""Caches that decide at each request, as most do: what was read comes in, and something else goes."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from shoal.cache.policy.problem import Array


class Replacement(Protocol):
    def read(self, tenant: int, item: int) -> bool:
        """One request; whether it was served from the cache. What was read may be held from now on."""
        ...


class LeastRecentlyUsed:
    """One cache for all: what was not read for longest goes."""

    def __init__(self, size: Array, capacity: float) -> None:
        self._size = size.tolist()
        self._left = capacity
        self._capacity = capacity
        self._held: OrderedDict[int, None] = OrderedDict()

    def read(self, tenant: int, item: int) -> bool:
        del tenant
        if item in self._held:
            self._held.move_to_end(item)
            return True
        size = self._size[item]
        if size <= self._capacity:
            while self._left < size:
                old, _ = self._held.popitem(last=False)
                self._left += self._size[old]
            self._held[item] = None
            self._left -= size
        return False


class FairRide:
    """After FairRide (Pu et al., NSDI 2016): every tenant has an equal part, what several hold is charged to each in
    equal parts, and a tenant that reads what only others pay for is made to wait as if it were not there, with
    probability 1 / (1 + number that pay)."""

    def __init__(self, size: Array, capacity: float, tenants: int, chance: np.random.Generator) -> None:
        self._size = size.tolist()
        self._part = capacity / tenants
        self._held: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(tenants)]
        self._payers: dict[int, set[int]] = {}
        self._chance = chance

    def read(self, tenant: int, item: int) -> bool:
        held = self._held[tenant]
        payers = self._payers.setdefault(item, set())
        if tenant in payers:
            held.move_to_end(item)
            return True
        there = bool(payers)
        blocked = there and float(self._chance.random()) < 1 / (1 + len(payers))
        if self._size[item] / (1 + len(payers)) <= self._part:
            payers.add(tenant)
            held[item] = None
            self._make_room(tenant, item)
        return there and not blocked

    def _make_room(self, tenant: int, keep: int) -> None:
        held = self._held[tenant]
        while sum(self._size[one] / len(self._payers[one]) for one in held) > self._part:
            old = next(one for one in held if one != keep)
            del held[old]
            self._payers[old].discard(tenant)
            # The others now pay more for it: those who cannot let go of something as well.
            for other in tuple(self._payers[old]):
                if len(self._held[other]) > 1:
                    self._make_room(other, old)
