"""Exact linear programs by price decomposition: best level (max-min, makespan) and best value (throughput, cost).

Only a few constraints tie the rows together, so the program is solved in their prices: at given prices every row finds
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
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from shoal.schedule.errors import SolverFailed
from shoal.schedule.solve.answers import answers, offers
from shoal.schedule.solve.market import Market
from shoal.schedule.solve.search import FLOOR, GAP, ROUNDS, SLACK, Search, Solution, floored, reach
from shoal.schedule.types import Array

STEP = 0.8
"""How far from the lower to the upper bound the next level is tried; 0.5 to 1 cost within a third of each other."""


TRIES = 4
"""Levels at which the same prices are tried, at most."""


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
    at: float | None = None,
) -> Solution:
    """The highest t such that every row can have the rate floor + t * per_level; both (m,), per_level not negative.

    Level zero must be feasible: without `start` (shares (n, m) that reach it) the floors may not be positive.
    `prices` are a first guess, and `at` one of the level. The gap is relative to t, or to `scale` if that is more.
    Where t is below `least`, only prices and bounds are worked out: shares, rates and reach are empty. Raises
    `SolverFailed` when the gap stays open.
    """
    ceiling, slope = _ceiling(market, floor, per_level)
    worst = 0.0 if start is None else -1e6 * max(ceiling, 1e-300)
    search = Search(market, worst, ceiling, 0.0, scale)
    if start is not None:
        begun = start
        search.offer(0.0, np.minimum(market.usage_of(begun), market.limits), lambda: begun)
    room = float((market.copies * slope) @ floor) + ceiling
    lowest, unit = np.inf, 1.0

    def ask(guesses: Array, level: float) -> float:
        """Try prices (p, r) at a level; returns the lowest at which rows would spend all that the limits are worth."""
        nonlocal slope, room, lowest, unit
        found = answers(market, guesses, floor + level * per_level)
        rises = found.paid @ per_level
        roots = level + np.einsum("pr,pr->p", guesses, market.limits - found.usage) / rises
        best = int(roots.argmin())
        root = float(roots[best])
        if root < lowest:
            lowest, search.best, unit = root, guesses[best], float(rises[best])
            search.bound = min(ceiling, root)
            paid = found.paid[best]
            slope, room = paid / (unit * market.copies), root + float(paid @ floor) / unit
        search.offer_each(np.full(len(guesses), level), found.usage, found.shares, guesses)
        search.rounds += len(guesses)
        return root

    known = floored(market, np.array(prices or (np.zeros_like(market.limits),)))
    level = ceiling if at is None else min(at, ceiling)
    if len(known) > 1:  # what a like problem was solved with often solves this one, at the level that it allows
        for _ in range(TRIES):
            if level <= ask(known, level) * (1.0 + gap):
                break
            level = search.bound
    else:
        _just_allowed(ask, known, level, search)
    while True:
        duals = search.mix()
        if search.closed(gap):
            break
        if search.rounds >= ROUNDS:
            raise search.failed("level")
        lower = max(search.lower, 0.0)
        guesses = floored(market, search.around(floored(market, duals)))
        _just_allowed(ask, guesses, lower + STEP * (search.bound - lower), search)
    # Prices that allow more than the ceiling are no reason for it: then nothing is scarce but time.
    binding = search.best is not None and lowest <= ceiling * (1.0 + SLACK)
    best = search.best / unit if binding and search.best is not None else np.zeros_like(market.limits)
    found = partial(Solution, bound=search.bound, prices=best, slope=slope, room=room, rounds=search.rounds)
    if search.lower < least:
        none = np.zeros(0)
        return found(search.lower, shares=none, rates=none, tried=search.tried(known))
    shares = search.shares()
    rates, rising = market.rates_of(shares), per_level > 0.0
    reached = float(((rates - floor)[rising] / per_level[rising]).min())
    search.check(reached)
    able = reach(market, shares, best, floor + reached * per_level)
    return found(reached, shares=shares, rates=rates, reach=able, tried=search.tried(known))


def _just_allowed(ask: Callable[[Array, float], float], guesses: Array, level: float, search: Search) -> None:
    """Ask at a level, or below it until the prices allow it: one that they forbid teaches less."""
    for _ in range(TRIES):
        root = ask(guesses, level)
        if level <= root:
            return
        level = root - 0.1 * max(root - search.lower, 0.0)


def tangents(market: Market, prices: Sequence[Array], demand: Array) -> tuple[Array, Array]:
    """For each of the prices, costs (p, m) of one unit of each row's rate, and sums (p,) that costs @ rates pass in no
    allocation: exact for the demanded rates (m,) where those spend all that the limits are worth."""
    guesses = floored(market, np.array(prices))
    found = answers(market, guesses, demand, again=True)
    left = guesses * (market.limits - found.usage)
    return found.paid, left.sum(axis=1) + found.paid @ demand


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
    search = Search(market, 0.0 if start is None else -1e4 * most, np.inf, -np.inf, 0.0)
    if start is not None:
        begun, worth = start, float(np.einsum("jm,jm,m->", value, start, market.copies))
        search.offer(worth, np.minimum(market.usage_of(begun), market.limits), lambda: begun)

    def ask(guesses: Array) -> None:
        """Try prices (p, r): every row does what is best for it by itself."""
        found = offers(market, guesses, value, floor)
        bounds = found.worth + np.einsum("pr,pr->p", guesses, market.limits - found.usage)
        best = int(bounds.argmin())
        if bounds[best] < search.bound:
            search.bound, search.best = float(bounds[best]), guesses[best]
        search.offer_each(found.worth, found.usage, found.shares, guesses)
        search.rounds += len(guesses)

    lowest = FLOOR * most / (market.limits * len(market.limits))
    known = np.maximum(np.array(prices or (lowest,)), lowest)
    ask(known)
    while not search.alone(gap):
        duals = search.mix()
        if search.closed(gap):
            break
        if search.rounds >= ROUNDS:
            raise search.failed("value")
        ask(np.maximum(search.around(duals), lowest))
    shares = search.shares()
    reached = float(np.einsum("jm,jm,m->", value, shares, market.copies))
    search.check(reached)
    best = none if search.best is None else search.best
    return Solution(
        reached, search.bound, best, shares, market.rates_of(shares), np.zeros(0), np.inf, search.rounds,
        tried=search.tried(known),
    )  # fmt: skip
