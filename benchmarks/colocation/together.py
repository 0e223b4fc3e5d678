"""Beliefs about kinds in pairs: measured, or completed from other pairs (`fractions.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from colocation.fractions import Colocation
from colocation.gaussian import Completed
from shoal.schedule.oracle.beliefs import MOST_DOUBT, Rates, Source
from shoal.schedule.types import Array, Mask


class PairSource(IntEnum):
    """What an estimate of a pair may come from beside `Source`: other pairs."""

    PAIRS = 3


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
        source = np.where(unfit, Source.UNFIT, np.where(runs, PairSource.PAIRS, Source.GUESS))
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
