"""A kind measured on some columns, predicted on the others from the kinds that were measured on both.

Log rates are a scale of the kind's own (a step of one model is not a step of another), plus what columns differ by on
average, plus what this kind differs by, which is normal with a covariance learnt from the kinds. The scale is never
penalised (universal kriging), so predictions are exact in it: rates that are all twice as high predict twice as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse.csgraph import connected_components

from shoal.schedule.types import Array, Index, Mask

DIFFERENT = 0.5
"""Standard deviation of a kind's log rate about the average of columns that is believed before any kind was seen."""
WEIGHT = 0.2
"""How many kinds this belief counts for: a few real ones soon outweigh it."""
ROUNDS, SETTLED = 50, 1e-5


@dataclass(frozen=True)
class Ratios:
    """`mean` (n,) log rates of columns relative to each other, within one `group` (n,) of columns that some kinds
    connect; `covariance` (n, n) of kinds about it."""

    mean: Array
    covariance: Array
    group: Index

    @classmethod
    def fit(cls, table: Array) -> Self:
        """From log rates (kinds, n), NaN where not measured. By expectation maximisation, a few columns wide."""
        known = ~np.isnan(table)
        width = table.shape[1]
        group = _groups(known.T.astype(np.intp) @ known.astype(np.intp) > 0)
        found = cls(np.zeros(width), np.eye(width) * DIFFERENT**2, group)
        useful = table[known.sum(axis=1) > 1]
        for _ in range(ROUNDS if len(useful) else 0):
            relative, doubt = found._relative(useful)
            inside = ~np.isnan(relative)
            mean = np.where(inside, relative, 0.0).sum(axis=0) / np.maximum(inside.sum(axis=0), 1)
            off = np.nan_to_num(relative - mean)
            spread = np.eye(width) * DIFFERENT**2 * WEIGHT + off.T @ off + doubt
            change = np.abs(mean - found.mean).max()
            found = cls(mean, spread / (WEIGHT + len(useful)), group)
            if change < SETTLED:
                break
        return found

    def given(self, table: Array) -> tuple[Array, Array]:
        """What follows from log rates (kinds, n), NaN where not measured: log rates and variances (kinds, n), NaN in
        groups of columns that nothing was measured in."""
        log_rate, variance = table.copy(), np.where(np.isnan(table), np.nan, 0.0)
        for rows, inside, centre, doubt in self._conditionals(table):
            log_rate[np.ix_(rows, inside)] = centre
            variance[np.ix_(rows, inside)] = np.maximum(np.diag(doubt), 0.0)
        return log_rate, variance

    def weighed(self, told: Array, doubt: Array) -> tuple[Array, Array]:
        """What others forecast of one kind that was measured nowhere, log rates (n,) with variances (n,), NaN where
        they tell nothing; weighed against what columns differ by on average. Log rates and variances (n,)."""
        log_rate, variance = told.copy(), doubt.copy()
        for group in np.unique(self.group):
            inside = np.flatnonzero((self.group == group) & ~np.isnan(told))
            if len(inside) < 2:
                continue
            usual = self.covariance[np.ix_(inside, inside)]
            weight = np.linalg.inv(usual + np.diag(doubt[inside]))
            # The kind's scale is its own: it is as the forecasts have it.
            scale = weight.sum(axis=0) / weight.sum()
            off = told[inside] - self.mean[inside]
            off = off - scale @ off
            taken = np.eye(len(inside)) - usual @ weight
            log_rate[inside] = told[inside] - taken @ off
            variance[inside] = np.diag(taken @ usual) + (taken.sum(axis=1) ** 2) / weight.sum()
        return log_rate, variance

    def _conditionals(self, table: Array) -> Iterator[tuple[Index, Index, Array, Array]]:
        """For kinds (r,) that were measured on the same columns, and each group of columns (k,) with some of those: log
        rates (r, k) and their covariance (k, k)."""
        patterns, which = np.unique(~np.isnan(table), axis=0, return_inverse=True)
        for at, pattern in enumerate(patterns):
            rows = np.flatnonzero(which.ravel() == at)
            for group in np.unique(self.group[pattern]):
                inside = np.flatnonzero(self.group == group)
                yield rows, inside, *self._conditional(table[np.ix_(rows, inside)], inside, pattern[inside])

    def _conditional(self, table: Array, inside: Index, measured: Mask) -> tuple[Array, Array]:
        """From differences to one of the measured columns, in which the kinds' scales are gone."""
        seen = np.flatnonzero(measured)
        base, others = int(seen[0]), seen[1:]
        local = self.covariance[np.ix_(inside, inside)]
        apart = local - local[base] - local[:, base, None] + local[base, base]
        centre = table[:, base, None] + self.mean[inside] - self.mean[inside[base]]
        if len(others):
            weight = np.linalg.solve(apart[np.ix_(others, others)], apart[others]).T
            centre = centre + (table[:, others] - centre[:, others]) @ weight.T
            apart = apart - weight @ apart[others]
        centre[:, seen] = table[:, seen]
        apart[seen], apart[:, seen] = 0.0, 0.0
        return centre, apart

    def _relative(self, table: Array) -> tuple[Array, Array]:
        """The completed rows relative to their own mean in each group (kinds, n), and the sum of their covariances."""
        relative, total = np.full(table.shape, np.nan), np.zeros((table.shape[1], table.shape[1]))
        for rows, inside, centre, doubt in self._conditionals(table):
            within = np.eye(len(inside)) - 1.0 / len(inside)
            relative[np.ix_(rows, inside)] = centre @ within
            total[np.ix_(inside, inside)] += len(rows) * (within @ doubt @ within)
        return relative, total


def _groups(together: Mask) -> Index:
    """The connected components of columns, each named by its first column."""
    component = connected_components(together)[1]
    first: Index = (component == component[:, None]).argmax(axis=1)
    return first
