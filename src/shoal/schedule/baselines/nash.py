"""Most Nash welfare: the product of the rates, each to the power of its weight, by price decomposition.

As in `prices.py`, but what a row wants at given prices is the rate at which the next unit costs weight / rate. The
mixture's welfare is at least the mean of its parts', so the master's value is a bound from below.
"""

from __future__ import annotations

import numpy as np

from shoal.schedule.solve.market import Market, Spread
from shoal.schedule.solve.response import first_step, next_edge
from shoal.schedule.solve.search import PATIENCE, ROUNDS, Search, Solution, floored
from shoal.schedule.types import Array

GAP, ROUGH = 1e-8, 5e-7
"""Gap between bounds on the logarithm of the product, in sums of weights, at which it counts as found, and the one to
settle for where rounding allows no better."""


def best_welfare(market: Market, weight: Array, *, start: Array, prices: tuple[Array, ...] = ()) -> Solution:
    """The most of sum_i copies_i weight_i log(rate_i), given some shares (n, m) with positive rates for all rows."""
    weights = weight * market.copies

    def welfare(rates: Array) -> float:
        return float(weights @ np.log(np.maximum(rates, 1e-300)))

    known = welfare(market.rates_of(start))
    total = float(weights.sum())
    search = Search(market, known - 1e3 * total, np.inf, -np.inf, total)
    search.offer(known, np.minimum(market.usage_of(start), market.limits), lambda: start)

    def ask(guess: Array) -> None:
        spread = _respond(market, market.cost(guess), weight)
        shares = market.shares(spread)
        usage, value = market.usage(spread), welfare(market.rates_of(shares))
        bound = value + float(guess @ (market.limits - usage))
        if bound < search.bound:
            search.bound, search.best = bound, guess
        search.offer(value, usage, lambda: market.shares(_respond(market, market.cost(guess), weight)), guess)
        search.rounds += 1

    # At the optimum the limits that are used up are worth at most all of the weights.
    even = floored(market, np.zeros_like(market.limits)) * total
    lowest = even * 1e-12
    for guess in prices[:-1]:
        ask(np.maximum(guess, lowest))
    guess = np.maximum(prices[-1], lowest) if prices else even
    while search.rounds < ROUNDS:
        ask(guess)
        duals = search.mix()
        apart = search.bound - search.lower
        if apart <= GAP * total or (search.stalls > PATIENCE and apart <= ROUGH * total):
            break
        guess = np.maximum(search.between(duals), lowest)
    else:
        raise search.failed("welfare")
    shares = search.shares()
    rates = market.rates_of(shares)
    best = even if search.best is None else search.best
    slope = weight / rates
    return Solution(
        welfare(rates), search.bound, best, shares, rates, slope, np.inf, search.rounds, tried=search.tried()
    )


def _respond(market: Market, cost: Array, weight: Array) -> Spread:
    """Each row walks its frontier from being idle while the next unit of rate costs less than weight / rate."""
    rate = market.rate
    second, slope = first_step(market, cost)
    row = np.arange(market.rows)
    share = weight / (slope * rate[second, row])
    first = np.full(market.rows, -1)
    short = np.flatnonzero(share > 1.0)
    share[short] = 1.0
    while len(short):
        at = second[short]
        with np.errstate(divide="ignore", invalid="ignore"):
            to, reached, rise, steep = next_edge(rate[:, short], cost[:, short], at)
            part = (weight[short] / steep - reached) / rise
        goes = weight[short] > steep * reached
        short, part = short[goes], part[goes]
        first[short], second[short], share[short] = at[goes], to[goes], np.minimum(part, 1.0)
        short = short[part > 1.0]
    return Spread(first, second, share, slope)
