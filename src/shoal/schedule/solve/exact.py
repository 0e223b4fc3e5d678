"""Which solver for which program: prices while the limits are few, the general solver otherwise.

A guess at the prices makes an answer come sooner, and never decides whether there is one: where the search that began
with it gives up, one without it is made, and then the general solver has the last word.
"""

from __future__ import annotations

import math
from collections.abc import Callable

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

    def by_prices(known: tuple[Array, ...]) -> Solution:
        return prices.best_level(
            market, floor, per_level, start=start, prices=known, gap=gap, scale=scale, least=least, at=at
        )

    return _first_found(market, by_prices, guess) or lp.best_level(market, floor, per_level)


def best_value(
    market: Market, value: Array, floor: Array, *, start: Array | None = None, guess: tuple[Array, ...] = ()
) -> Solution:
    """As `prices.best_value`, by whichever solver suits; the other one if that gives up."""

    def by_prices(known: tuple[Array, ...]) -> Solution:
        return prices.best_value(market, value, floor, start=start, prices=known)

    return _first_found(market, by_prices, guess) or lp.best_value(market, value, floor)


def _first_found(
    market: Market, by_prices: Callable[[tuple[Array, ...]], Solution], guess: tuple[Array, ...]
) -> Solution | None:
    """What prices find, with the guess and then without; None where the general solver is to be asked."""
    if len(market.limits) > FEW:
        return None
    for known in (guess, ()) if guess else ((),):
        try:
            return by_prices(known)
        except SolverFailed:
            continue
    return None
