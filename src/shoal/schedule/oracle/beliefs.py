"""Beliefs about every kind on every column, from what was measured of them.

Four sources in this order: measured; predicted from the kind's rate on other columns (`ratios.py`); forecast by
others, where the kind was measured nowhere; a guess, which is only there to be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.oracle.ratios import Ratios
from shoal.schedule.types import Array, Mask

Codes = NDArray[np.int8]

MOST_DOUBT = 1.0
"""Relative standard deviation of a guess, and the largest that a prediction is given: the rate is positive."""


class Source(IntEnum):
    """What an estimate came from: the job's own reports; other jobs of its kind; its kind's rates on other columns;
    running out of memory; nothing; what another component forecasts."""

    MEASURED = 0
    KIND = 1
    COLUMNS = 2
    UNFIT = 4
    GUESS = 5
    FORECAST = 6


@dataclass(frozen=True, eq=False)
class Rates:
    """Steps per second, relative standard deviation, and what each came from (`Source`); equal shapes."""

    rate: Array
    doubt: Array
    source: Codes


@dataclass(frozen=True, eq=False)
class Alone:
    """`measured` (kinds, n) in steps per second, zero where a kind does not fit, NaN where never tried; `doubt` the
    relative standard deviation. `told` gives what others forecast of a kind: log rates and variances (n,), NaN where
    they know nothing."""

    kinds: Sequence[str]
    columns: Sequence[str]
    measured: Array
    doubt: Array
    told: Callable[[str], tuple[Array, Array]] | None = None

    @cached_property
    def logs(self) -> Array:
        """(kinds, n) log rates, NaN where not measured."""
        return np.log(np.where(self.measured > 0.0, self.measured, np.nan))

    @cached_property
    def ratios(self) -> Ratios:
        return Ratios.fit(self.logs)

    @cached_property
    def rates(self) -> Rates:
        """(kinds, n) each. A guess is a rate of one step per second, or what the kind has elsewhere, in the ratios that
        columns have on average: policies compare a job's own rates, so that its scale does not matter to them."""
        known, missing = ~np.isnan(self.logs), np.isnan(self.measured)
        count = np.maximum(known.sum(axis=1, keepdims=True), 1)
        scale = np.exp(np.where(known, self.logs - self._typical, 0.0).sum(axis=1, keepdims=True) / count)
        own_doubt = np.where(known, self.doubt**2, 0.0).sum(axis=1, keepdims=True) / count
        log_rate, variance = self.ratios.given(self.logs)
        near = missing & ~np.isnan(log_rate)
        rate = np.where(missing, scale * np.exp(self._typical), self.measured)
        rate = np.where(near, np.exp(np.where(near, log_rate, 0.0)), rate)
        predicted = np.minimum(
            np.sqrt(np.expm1(np.minimum(np.where(near, variance, 0.0), 1.0)) + own_doubt), MOST_DOUBT
        )
        doubt = np.where(near, predicted, np.where(missing, MOST_DOUBT, self.doubt))
        source = np.where(near, Source.COLUMNS, np.where(missing, Source.GUESS, Source.KIND))
        if self.told is not None:
            for row in np.flatnonzero(~known.any(axis=1)).tolist():
                self._take_forecasts(row, missing[row], *self.told(self.kinds[row]), Rates(rate, doubt, source))
        return Rates(rate, doubt, np.where(self.measured == 0.0, Source.UNFIT, source).astype(np.int8))

    def _take_forecasts(self, row: int, missing: Mask, told: Array, spread: Array, into: Rates) -> None:
        """Of a kind that was measured nowhere: guesses are then of the size of what is forecast."""
        log_rate, variance = self.ratios.weighed(told, spread)
        at = missing & ~np.isnan(log_rate)
        if at.any():
            into.rate[row, missing] *= np.exp((log_rate[at] - self._typical[at]).mean())
            into.rate[row, at] = np.exp(log_rate[at])
            into.doubt[row, at] = np.minimum(np.sqrt(np.expm1(np.minimum(variance[at], 1.0))), MOST_DOUBT)
            into.source[row, at] = Source.FORECAST

    @cached_property
    def _typical(self) -> Array:
        """(n,) log rates of columns relative to others, where kinds tell; zero where none does."""
        alike = np.bincount(self.ratios.group, minlength=len(self.columns))[self.ratios.group] > 1
        fast: Array = np.where(alike, self.ratios.mean, 0.0)
        return fast
