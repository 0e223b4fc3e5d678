"""Choice of the solver for a program: prices while the limits are few, the general solver otherwise.

A guess at the prices makes an answer come sooner, and never decides whether there is one: where the search that began
with it gives up, one without it is made, and then the general solver has the last word.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from shoal.schedule.errors import SolverFailed
from shoal.schedule.solve import lp, prices
from shoal.schedule.solve.market import Market
from shoal.schedule.solve.search import Solution
from shoal.schedule.types import Array

FEW = 16
"""Limits up to which prices win: their number of rounds grows with about the square of it."""


def best_level(
    market: Market, floor: Array, per_level: Array, *, guess: tuple[Array, ...] = (), **how: Any
) -> Solution:
    """As `prices.best_level`, by whichever solver suits; the other one if that gives up."""
    by_prices = partial(prices.best_level, market, floor, per_level, **how)
    return _first_found(market, by_prices, guess) or lp.best_level(market, floor, per_level)


def best_value(
    market: Market, value: Array, floor: Array, *, start: Array | None = None, guess: tuple[Array, ...] = ()
) -> Solution:
    """As `prices.best_value`, by whichever solver suits; the other one if that gives up."""
    by_prices = partial(prices.best_value, market, value, floor, start=start)
    return _first_found(market, by_prices, guess) or lp.best_value(market, value, floor)


def _first_found(market: Market, by_prices: Callable[..., Solution], guess: tuple[Array, ...]) -> Solution | None:
    """What prices find, with the guess and then without; None where the general solver is to be asked."""
    if len(market.limits) > FEW:
        return None
    for known in (guess, ()) if guess else ((),):
        with suppress(SolverFailed):
            return by_prices(prices=known)
    return None
