"""Execution times as the planner's tests draw them."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from shoal.measure.planning.profiles import ExecutionTime


def lognormal(mean_s: float, cv: float) -> ExecutionTime:
    """A lognormal of this coefficient of variation, cut at its 0.1% and 99.9% quantiles; 17 points and its mean."""
    if cv <= 0:
        return ExecutionTime.constant(mean_s)
    sigma = math.sqrt(math.log1p(cv * cv))
    shares = np.concatenate(([0.0], np.linspace(0.05, 0.9, 12), [0.95, 0.98, 0.99, 1.0]))
    values = np.exp(sigma * ndtri(np.clip(shares, 0.001, 0.999)))
    values *= mean_s / float(np.sum(np.diff(shares) * (values[1:] + values[:-1]) / 2))
    return ExecutionTime(1, tuple(zip(shares.tolist(), values.tolist(), strict=True)))
