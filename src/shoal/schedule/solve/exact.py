"""Which solver for which program: prices while the limits are few, the general solver otherwise."""

from __future__ import annotations

import math

from shoal.schedule.errors import SolverFailed
from shoal.schedule.solve import lp, prices
from shoal.schedule.solve.market import Market
from shoal.schedule.solve.search import GAP, Solution
from shoal.schedule.types import Array

FEW = 16
"""Limits up to which prices win: their number of rounds grows with about the square of it."""


def best_level(
    market: Market,
    floor: Array,
    per_level: Array,
    *,
    start: Array | None = None,
    guess: tuple[Array, ...] = (),
    gap: float = GAP,
    scale: float = 0.0,
    least: float = -math.inf,
    at: float | None = None,
) -> Solution:
    """As `prices.best_level`, by whichever solver suits; the other one if that gives up."""
    if len(market.limits) <= FEW:
        try:
            return prices.best_level(
                market, floor, per_level, start=start, prices=guess, gap=gap, scale=scale, least=least, at=at
            )
        except SolverFailed:
            pass  # the general solver has the last word
    return lp.best_level(market, floor, per_level)


def best_value(
    market: Market, value: Array, floor: Array, *, start: Array | None = None, guess: tuple[Array, ...] = ()
) -> Solution:
    """As `prices.best_value`, by whichever solver suits; the other one if that gives up."""
    if len(market.limits) <= FEW:
        try:
            return prices.best_value(market, value, floor, start=start, prices=guess)
        except SolverFailed:
            pass
    return lp.best_value(market, value, floor)
