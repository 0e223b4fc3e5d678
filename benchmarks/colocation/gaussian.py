"""Completing a row of a table from some of its entries, as a conditional Gaussian in the span of the other rows.

Probabilistic principal components with missing entries (Tipping and Bishop 1999; Ilin and Raiko 2010): a row is
`mean + loading z + noise` with z normal. With as many factors as rows this is the posterior under the rows' own
covariance: ridge regression of what is known of the new row on the rows that are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from shoal.schedule.types import Array

ROUNDS, SETTLED = 30, 1e-3


class Completed(NamedTuple):
    """Per entry of a row (d,): its mean, its standard deviation, and by how much measuring it would reduce the sum of
    all entries' variances."""

    mean: Array
    std: Array
    gain: Array


@dataclass(frozen=True)
class Factors:
    """`mean` (d,), `loading` (d, q), variance of the mean for want of rows `doubt` (d,), deviation of the `noise`."""

    mean: Array
    loading: Array
    doubt: Array
    noise: float

    @classmethod
    def fit(cls, rows: Array, noise: float, rank: int) -> Self:
        """From rows (k, d), NaN where unknown; at least one row, and one known entry."""
        missing = np.isnan(rows)
        known, count = np.where(missing, 0.0, rows), (~missing).sum(axis=0)
        # One row's worth of the mean of everything: an entry that few rows know is not believed alone.
        mean = (known.sum(axis=0) + known.sum() / count.sum()) / (count + 1.0)
        doubt = np.nanvar(rows) / (count + 1.0)
        centred = np.where(missing, 0.0, rows - mean)
        found = cls(mean, _loading(centred, rank), doubt, noise)
        gaps = np.flatnonzero(missing.any(axis=1))
        for _ in range(ROUNDS if len(gaps) else 0):
            filled = centred.copy()
            for row in gaps:
                filled[row, missing[row]] = (found.loading @ found.centre(rows[row])[0])[missing[row]]
            change = float(np.abs(filled - centred).max())
            centred = filled
            found = cls(mean, _loading(centred, rank), doubt, noise)
            if change < SETTLED:
                break
        return found

    def centre(self, row: Array) -> tuple[Array, Array]:
        """Mean (q,) and covariance (q, q) of the factors of a row (d,), NaN where unknown."""
        at = ~np.isnan(row)
        seen = self.loading[at]
        precision = np.eye(self.loading.shape[1]) + seen.T @ seen / self.noise**2
        covariance: Array = np.linalg.inv(precision).astype(np.float64)
        return covariance @ (seen.T @ (row[at] - self.mean[at])) / self.noise**2, covariance

    def given(self, row: Array) -> Completed:
        """What follows from the known entries of a row (d,), NaN where unknown."""
        centre, covariance = self.centre(row)
        spread = self.loading @ covariance
        explained = np.maximum((spread * self.loading).sum(axis=1), 0.0)
        removed = ((spread @ (self.loading.T @ self.loading)) * spread).sum(axis=1)
        gain = np.where(np.isnan(row), removed / (explained + self.noise**2), 0.0)
        return Completed(self.mean + self.loading @ centre, np.sqrt(explained + self.doubt + self.noise**2), gain)


def _loading(centred: Array, rank: int) -> Array:
    _, size, axes = np.linalg.svd(centred, full_matrices=False)
    kept = min(rank, len(size))
    loading: Array = axes[:kept].T * (size[:kept] / np.sqrt(len(centred)))
    return loading
