"""Choice of the next measurement: whatever would make the other estimates surer, on the whole, by most.

Uncertainty is the relative variance of each estimate (for pairs, of the fraction of the rate alone). A measurement
removes its own, and that of estimates which follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from colocation.together import Together
from shoal.core import Reason
from shoal.schedule.oracle.beliefs import MOST_DOUBT, Alone, Source
from shoal.schedule.types import Array

UNTRIED = 0.1
"""Variance that the first pair on a column is said to remove: nothing is known of it, and nothing of its worth."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Run a job of `kind` on `column`, alone or `beside` a job of another kind. `gain` is the variance removed."""

    kind: str
    column: str
    beside: str | None
    gain: float
    reason: Reason


def worth_alone(beliefs: Alone, kinds: Sequence[str], columns: Sequence[str]) -> Iterator[Profile]:
    """Kinds on columns where they were never tried."""
    rates = beliefs.rates
    asked = [beliefs.columns.index(column) for column in columns]
    for kind in kinds:
        row = beliefs.kinds.index(kind)
        open_ = [at for at in asked if rates.source[row, at] in (Source.COLUMNS, Source.FORECAST, Source.GUESS)]
        after = np.repeat(beliefs.logs[row][None], len(open_), axis=0)
        after[range(len(open_)), open_] = 0.0
        left = np.minimum(np.nan_to_num(beliefs.ratios.given(after)[1], nan=MOST_DOUBT), MOST_DOUBT)
        for at, variance in zip(open_, left, strict=True):
            gain = float(np.maximum(rates.doubt[row, asked] ** 2 - variance[asked], 0.0).sum())
            source, column = Source(int(rates.source[row, at])), beliefs.columns[at]
            text = f"nothing tells how fast {kind} is on {column}"
            if source is not Source.GUESS:
                text = f"{kind} on {column} is only predicted, with a deviation of {rates.doubt[row, at]:.0%}"
            facts = {"gain": gain, "source": source.name.lower(), "doubt": float(rates.doubt[row, at])}
            yield Profile(kind, column, None, gain, Reason("profile-alone", text, facts))


def worth_beside(beliefs: Together, kinds: Sequence[str], columns: Sequence[str]) -> Iterator[Profile]:
    """Pairs of kinds that were measured alone (else their fractions would be of a predicted rate) and may fit."""
    gain = _pair_gains(beliefs)
    order = sorted({beliefs.kinds.index(kind) for kind in kinds})
    for at in sorted({beliefs.columns.index(column) for column in columns}):
        for place, first in enumerate(order):
            for second in order[place:]:
                if (worth := float(gain[first, at, second])) <= 0.0:
                    continue
                kind, column, other = beliefs.kinds[first], beliefs.columns[at], beliefs.kinds[second]
                chance = float(beliefs.colocation.fits[first, at, second])
                text = f"{kind} beside {other} on {column} was never tried, and tells of other pairs"
                facts = {"gain": worth, "fits": chance}
                yield Profile(kind, column, other, worth, Reason("profile-pair", text, facts))


def _pair_gains(beliefs: Together) -> Array:
    """(kinds, n, kinds), symmetric: a run of a pair measures what each of the two keeps, and tells of both."""
    kinds, width = len(beliefs.kinds), len(beliefs.columns)
    gain = np.zeros((kinds, width, kinds))
    for kind, found in enumerate(beliefs.completed):
        if found is not None:
            gain[kind] = found.gain.reshape(2, width, kinds).sum(axis=0)
    tried = ~np.isnan(beliefs.measured)
    gain = np.where(np.logical_or.reduce(tried, axis=(0, 2))[None, :, None], gain, UNTRIED / 2.0)
    useful = beliefs.usable[:, :, None] & beliefs.usable.T[None] & ~tried & ~tried.transpose(2, 1, 0)
    total: Array = np.where(useful, (gain + gain.transpose(2, 1, 0)) * beliefs.colocation.fits, 0.0)
    return total
