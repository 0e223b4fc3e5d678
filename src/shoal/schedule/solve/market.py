"""The one linear program behind the policies, without its objective: who can use what, and what all must share.

A *row* is a job, or a class of interchangeable jobs (`copies` of them). Its share x_j of wall time in each column
gives it the rate sum_j rate_j x_j; shares are not negative and sum to at most one. A few *constraints* tie the rows
together: accelerators of a pool, quotas. Arrays are column-major here (n, m), so that one column's numbers lie
together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shoal.schedule.types import Array, Index, Mask, positions

BLOCK = 8192
"""Rows treated at a time: the temporaries of four columns are then a quarter of a mebibyte."""


def repeated(values: Array, count: int) -> Array:
    """Values (m,) or (n, m) repeated side by side: `np.tile` without its layers, as `positions` is."""
    return np.concatenate([values] * count, axis=-1)


@dataclass(frozen=True)
class Constraint:
    """sum_i copies_i weight_i sum_j load_rj x_ij <= limit_r, for each r: `weight` (m,), `load` (r, n), `limit` (r,)."""

    names: tuple[str, ...]
    weight: Array
    load: Array
    limit: Array


@dataclass(frozen=True)
class Spread:
    """Where each row runs: a mixture of two columns, of which -1 is being idle.

    `share` (m,) is the part of wall time in column `second`, the rest is in column `first` (both (m,)). `slope` (m,)
    is what one more unit of rate would cost, at the prices that the spread was chosen for.
    """

    first: Index
    second: Index
    share: Array
    slope: Array


@dataclass(frozen=True)
class Market:
    """`rate` (n, m) with zeros where a row cannot run, `copies` (m,), and the constraints; every limit is positive."""

    rate: Array
    copies: Array
    constraints: tuple[Constraint, ...]

    @property
    def rows(self) -> int:
        return len(self.copies)

    @cached_property
    def fastest(self) -> Array:
        """(m,) the highest rate of each row: what it can reach at most."""
        best: Array = self.rate.max(axis=0)
        return best

    @cached_property
    def inverse(self) -> Array:
        """(n, m) seconds per step; infinite where a row cannot run."""
        with np.errstate(divide="ignore"):
            times: Array = 1.0 / self.rate
        return times

    @cached_property
    def partial(self) -> bool:
        """Whether there are rows that cannot run everywhere."""
        return bool((self.rate <= 0.0).any())

    @cached_property
    def blocks(self) -> tuple[tuple[slice, Market], ...]:
        """The market cut into pieces whose working memory stays in a processor's cache."""
        cuts = [slice(at, min(at + BLOCK, self.rows)) for at in range(0, max(self.rows, 1), BLOCK)]
        if len(cuts) == 1:
            return ((cuts[0], self),)
        return tuple((cut, self.take(cut)) for cut in cuts)

    @cached_property
    def limits(self) -> Array:
        """(r,) all limits in order."""
        return np.concatenate([each.limit for each in self.constraints])

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for each in self.constraints for name in each.names)

    @cached_property
    def _parts(self) -> tuple[slice, ...]:
        ends = np.cumsum([len(each.limit) for each in self.constraints])
        return tuple(slice(end - len(each.limit), end) for end, each in zip(ends, self.constraints, strict=True))

    @cached_property
    def _unlimited(self) -> Index:
        """The columns that no constraint limits: no job can run there, and no price would keep them from it."""
        return np.flatnonzero(~np.vstack([each.load for each in self.constraints]).any(axis=0))

    def cost(self, prices: Array) -> Array:
        """(n, m) what all of a row's wall time in a column costs, for prices (r,) of the constraints."""
        costs = [
            (prices[part] @ each.load)[:, None] * each.weight
            for part, each in zip(self._parts, self.constraints, strict=True)
        ]
        total: Array = costs[0] if len(costs) == 1 else np.sum(costs, axis=0)
        if len(self._unlimited):
            total[self._unlimited] = 1.0
        return total

    def costs(self, prices: Array) -> Array:
        """(n, p * m) the cost at each of the prices (p, r), side by side."""
        if len(prices) == 1:
            return self.cost(prices[0])
        costs = [
            (prices[:, part] @ each.load).T[:, :, None] * each.weight
            for part, each in zip(self._parts, self.constraints, strict=True)
        ]
        total: Array = costs[0] if len(costs) == 1 else np.sum(costs, axis=0)
        if len(self._unlimited):
            total[self._unlimited] = 1.0
        return total.reshape(len(total), -1)

    def usage(self, spread: Spread) -> Array:
        """(r,) how much of each constraint the rows use."""
        total: Array = self.usages(spread, 1)[0]
        return total

    def usages(self, spread: Spread, count: int) -> Array:
        """(count, r) the same for as many answers of all rows, side by side."""
        columns, size = len(self.rate), len(self.rate) * count
        first, second, mixed = spread.first, spread.second, positions(spread.first >= 0)
        if count > 1:
            offset = np.repeat(np.arange(0, size, columns), self.rows)
            first, second = first + offset, second + offset
        parts = []
        for each in self.constraints:
            weight = each.weight * self.copies
            if count > 1:
                weight = repeated(weight, count)
            by_column = np.bincount(second, weight * spread.share, minlength=size)
            if len(mixed):
                rest = weight.take(mixed) * (1.0 - spread.share.take(mixed))
                by_column = by_column + np.bincount(first.take(mixed), rest, minlength=size)
            parts.append(by_column.reshape(count, columns) @ each.load.T)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def usage_of(self, shares: Array) -> Array:
        """(r,) how much of each constraint shares (n, m) use."""
        return np.concatenate([each.load @ (shares @ (each.weight * self.copies)) for each in self.constraints])

    def shares(self, spread: Spread) -> Array:
        """(n, m) a spread as a matrix."""
        shares = np.zeros_like(self.rate)
        row = np.arange(self.rows)
        mixed = positions(spread.first >= 0)
        shares[spread.second, row] = spread.share
        shares[spread.first[mixed], mixed] += 1.0 - spread.share[mixed]
        return shares

    def whole(self, column: Index) -> Array:
        """(n, m) the shares of rows that have all of a column (m,), or nothing where that is -1."""
        shares = np.zeros_like(self.rate)
        some = positions(column >= 0)
        shares[column[some], some] = 1.0
        return shares

    def rates_of(self, shares: Array) -> Array:
        """(m,) the rate that shares (n, m) give each row."""
        total: Array = np.einsum("jm,jm->m", self.rate, shares)
        return total

    def fitted(self, shares: Array) -> Array:
        """Shares (n, m) freed of rounding: none negative, no row above one, no constraint above its limit."""
        clean = np.maximum(shares, 0.0)
        clean /= np.maximum(clean.sum(axis=0), 1.0)
        over = (self.usage_of(clean) / self.limits).max(initial=1.0)
        return clean if over <= 1.0 else clean / (over * (1 + 1e-15))

    def times(self, count: int) -> Market:
        """Copies of it side by side, under the same limits (which say nothing about all of them together)."""
        if count == 1:
            return self
        if count not in self._times:
            constraints = tuple(
                Constraint(c.names, repeated(c.weight, count), c.load, c.limit) for c in self.constraints
            )
            self._times[count] = Market(repeated(self.rate, count), repeated(self.copies, count), constraints)
        return self._times[count]

    @cached_property
    def _times(self) -> dict[int, Market]:
        return {}

    @cached_property
    def asked(self) -> list[Any]:
        """What the rows were asked last, for `answers.py`."""
        return []

    def take(self, rows: Index | Mask | slice) -> Market:
        constraints = tuple(Constraint(c.names, c.weight[rows], c.load, c.limit) for c in self.constraints)
        return Market(np.ascontiguousarray(self.rate[:, rows]), self.copies[rows], constraints)
