"""Beliefs about every kind on every column, from what was measured of them: `Alone`, and `Together` in pairs.

Five sources in this order: measured; predicted from the kind's rate on other columns (`ratios.py`); completed from
other pairs (`colocation.py`); forecast by others, where the kind was measured nowhere; a guess, which is only there to
be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.oracle.colocation import Colocation
from shoal.schedule.oracle.gaussian import Completed
from shoal.schedule.oracle.ratios import Ratios
from shoal.schedule.types import Array, Mask

Codes = NDArray[np.int8]

MOST_DOUBT = 1.0
"""Relative standard deviation of a guess, and the largest that a prediction is given: the rate is positive."""


class Source(IntEnum):
    """What an estimate came from: the job's own reports; other jobs of its kind; its kind's rates on other columns;
    other pairs; running out of memory, seen or predicted; nothing; what another component forecasts."""

    MEASURED = 0
    KIND = 1
    COLUMNS = 2
    PAIRS = 3
    UNFIT = 4
    GUESS = 5
    FORECAST = 6


@dataclass(frozen=True, eq=False)
class Rates:
    """Steps per second, relative standard deviation, and what each came from (`Source`); equal shapes."""

    rate: Array
    doubt: Array
    source: Codes

    def take(self, rows: Sequence[int]) -> Rates:
        return Rates(self.rate[rows], self.doubt[rows], self.source[rows])


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


@dataclass(frozen=True, eq=False)
class Together:
    """Of pairs of `kinds`: their `alone` rates (kinds, n), and `measured` (kinds, n, kinds), the rate of the first
    beside the second, zero where they do not fit, NaN where never tried; `doubt` its relative standard deviation."""

    kinds: Sequence[str]
    columns: Sequence[str]
    alone: Rates
    measured: Array
    doubt: Array

    @cached_property
    def usable(self) -> Mask:
        """(kinds, n) whose rate alone was measured: what a fraction is a fraction of."""
        measured: Mask = self.alone.source == Source.KIND
        return measured

    @cached_property
    def colocation(self) -> Colocation:
        alone = np.where(self.usable, self.alone.rate, np.nan)[:, :, None]
        return Colocation(np.where(self.measured == 0.0, 0.0, self.measured / alone))

    @cached_property
    def completed(self) -> list[Completed | None]:
        return [self.colocation.complete(kind) for kind in range(len(self.kinds))]

    @cached_property
    def rates(self) -> Rates:
        """(kinds, n, kinds) each. Zero with the source `GUESS` where nothing is known: no job should be packed on a
        guess."""
        alone, tried = self.alone, ~np.isnan(self.measured)
        keeps, std = self._fractions()
        fits = self.colocation.fits
        sound = (alone.source == Source.KIND) | (alone.source == Source.COLUMNS)
        known = ~np.isnan(keeps) & sound[:, :, None] & sound.T[None]
        too_large = alone.source == Source.UNFIT
        unfit = (known & ((fits <= 0.5) | (keeps == 0.0))) | too_large[:, :, None] | too_large.T[None]
        runs = known & ~unfit
        fraction = np.where(runs, keeps, 1.0)
        # A pair that does not fit after all is the whole estimate wrong, hence the last term.
        doubt = np.sqrt(alone.doubt[:, :, None] ** 2 + (np.where(runs, std, 0.0) / fraction) ** 2 + 1.0 - fits)
        source = np.where(unfit, Source.UNFIT, np.where(runs, Source.PAIRS, Source.GUESS))
        source = np.where(tried, np.where(self.measured > 0.0, Source.KIND, Source.UNFIT), source)
        return Rates(
            np.where(tried, self.measured, np.where(runs, alone.rate[:, :, None] * fraction, 0.0)),
            np.where(tried, self.doubt, np.where(runs, np.minimum(doubt, MOST_DOUBT), 0.0)),
            source.astype(np.int8),
        )

    def _fractions(self) -> tuple[Array, Array]:
        """(kinds, n, kinds) completed fractions and standard deviations; NaN on columns where no pair was tried. A pair
        is read from the row of the kind that less is known of: the other's row knows it only as one among many."""
        kinds, width = len(self.kinds), len(self.columns)
        own, own_std, taken, taken_std = (np.full((kinds, width, kinds), np.nan) for _ in range(4))
        for kind, found in enumerate(self.completed):
            if found is not None:
                mean, std = (part.reshape(2, width, kinds) for part in (found.mean, found.std))
                own[kind], own_std[kind] = mean[0], std[0]
                taken[:, :, kind], taken_std[:, :, kind] = mean[1].T, std[1].T
        known = self.colocation.known
        newer = (known[:, None] <= known[None, :])[:, None, :]
        tried = np.logical_not(np.isnan(self.colocation.fraction).all(axis=(0, 2)))[None, :, None]
        return np.where(tried, np.where(newer, own, taken), np.nan), np.where(newer, own_std, taken_std)
