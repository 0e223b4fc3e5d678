"""A rate from a window of reports: an exponentially weighted mean with its variance, which outliers cannot pull.

The mean is Huber's one-step M-estimator about the weighted median, in the logarithm of the rate (a report that is ten
times too slow weighs as one that is ten times too fast), with the median absolute deviation as its scale. It is
computed from the window and never carried on, so the order in which reports of one time arrive cannot matter.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import PositiveFloat

WINDOW = 16
"""Reports that are kept, the newest."""
FADING = 0.85
"""Weight of a report relative to the next newer one: half is gone after four reports."""
UNSEEN = 0.1
"""Relative deviation that is believed before any was seen, with the weight of one report."""
STEADY = 0.01
"""Reports of one rate that differ less than this are not told apart."""
BOUND = 1.5
"""Huber's constant: how many deviations a report may pull with."""


class Report(NamedTuple):
    """One rate per second, from how many seconds; sorted by time."""

    at: float
    per_s: PositiveFloat
    seconds: PositiveFloat
    restarted: bool


class Rate(NamedTuple):
    """A rate, the relative deviation of single reports from it (`spread`), and its own relative `error`."""

    per_s: float
    spread: float
    error: float


class Track:
    """The newest reports of one rate."""

    __slots__ = ("_rate", "reports")

    def __init__(self, reports: Sequence[Report] = ()) -> None:
        self.reports: list[Report] = sorted(reports)[-WINDOW:]
        self._rate: Rate | None = None

    def add(self, report: Report) -> None:
        insort(self.reports, report)
        del self.reports[:-WINDOW]
        self._rate = None

    @property
    def at(self) -> float:
        """When the newest report was made."""
        return self.reports[-1].at

    @property
    def rate(self) -> Rate:
        if self._rate is None:
            settled = [each for each in self.reports if not each.restarted] or self.reports
            self._rate = robust([each.per_s for each in settled], [each.seconds for each in settled])
        return self._rate


def robust(rates: Sequence[float], seconds: Sequence[float]) -> Rate:
    """The rate of reports in the order of their time. A report weighs by its seconds up to the median of all: one
    that hung for an hour is one report."""
    usual = _median(seconds, [1.0] * len(seconds))
    weights = [
        min(lasted / usual, 1.0) * FADING**age
        for lasted, age in zip(seconds, reversed(range(len(seconds))), strict=True)
    ]
    total = sum(weights)
    centre = _median(rates, weights)
    offs = [math.log(rate / centre) for rate in rates]
    scale = max(1.4826 * _median([abs(off) for off in offs], weights), STEADY)
    pulls = [max(-BOUND * scale, min(BOUND * scale, off)) for off in offs]
    shift = sum(weight * pull for weight, pull in zip(weights, pulls, strict=True)) / total
    variance = sum(weight * (pull - shift) ** 2 for weight, pull in zip(weights, pulls, strict=True)) / total
    count = total**2 / sum(weight**2 for weight in weights)
    spread = math.sqrt((UNSEEN**2 + count * variance) / (1.0 + count))
    return Rate(centre * math.exp(shift), spread, spread / math.sqrt(count))


def _median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted median; the mean of the two in the middle where half the weight lies on either side."""
    order = sorted(zip(values, weights, strict=True))
    half, below = sum(weights) / 2.0, 0.0
    for at, (value, weight) in enumerate(order):
        below += weight
        if below > half * (1.0 + 1e-12):
            return value
        if below >= half * (1.0 - 1e-12):
            return (value + order[min(at + 1, len(order) - 1)][0]) / 2.0
    return order[-1][0]
