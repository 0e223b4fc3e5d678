"""Exact linear programs by price decomposition: best level (max-min, makespan) and best value (throughput, cost).

Only a few couplings tie the rows together, so the program is solved in their prices: at given prices every row finds
its own cheapest spread in closed form (`response.py`), the master program mixes what the rows offered into a real
allocation (`master.py`), and its duals are the next prices (Dantzig and Wolfe 1960; Kelley 1960). Prices are taken
half way between the best known ones and the master's, which halves the number of rounds (Wentges 1997).

Each round proves something. Any prices bound the optimum from above: at level t the rows' spreads cost C(t), convex
in t with slope C', and nothing that costs more than the limits are worth (prices @ limits) fits; so no level above
t + (prices @ limits - C) / C' can be reached. The mixture is an allocation, so it bounds the optimum from below. Both
bounds are the certificate, and the prices of the best bound are the shadow prices.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from shoal.schedule.errors import SolverFailed
from shoal.schedule.solve.market import Market
from shoal.schedule.solve.master import Master
from shoal.schedule.solve.response import respond, volunteer
from shoal.schedule.solve.search import FLOOR, GAP, ROUNDS, SLACK, Search, Solution, floored, with_reach
from shoal.schedule.types import Array

STEP = 0.8
"""How far from the lower to the upper bound the next level is tried; 0.5 to 1 cost within a third of each other."""


def best_level(
    market: Market,
    floor: Array,
    per_level: Array,
    *,
    start: Array | None = None,
    prices: tuple[Array, ...] = (),
    gap: float = GAP,
    scale: float = 0.0,
    least: float = -math.inf,
) -> Solution:
    """The highest t such that every row can have the rate floor + t * per_level; both (m,), per_level not negative.

    Level zero must be feasible: without `start` (shares (n, m) that reach it) the floors may not be positive.
    `prices` are a first guess. The gap is relative to t, or to `scale` if that is more. Where t is below `least`, only
    prices and bounds are worked out: shares, rates and reach are empty. Raises `SolverFailed` when the gap stays open.
    """
    ceiling, slope = _ceiling(market, floor, per_level)
    worst = 0.0 if start is None else -1e6 * max(ceiling, 1e-300)
    search = Search(market, Master(market.limits, worst), ceiling, 0.0, scale)
    if start is not None:
        known = start
        search.offer(0.0, np.minimum(market.usage_of(known), market.limits), lambda: known)
    room = float((market.copies * slope) @ floor) + ceiling
    lowest, unit = np.inf, 1.0

    def ask(guess: Array, level: float) -> float:
        """Try prices and a level; returns the level at which the rows would spend all that the limits are worth."""
        nonlocal slope, room, lowest, unit
        demand = floor + level * per_level
        usage, slopes, spreads = np.zeros_like(market.limits), [], []
        for cut, block in market.blocks:
            spread = respond(block, block.cost(guess), demand[cut])
            usage += block.usage(spread)
            slopes.append(spread.slope * block.copies)
            spreads.append(spread)
        paid = slopes[0] if len(slopes) == 1 else np.concatenate(slopes)
        rise = float(paid @ per_level)
        root = level + float(guess @ (market.limits - usage)) / rise
        if root < lowest:
            lowest, search.best, unit = root, guess, rise
            search.bound = min(ceiling, root)
            slope, room = paid / (rise * market.copies), root + float(paid @ floor) / rise
        if len(spreads) == 1:  # small enough to keep
            search.offer(level, usage, lambda: market.shares(spreads[0]), guess)
        else:
            search.offer(level, usage, lambda: market.shares(respond(market, market.cost(guess), demand)), guess)
        search.rounds += 1
        return root

    level = ceiling
    for known_prices in prices[:-1]:
        ask(floored(market, known_prices), level)
    guess = floored(market, prices[-1] if prices else np.zeros_like(market.limits))
    while search.rounds < ROUNDS:
        for _ in range(4):  # a level that the prices forbid teaches less than one that they just allow
            root = ask(guess, level)
            if level <= root:
                break
            level = root - 0.1 * max(root - search.lower, 0.0)
        duals = search.mix()
        if search.closed(gap):
            break
        guess = floored(market, search.between(floored(market, duals)))
        lower = max(search.lower, 0.0)
        level = lower + STEP * (search.bound - lower)
    else:
        raise search.failed("level")
    # Prices that allow more than the ceiling are no reason for it: then nothing is scarce but time.
    binding = search.best is not None and lowest <= ceiling * (1.0 + SLACK)
    best = search.best / unit if binding and search.best is not None else np.zeros_like(market.limits)
    none = np.zeros(0)
    found = Solution(
        search.lower, search.bound, best, none, none, slope, room, search.rounds, reach=none, tried=search.tried()
    )
    if search.lower < least:
        return found
    shares = search.shares()
    rates, rising = market.rates_of(shares), per_level > 0.0
    reached = float(((rates - floor)[rising] / per_level[rising]).min())
    return with_reach(market, replace(found, value=reached, shares=shares, rates=rates), floor + reached * per_level)


def _ceiling(market: Market, floor: Array, per_level: Array) -> tuple[float, Array]:
    """The level at which the first row runs all the time on its fastest column, and the slope (m,) that says so."""
    rising = np.flatnonzero(per_level > 0.0)
    if not len(rising):
        raise SolverFailed("no row's rate rises with the level", rows=market.rows)
    levels = (market.fastest - floor)[rising] / per_level[rising]
    first = rising[levels.argmin()]
    slope = np.zeros(market.rows)
    slope[first] = 1.0 / (per_level[first] * market.copies[first])
    return max(float(levels.min()), 0.0), slope


def best_value(
    market: Market,
    value: Array,
    floor: Array,
    *,
    start: Array | None = None,
    prices: tuple[Array, ...] = (),
    gap: float = GAP,
) -> Solution:
    """The highest sum_ij copies_i value_ij x_ij where every row has at least the rate `floor` (m,); `value` is (n, m).

    The floors must be feasible: without `start` (shares (n, m) that keep them) they may not be positive. `prices` are
    a first guess. Raises `SolverFailed` when the gap stays open.
    """
    most = float(np.abs(value).max(axis=0, initial=0.0) @ market.copies)
    none = np.zeros_like(market.limits)
    base = np.zeros_like(market.rate) if start is None else start
    if most == 0.0:
        return Solution(0.0, 0.0, none, base, market.rates_of(base), np.zeros(market.rows), np.inf, 0)
    search = Search(market, Master(market.limits, 0.0 if start is None else -1e4 * most), np.inf, -np.inf, 0.0)
    if start is not None:
        worth = float(np.einsum("jm,jm,m->", value, base, market.copies))
        search.offer(worth, np.minimum(market.usage_of(base), market.limits), lambda: base)

    forced = bool(floor.any())

    def ask(guess: Array) -> None:
        """Try prices: every row does what is best for it by itself."""
        usage, worth = np.zeros_like(market.limits), 0.0
        for cut, block in market.blocks:
            net = block.cost(guess) - value[:, cut]
            spread = respond(block, net, floor[cut]) if forced else volunteer(net)
            shares = block.shares(spread)
            worth += float(np.einsum("jm,jm,m->", value[:, cut], shares, block.copies))
            usage += block.usage(spread)
        bound = worth + float(guess @ (market.limits - usage))
        if bound < search.bound:
            search.bound, search.best = bound, guess
        if len(market.blocks) == 1:  # small enough to keep
            search.offer(worth, usage, lambda: shares, guess)
        else:
            search.offer(worth, usage, lambda: market.shares(respond(market, market.cost(guess) - value, floor)), guess)
        search.rounds += 1

    lowest = FLOOR * most / (market.limits * len(market.limits))
    for known in prices[:-1]:
        ask(np.maximum(known, lowest))
    guess = np.maximum(prices[-1], lowest) if prices else lowest
    while search.rounds < ROUNDS:
        ask(guess)
        duals = search.mix()
        if search.closed(gap):
            break
        guess = np.maximum(search.between(duals), lowest)
    else:
        raise search.failed("value")
    shares = search.shares()
    reached = float(np.einsum("jm,jm,m->", value, shares, market.copies))
    best = none if search.best is None else search.best
    slope = respond(market, market.cost(best) - value, floor).slope
    return Solution(
        reached, search.bound, best, shares, market.rates_of(shares), slope, np.inf, search.rounds, tried=search.tried()
    )
