"""What the next of a row of lifetimes may be, by those that were seen, without any assumption on their shape.

After Hill's A(n) and its form for lifetimes that are not over (Coolen and Yan, 2004): of n equal lifetimes that were
seen, the next one lies with probability 1/(n + 1) between any two neighbours, below the least or above the greatest.
Each one that is drawn counts as seen for those drawn after it, so what is not known of all of them is the same for all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from math import exp, log
from random import Random

_TAIL, _TAIL_WEIGHT = 0.5, 4
"""What lies beyond the greatest that was seen follows a power law, by Hill's estimate over the greater half of them.
Where those are few, this is what is expected of it, as if this number had been seen."""


class Lives:
    """`over` are lifetimes that have ended, `going` the ages of those that have not."""

    __slots__ = ("_going", "_greatest", "_over", "_tail")

    def __init__(self, over: Iterable[float], going: Iterable[float] = ()) -> None:
        self._over = sorted(over)
        self._going = sorted(going)
        self._greatest = self._over[-1] if self._over else 0.0
        greater = [life for life in self._over[len(self._over) // 2 :] if life > 0]
        total = sum(log(life / greater[0]) for life in greater)
        self._tail = (total + _TAIL * _TAIL_WEIGHT) / (max(1, len(greater)) - 1 + _TAIL_WEIGHT)

    def __len__(self) -> int:
        return len(self._over)

    def copy(self) -> Lives:
        """One that learns apart from this one."""
        made = Lives(())
        made._over, made._going = self._over.copy(), self._going.copy()
        made._greatest, made._tail = self._greatest, self._tail
        return made

    def draw(self, chance: Random, age: float | None = None) -> float:
        """A whole lifetime. One of those that go on has an `age`, and lives longer than that."""
        if age is not None:
            at = bisect_left(self._going, age)
            if at < len(self._going) and self._going[at] == age:
                del self._going[at]
        found = self._next(chance, age or 0.0)
        insort(self._over, found)
        return found

    def _next(self, chance: Random, age: float) -> float:
        over, going = self._over, self._going
        low = age
        for at in range(bisect_right(over, age), len(over)):
            life = over[at]
            if life > self._greatest:
                break
            at_risk = len(over) - at + len(going) - bisect_left(going, life)
            if chance.random() * (at_risk + 1) < 1:
                return chance.uniform(low, life)
            low = life
        return max(age, self._greatest, 1.0) * exp(chance.expovariate(1.0) * self._tail)
