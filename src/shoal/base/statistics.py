"""Quantiles of a few numbers, without numpy: the inverted distribution function, so one of the values themselves."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil


def quantile(values: Iterable[float], p: float) -> float:
    """The smallest value with at least a share `p` of all at or below it. Raises ValueError for none, and for a share
    outside 0 to 1."""
    ordered = sorted(values)
    _check(bool(ordered), p)
    return ordered[max(ceil(p * len(ordered)), 1) - 1]


def weighted_quantile(values: Iterable[tuple[float, float]], p: float) -> float:
    """As `quantile`, of (value, weight) pairs."""
    ordered = sorted(values)
    _check(bool(ordered), p)
    limit = p * sum(weight for _, weight in ordered)
    total = 0.0
    for value, weight in ordered:
        total += weight
        if total >= limit:
            return value
    return ordered[-1][0]  # sums in another order differ in their last digit


def _check(known: bool, p: float) -> None:
    if not known:
        raise ValueError("no values")
    if not 0 <= p <= 1:
        raise ValueError(f"a share lies between 0 and 1: {p}")
