"""Proportional fairness where a set is useful only whole: a lottery over contents of the cache.

After ROBUS (Kunjir et al., SIGMOD 2017), exact by column generation instead of from random contents: the weights of the
contents found so far are optimised, the prices that result go to an exact knapsack, and its answer joins the contents
until no content is worth more at those prices. That inequality is the certificate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shoal.cache.policy.claims import Claims, fractions_of
from shoal.cache.policy.problem import Allocation, Configuration

if TYPE_CHECKING:
    from shoal.cache.policy.knapsack import Packing
    from shoal.cache.policy.problem import Array

COLUMNS = 400
"""Contents that are looked at in one decision. Four tenants and 20 sets take 7, a hundred and 200 about 150."""

_START = 0.3
"""What each slope lacks to 1 at the start. Three times as much takes a step more."""

_FASTER = 0.02
"""What is left of the complementarity's target after a step. Four steps are usual, 13 the most over random utilities of
up to 150 columns that differ by eight orders of magnitude."""

_BACK = 0.99
"""How far to go towards the border."""

_LEAST = 1e-6
"""A content of smaller probability is dropped."""


class Columns:
    """The contents found so far. `utility` is (A, number of them)."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._taken: dict[bytes, Array] = {}
        self._utility: list[Array] = []

    def add(self, weights: Array) -> tuple[Packing, bool]:
        """The best content for tenants of these weights (A,), and whether it is new."""
        found = self._claims.oracle.best(weights @ self._claims.value)
        return found, self.take(found.parts)

    def take(self, parts: Array) -> bool:
        """Whether this content (K,) is new."""
        key = parts.tobytes()
        if key in self._taken:
            return False
        self._taken[key] = parts
        self._utility.append(self._claims.value @ parts)
        return True

    @property
    def utility(self) -> Array:
        return np.array(self._utility).T

    def lottery(self, chances: Array) -> Allocation:
        kept = np.flatnonzero(chances > _LEAST * chances.max())
        chances = chances[kept] / chances[kept].sum()
        contents = list(self._taken.values())
        problem, items = self._claims.problem, self._claims.items
        made = [
            Configuration(float(chance), fractions_of(problem, items, contents[at]))
            for at, chance in zip(kept, chances, strict=True)
        ]
        return Allocation(tuple(made))


def proportional(claims: Claims, tolerance: float) -> Allocation:
    columns = start(claims)
    while True:
        utility = columns.utility
        chances = weigh(utility, claims.share, tolerance / 4)
        prices = claims.share / (utility @ chances)
        found, new = columns.add(prices)
        if found.value - 1.0 <= tolerance or not new or utility.shape[1] >= COLUMNS:
            return columns.lottery(chances)


def start(claims: Claims) -> Columns:
    """The best contents for each tenant alone, and for all of them."""
    columns = Columns(claims)
    for parts in claims.best:
        columns.take(parts)
    columns.add(claims.share)
    return columns


def weigh(utility: Array, share: Array, tolerance: float, steps: int = 80) -> Array:
    """The chances (columns,) of most sum_i share_i log(utility_i @ chances): a primal-dual interior point.

    The shares add up to 1, so the price of "chances add up to 1" is 1 at the optimum. That number is put in, and the
    chances are scaled at the end. `spare` (columns,) is what each column's slope lacks to 1.
    """
    from scipy.linalg.lapack import dposv

    by_column = utility.T
    count = len(by_column)
    root = np.sqrt(share)
    chances, spare, target = np.full(count, 1.0 / count), np.full(count, _START), _START / count
    best_gap, best = np.inf, chances
    for _ in range(steps):
        prices = share / (utility @ chances)
        slope = by_column @ prices
        gap = max(slope.tolist()) * sum(chances.tolist()) - 1.0
        if gap < best_gap:
            best_gap, best = gap, chances
        if gap < tolerance:
            break
        scaled = by_column * (prices / root)
        hessian = scaled @ scaled.T
        hessian.flat[:: count + 1] += spare / chances
        wanted = target / chances
        _, step, failed = dposv(hessian, slope - 1.0 + wanted)
        if failed:
            break
        other = wanted - spare - spare * step / chances
        chances = chances + _length(chances, step) * step
        spare = spare + _length(spare, other) * other
        target *= _FASTER
    found: Array = best / best.sum()
    return found


def _length(values: Array, step: Array) -> float:
    """How much of a step leaves all values positive."""
    shrink = -min((step / values).tolist())  # of few numbers: quicker than numpy
    return _BACK / shrink if shrink > _BACK else 1.0
