"""What the next of a row of lifetimes may be, by those that were seen, without any assumption on their shape.

After Hill's A(n) and its form for lifetimes that are not over (Coolen and Yan, 2004): of n equal lifetimes that were
seen, the next one lies with probability 1/(n + 1) between any two neighbours, below the least or above the greatest.
Each one that is drawn counts as seen for those drawn after it, so what is not known of all of them is the same for all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from random import Random

_TAIL = 1.5
"""The exponent of what lies beyond the greatest that was seen: a power law, as for lifetimes with a heavy tail."""


class Lives:
    """`over` are lifetimes that have ended, `going` the ages of those that have not."""

    __slots__ = ("_going", "_over")

    def __init__(self, over: Iterable[float], going: Iterable[float] = ()) -> None:
        self._over = sorted(over)
        self._going = sorted(going)

    def __len__(self) -> int:
        return len(self._over)

    def copy(self) -> Lives:
        made = Lives(())
        made._over, made._going = self._over.copy(), self._going.copy()
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
            at_risk = len(over) - at + len(going) - bisect_left(going, life)
            if chance.random() * (at_risk + 1) < 1:
                return chance.uniform(low, life)
            low = life
        return max(low, 1.0) / (1.0 - chance.random()) ** (1 / _TAIL)
