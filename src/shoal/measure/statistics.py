"""Uncertainty of measurements: intervals for quantiles and proportions, and correlation.

Of scipy only its special functions are used: they load quickly, and here, so that no load has to wait for an import.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the interval it lies in with (at least) this confidence."""

    value: float
    low: float
    high: float
    confidence: float = 0.95

    def __format__(self, spec: str) -> str:
        """`0.93 (0.9 to ?)`: each number as `spec` says, `?` for an end that is not known."""
        low, high = (format(end, spec) if math.isfinite(end) else "?" for end in (self.low, self.high))
        return f"{self.value:{spec}} ({low} to {high})"

    def as_json(self) -> dict[str, float | None]:
        """Numbers that JSON has no word for (nan, infinity) become null."""
        known = {"value": self.value, "low": self.low, "high": self.high, "confidence": self.confidence}
        return {name: number if math.isfinite(number) else None for name, number in known.items()}


def quantile(values: ArrayLike, p: float, *, confidence: float = 0.95, effect: float = 1.0) -> Estimate:
    """The p-quantile (inverted ECDF: the smallest value with at least a share p at or below it) of `values` (n,).

    The interval is made of two order statistics whose ranks come from the binomial distribution, so it assumes no
    shape (Hahn and Meeker 1991, ch. 5), only independent samples; `effect` is their `design_effect` where they are not.
    An end that so few samples cannot tell is infinite.
    """
    if not 0 < p < 1:
        raise ValueError(f"p must lie between 0 and 1: {p}")
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, confidence)
    tail = (1 - confidence) / 2
    worth = max(1, round(n / effect))
    # P(X_(k) <= q) = P(B >= k), P(X_(k) >= q) = P(B <= k - 1), with B ~ Bin(n, p): the k-th smallest, counted from 1.
    low, high = _binomial_quantile(tail, worth, p), _binomial_quantile(1 - tail, worth, p) + 1
    return Estimate(
        float(ordered[min(max(math.ceil(p * n), 1), n) - 1]),
        float(ordered[max(math.floor(low * n / worth), 1) - 1]) if low >= 1 else -math.inf,
        float(ordered[min(math.ceil(high * n / worth), n) - 1]) if high <= worth else math.inf,
        confidence,
    )


def quantile_of(values: ArrayLike, p: float) -> float:
    """The same without an interval; nan of nothing."""
    known = np.asarray(values, dtype=np.float64)
    return float(np.quantile(known, p, method="inverted_cdf")) if known.size else math.nan


def proportion(successes: int, n: int, *, confidence: float = 0.95, effect: float = 1.0) -> Estimate:
    """A share and its exact interval (Clopper and Pearson 1934), of counts divided by the design effect; nan in [0, 1]
    for no trials."""
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} trials")
    if n == 0:
        return Estimate(math.nan, 0.0, 1.0, confidence)
    tail = (1 - confidence) / 2
    few, worth = successes / effect, n / effect
    return Estimate(successes / n, lower_bound(few, worth, alpha=tail), upper_bound(few, worth, alpha=tail), confidence)


def lower_bound(successes: float, n: float, *, alpha: float) -> float:
    """One-sided Clopper-Pearson: the true share is above this with confidence 1 - alpha. Counts may be fractions (those
    of correlated trials, divided by their design effect)."""
    return float(special.betaincinv(successes, n - successes + 1, alpha)) if successes else 0.0


def upper_bound(successes: float, n: float, *, alpha: float) -> float:
    """As `lower_bound`, from above."""
    return float(special.betaincinv(successes + 1, n - successes, 1 - alpha)) if successes < n else 1.0


def design_effect(values: ArrayLike, *, batches: int = 20) -> float:
    """How many samples of the series `values` (n,), in order of time, say as much as one independent one; at least 1.

    By the means of equal, adjacent batches (Law and Kelton, "Simulation Modeling and Analysis", ch. 9): their variance
    over that which independent samples would have. At most about n / batches, so a longer series can show more.
    """
    series = np.asarray(values, dtype=np.float64)
    size = len(series) // batches
    if size < 2:
        return 1.0
    kept = series[len(series) - size * batches :]
    spread = float(kept.var())
    if spread == 0:
        return 1.0
    means = kept.reshape(batches, size).mean(axis=1)
    return max(1.0, float(means.var(ddof=1)) * size / spread)


def geometric_mean(ratios: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Of ratios that were measured side by side, one per round, (rounds,). The interval is Student's, of the logs:
    rounds are independent of each other, the requests of one are not. One round tells nothing of the spread, and its
    interval is everything.

    Rounds that measured nothing (nan) are left out. A ratio of 0 or infinity (everything failed on one side) is taken
    as it is, and leaves the interval open.
    """
    values = np.asarray(ratios, dtype=np.float64)
    values = values[~np.isnan(values)]
    if values.size == 0:
        return Estimate(math.nan, 0.0, math.inf, confidence)
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    if not np.isfinite(logs).all():
        # Contradicting extremes have no mean.
        both = np.isposinf(logs).any() and np.isneginf(logs).any()
        return Estimate(math.nan if both else float(np.exp(logs.mean())), 0.0, math.inf, confidence)
    centre = float(logs.mean())
    if values.size == 1:
        return Estimate(math.exp(centre), 0.0, math.inf, confidence)
    reach = float(special.stdtrit(values.size - 1, (1 + confidence) / 2) * logs.std(ddof=1) / math.sqrt(values.size))
    return Estimate(math.exp(centre), math.exp(centre - reach), math.exp(centre + reach), confidence)


def ecdf(values: ArrayLike, *, points: int = 200) -> tuple[Floats, Floats]:
    """At most this number of steps of the empirical distribution function of `values` (n,): positions and shares at or
    below, both (k,). Steps are thinned evenly in rank, and the ends are kept."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    if n == 0:
        return np.empty(0), np.empty(0)
    ranks = np.unique(np.linspace(0, n - 1, min(points, n)).round().astype(np.int64))
    return ordered[ranks], np.searchsorted(ordered, ordered[ranks], side="right") / n


def _binomial_quantile(q: float, n: int, p: float) -> int:
    """The smallest k with P(B <= k) >= q for B ~ Bin(n, p)."""
    k = max(int(np.ceil(special.bdtrik(q, n, p))), 0)
    while special.bdtr(k - 1, n, p) >= q:  # at -1 it is not a number
        k -= 1
    return k
