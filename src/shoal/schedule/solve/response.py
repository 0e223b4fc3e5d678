"""Response of each row by itself to given prices: the cheapest way to reach a demanded rate.

A row's ways to run are points (rate, cost), one per column, and being idle is (0, 0). Mixing them in time reaches
every point between, so the cheapest way to each rate is the lower frontier of the points, and a demand is met by the
two neighbours on the frontier that enclose it. `respond` walks that frontier (as Jarvis's march does) for all rows at
once, from its cheapest point to the right; nearly all rows are done after one or two steps, however many columns there
are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.schedule.solve.market import Market, Spread
from shoal.schedule.types import Array, Index, Mask, positions


def respond(market: Market, cost: Array, demand: Array) -> Spread:
    """The cheapest spread of each row with at least the demanded rate; `cost` is (n, m), `demand` (m,).

    Costs are positive, save where running is worth more than it costs: there a row runs even beyond its demand. A
    demand above a row's fastest rate is taken to be that rate.
    """
    second, slope = first_step(market, cost)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = demand * market.inverse.take(second * len(demand) + np.arange(len(demand)))
        if not share.min(initial=0.0) >= 0.0:
            none = ~(share >= 0.0)
            share[none] = slope[none] = 0.0
        short = share > 1.0
        if slope.min(initial=0.0) < 0.0:
            _gain(market, cost, demand, second, slope, share, short)
        spread = Spread(np.full(len(demand), -1), second, share, slope)
        _march(market.rate, cost, demand, spread, positions(short))
    return spread


def volunteer(cost: Array) -> Spread:
    """As `respond` where nothing is demanded: a row runs only where that is worth more than it costs, (n, m). Its
    slopes are not worked out."""
    second, least = cheapest(cost)
    return Spread(np.full(len(second), -1), second, (least < 0.0).astype(np.float64), least)


def cheapest(cost: Array) -> tuple[Index, Array]:
    """(m,) the column in which each row's cost (n, m) is least, and that cost: as `argmin`, which is slow on a few long
    rows."""
    best, least = np.zeros(cost.shape[1], np.intp), cost[0].copy()
    for column in range(1, len(cost)):
        np.putmask(best, cost[column] < least, column)
        np.minimum(least, cost[column], out=least)
    return best, least


def first_step(market: Market, cost: Array) -> tuple[Index, Array]:
    """The first point of the frontier after idle, and the slope to it."""
    if market.partial and not cost.all():  # where nothing is charged, a row that cannot run would make nothing of it
        cost = np.where(market.rate > 0.0, cost, 1.0)
    best = np.zeros(market.rows, np.intp)
    slope = cost[0] * market.inverse[0]
    for column in range(1, len(cost)):
        other = cost[column] * market.inverse[column]
        np.putmask(best, other < slope, column)
        np.minimum(slope, other, out=slope)
    return best, slope


def _gain(market: Market, cost: Array, demand: Array, second: Index, slope: Array, share: Array, short: Mask) -> None:
    """Where a column pays for itself, start from the one that does so most, instead of from idle; in place."""
    rows = positions(slope < 0.0)
    start = cost[:, rows].argmin(axis=0)
    second[rows], share[rows], slope[rows] = start, 1.0, 0.0
    short[rows] = market.rate[start, rows] < demand[rows]


def _march(rate: Array, cost: Array, demand: Array, spread: Spread, short: Index) -> None:
    """Move the rows that are short of their demand to the right along their frontiers, in place."""
    at = spread.second.take(short)
    while len(short):
        to, reached, rise, slope = next_edge(rate.take(short, axis=1), cost.take(short, axis=1), at)
        missing = demand.take(short) - reached
        more = slope < np.inf
        if not more.all():  # a row at its fastest stays there, with all of its time
            done = short[~more]
            spread.first[done], spread.second[done], spread.share[done] = -1, at[~more], 1.0
            short, at, to = short[more], at[more], to[more]
            missing, rise, slope = missing[more], rise[more], slope[more]
        share = missing / rise
        spread.first[short], spread.second[short] = at, to
        spread.share[short], spread.slope[short] = np.minimum(share, 1.0), slope
        further = share > 1.0
        short, at = short[further], to[further]


class Edge(NamedTuple):
    """An edge of each row's frontier: the column `to` which it leads (m,), the rate `reached` where it begins, the
    `rise` in rate along it, and its `slope`, what each unit of that costs: infinite where the frontier ends."""

    to: Index
    reached: Array
    rise: Array
    slope: Array


def next_edge(rate: Array, cost: Array, at: Index) -> Edge:
    """The edge from the columns `at` (m,) to the right, where columns have these rates and costs (n, m)."""
    own = np.arange(len(at))
    here = at * len(at) + own
    reached = rate.take(here)
    rises = rate - reached
    slopes = (cost - cost.take(here)) / rises
    np.putmask(slopes, rises <= 0.0, np.inf)
    to, slope = cheapest(slopes)
    return Edge(to, reached, rises.take(to * len(at) + own), slope)


class Frontier:
    """The frontiers of a small market's rows where a column costs `cost` (n, m), positive, for several demands.

    `respond` walks each row's frontier as far as its one demand lies, and forgets it. Here every step is taken for all
    rows at once and kept: on a small market that costs hardly more, and the next demand finds it."""

    def __init__(self, market: Market, cost: Array) -> None:
        self._market, self._cost = market, cost
        self._column, self._slope = first_step(market, cost)
        self._per_rate = market.inverse.take(self._column * market.rows + np.arange(market.rows))
        self._edges: list[Edge] = []

    def respond(self, demand: Array) -> Spread:
        """As `response.respond`."""
        first, second, slope = np.full(len(demand), -1), self._column.copy(), self._slope.copy()
        with np.errstate(divide="ignore", invalid="ignore"):
            share = demand * self._per_rate
            if not share.min(initial=0.0) >= 0.0:
                none = ~(share >= 0.0)
                share[none] = slope[none] = 0.0
            short, at, walked = share > 1.0, self._column, 0
            while short.any():
                if walked == len(self._edges):
                    self._edges.append(next_edge(self._market.rate, self._cost, at))
                edge = self._edges[walked]
                part = (demand - edge.reached) / edge.rise
                ends = short & (edge.slope == np.inf)  # a row at its fastest stays there, with all of its time
                np.putmask(first, ends, -1)
                np.putmask(share, ends, 1.0)
                short &= ~ends
                np.copyto(first, at, where=short)
                np.copyto(second, edge.to, where=short)
                np.copyto(share, np.minimum(part, 1.0), where=short)
                np.copyto(slope, edge.slope, where=short)
                short &= part > 1.0
                at, walked = edge.to, walked + 1
        return Spread(first, second, share, slope)
