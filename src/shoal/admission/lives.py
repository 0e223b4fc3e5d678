"""Prediction of the next lifetime in a row, from those that were seen.

Where they are many, nothing is assumed of their shape, after Hill's A(n) and its form for lifetimes that are not over
(Coolen and Yan, 2004): of n that were seen, the next one lies with probability 1/(n + 1) between any two neighbours,
below the least or above the greatest. Where they are few, they are taken to be log-normal, with a mean that is not far
from a given one. What is not known of all of them is drawn once, so that sums of many are not said too exactly.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from math import exp, log, sqrt
from random import Random
from statistics import NormalDist, fmean

MANY = 20
_TAIL, _TAIL_WEIGHT = 0.5, 4
"""What lies beyond the greatest of many follows a power law, by Hill's estimate over the greater half of them, and by
this as if this number more had been seen."""
_SPREAD, _SPREAD_WEIGHT = 0.6, 4
"""The standard deviation of the logarithms of few, before they are looked at, and its weight as a number of them."""
_MEAN_WEIGHT = 0.4
"""The weight of the given mean: means of kinds differ by more than the lifetimes of one kind do."""
_LEAST_S = 1e-3
_NORMAL = NormalDist()


class Lives:
    """`over` are lifetimes that have ended, `going` the ages of those that have not, and `near` is what they are not
    far from. Each that is drawn learns from those before it: a `copy` for each future."""

    __slots__ = ("_going", "_greatest", "_mean", "_near", "_over", "_spread", "_tail")

    def __init__(self, over: Iterable[float], going: Iterable[float] = (), near: float | None = None) -> None:
        self._over = sorted(over)
        self._going = sorted(going)
        self._near = near
        self._greatest = self._over[-1] if self._over else 0.0
        greater = [life for life in self._over[len(self._over) // 2 :] if life > 0]
        total = sum(log(life / greater[0]) for life in greater)
        self._tail = (total + _TAIL * _TAIL_WEIGHT) / (max(1, len(greater)) - 1 + _TAIL_WEIGHT)
        self._mean, self._spread = 0.0, 0.0

    @property
    def known(self) -> bool:
        """Whether there is anything to draw from."""
        return bool(self._over) or self._near is not None

    def copy(self) -> Lives:
        made = Lives(())
        made._over, made._going, made._near = self._over.copy(), self._going.copy(), self._near
        made._greatest, made._tail = self._greatest, self._tail
        return made

    def draw(self, chance: Random, age: float | None = None) -> float:
        """A whole lifetime. One of those that go on has an `age`, and lives longer than that."""
        if len(self._over) < MANY:
            return self._of_few(chance, age or 0.0)
        if age is not None:
            at = bisect_left(self._going, age)
            if at < len(self._going) and self._going[at] == age:
                del self._going[at]
        found = self._of_many(chance, age or 0.0)
        insort(self._over, found)
        return found

    # --- inside

    def _of_many(self, chance: Random, age: float) -> float:
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
        # Each that is older than all that ended ends somewhere beyond its age.
        longest = chance.choice([self._greatest, *going[bisect_right(going, self._greatest) :]])
        return max(age, longest, _LEAST_S) * exp(chance.expovariate(1.0) * self._tail)

    def _of_few(self, chance: Random, age: float) -> float:
        if not self._spread:
            self._fit(chance)
        beyond = _NORMAL.cdf((log(max(age, _LEAST_S)) - self._mean) / self._spread)
        part = beyond + (1 - beyond) * chance.random()
        if part > 1 - 1e-9:
            return age * exp(chance.expovariate(1.0) * _TAIL)
        return max(age, exp(self._mean + self._spread * _NORMAL.inv_cdf(max(part, 1e-9))))

    def _fit(self, chance: Random) -> None:
        """Draw the mean and the spread of the logarithms: a normal distribution whose both are not known, by Bayes.
        One that goes on counts once it is older than half of the others lived: by what it may still live."""
        seen = [log(max(life, _LEAST_S)) for life in self._over]
        usual = fmean(seen) if seen else log(max(self._near or 1.0, _LEAST_S))
        seen += [log(age) + _SPREAD for age in self._going if age > 0 and log(age) > usual]
        near, weight = (usual, 0.0) if self._near is None else (log(max(self._near, _LEAST_S)), _MEAN_WEIGHT)
        mean = fmean(seen) if seen else near
        total = len(seen) + weight
        squares = sum((one - mean) ** 2 for one in seen) + weight * len(seen) / total * (mean - near) ** 2
        squares += _SPREAD_WEIGHT * _SPREAD**2
        self._spread = sqrt(squares / chance.gammavariate((_SPREAD_WEIGHT + len(seen)) / 2, 2))
        middle = (len(seen) * mean + weight * near) / total
        self._mean = chance.gauss(middle, self._spread / sqrt(total))
