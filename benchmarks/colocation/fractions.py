"""Interference of two kinds that share accelerators: pairs that were never tried, from those that were.

A pair is described by the fraction of its rate alone that each kind keeps. All that is known of a kind, what it keeps
beside each other kind and what it leaves them, on each column, is one row; a row is completed from the rows of kinds
that are well known (`gaussian.py`). Whether two kinds fit together at all is another question, of memory and not of
speed (`memory.py`). A kind whose few measurements are those of a known kind, within noise, is taken for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from colocation.gaussian import Completed, Factors
from colocation.memory import Memory
from shoal.schedule.types import Array, Index

NOISE = 0.04
"""Standard deviation of a measured fraction that other kinds do not explain."""
RANK = 16
"""Factors, at most: beyond this many the rows of further kinds add little, and cost."""
ALIKE, IN_COMMON = 0.03, 4
"""Kinds whose fractions differ less than this (root mean square) in at least this number of measurements are one
kind."""
LOWEST = 0.01
"""No fraction is predicted lower: what fits makes some progress."""


@dataclass(frozen=True, eq=False)
class Colocation:
    """`fraction` (kinds, n, kinds): what the first keeps of its rate alone beside the second, on each of n columns;
    zero where they do not fit together, NaN where never tried."""

    fraction: Array

    @cached_property
    def rows(self) -> Array:
        """(kinds, 2 n kinds): what a kind keeps beside each, then what it leaves to each."""
        kinds = len(self.fraction)
        taken = self.fraction.transpose(2, 1, 0)
        return np.concatenate([self.fraction.reshape(kinds, -1), taken.reshape(kinds, -1)], axis=1)

    @cached_property
    def known(self) -> Index:
        """(kinds,) how many entries of each row were measured."""
        count: Index = (~np.isnan(self.rows)).sum(axis=1)
        return count

    @cached_property
    def _factors(self) -> Factors | None:
        """From the kinds that are at least half as well known as the best known one."""
        rows = np.where(self.rows > 0.0, self.rows, np.nan)
        count = (~np.isnan(rows)).sum(axis=1)
        if not count.any():
            return None
        return Factors.fit(rows[count * 2 >= count.max()], NOISE, RANK)

    @cached_property
    def fits(self) -> Array:
        """(kinds, n, kinds) the probability that two kinds fit together on a column, one where nothing was tried."""
        first, column, second = np.nonzero(~np.isnan(self.fraction))
        fitted = (self.fraction[first, column, second] > 0.0).astype(np.float64)
        kinds, width, _ = self.fraction.shape
        memory = Memory.fit(first, column, second, fitted, kinds, width)
        chance = np.array([memory.chance(kind) for kind in range(kinds)])
        for kind, twin in enumerate(self.alike):
            if twin is not None:
                known = (self.rows[twin] > 0.0).astype(np.float64).reshape(2, width, kinds)
                tried = ~np.isnan(self.rows[twin]).reshape(2, width, kinds)
                chance[kind] = np.where(tried[0], known[0], chance[kind])
                chance[:, :, kind] = np.where(tried[1], known[1], chance[:, :, kind].T).T
        return chance

    @cached_property
    def alike(self) -> tuple[int | None, ...]:
        """For each kind the better known one that it cannot be told from, if any."""
        return tuple(self._alike(kind) for kind in range(len(self.rows)))

    def _alike(self, kind: int) -> int | None:
        apart = self.rows - self.rows[kind]
        common = (~np.isnan(apart)).sum(axis=1)
        distance = np.sqrt(np.nansum(apart**2, axis=1) / np.maximum(common, 1))
        candidates = (common >= IN_COMMON) & (distance < ALIKE) & (self.known > self.known[kind])
        return int(np.where(candidates, distance, np.inf).argmin()) if candidates.any() else None

    def complete(self, kind: int) -> Completed | None:
        """The kind's row, (2 n kinds,) each; zero where a kind that it is alike to does not fit. None when nothing was
        ever tried."""
        if self._factors is None:
            return None
        row = self.rows[kind]
        found = self._factors.given(np.where(row > 0.0, row, np.nan))
        mean, std = np.clip(found.mean, LOWEST, 1.0), found.std
        if (twin := self.alike[kind]) is not None:
            same = ~np.isnan(self.rows[twin])
            mean, std = np.where(same, self.rows[twin], mean), np.where(same, ALIKE, std)
        return Completed(mean, std, found.gain)
