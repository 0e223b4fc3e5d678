"""Ratios that were measured side by side, round after round: their geometric mean and how sure it is."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from shoal.measure.statistics import Estimate


def geometric_mean(ratios: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Of one ratio per round, (rounds,). The interval is Student's, of the logarithms: rounds are independent of each
    other, the requests of one are not. One round tells nothing of the spread, and its interval is everything.

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
    from scipy.special import stdtrit

    reach = float(stdtrit(values.size - 1, (1 + confidence) / 2) * logs.std(ddof=1) / math.sqrt(values.size))
    return Estimate(math.exp(centre), math.exp(centre - reach), math.exp(centre + reach), confidence)
