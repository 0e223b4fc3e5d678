"""The frontiers of a small market's rows at given prices, for a caller with several demands at the same prices.

`response.respond` walks each row's frontier as far as its one demand lies, and forgets it. Here every step is taken for
all rows at once and kept: on a small market that costs hardly more, and the next demand finds it.
"""

from __future__ import annotations

import numpy as np

from shoal.schedule.solve.market import Market, Spread
from shoal.schedule.solve.response import Edge, first_step, next_edge
from shoal.schedule.types import Array


class Frontier:
    """Where a column costs `cost` (n, m), positive."""

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
