"""Water filling: raise all levels together, freeze what can rise no more, go on with the rest. Exact, without integers.

Gavel finds the jobs that are stuck with a mixed-integer program; here the shadow prices say it. At the highest level
the rows cost together all that the used-up limits are worth, and none can have its rate for less, so from then on
nothing of those is left: a row can only rise in columns that are free for it (`Solution.reach`). Each freeze closes at
least one limit, so there are no more freezes than limits, however many rows. Rows that become full on the way are no
event either: how fast each row rises between two freezes is known in closed form (`flow.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from shoal.schedule.errors import SolverFailed
from shoal.schedule.solve.flow import Flow
from shoal.schedule.solve.search import GAP, Solution
from shoal.schedule.types import Array, Prices, Tried

EXACT = 1e-8
"""A demand met but for this relative part counts as met."""

ROUGH = 1e-6
"""... and but for this part, where rounding allows no better."""

STEPS = 60

KEPT = 1.0 - 1e-9
"""The part of granted rates that later solves must keep: rounding then cannot make them contradict each other."""


class Level(Protocol):
    """Solves for the best level, as `exact.best_level` does for a market."""

    def __call__(
        self,
        floor: Array,
        per_level: Array,
        *,
        start: Array | None = None,
        guess: tuple[Array, ...] = (),
        gap: float = GAP,
        scale: float = 0.0,
        least: float = -math.inf,
    ) -> Solution: ...


@dataclass(frozen=True)
class Filled:
    """The lexicographic optimum: the last solution; the best lowest level, with its bound; the first prices that there
    were; how many freezes and rounds of prices it took; and for each rise the prices worth trying first in
    a like problem, at its start and at its end."""

    solution: Solution
    level: float
    bound: float
    prices: Array
    freezes: int
    rounds: int
    tried: Tried = ()


def water_fill(flow: Flow, copies: Array, solve: Level, known: Tried = ()) -> Filled:
    """Fill until every row is frozen or full. `flow` is used up; `copies` (m,) are the rows' multiplicities; `known` is
    what the filling of a like problem tried."""
    if not flow.live:
        raise SolverFailed("there is nothing to fill")
    risen = _rise(flow, copies, solve, None, known[:1])
    tried = [risen.tried]
    first, prices, freezes, rounds = risen, risen.solution.prices, 0, 0
    while True:
        solution, freezes, rounds = risen.solution, freezes + 1, rounds + risen.rounds
        prices = prices if prices.any() else solution.prices
        live, costs = flow.live, copies * solution.slope * flow.rising(risen.level)
        flow.freeze(risen.level, solution.reach, solution.rates)
        if flow.live == live:  # at a kink the prices may leave open which of several rows is stuck: the dearest is
            flow.freeze(risen.level, np.where(costs >= costs.max(), 0.0, np.inf), solution.rates)
        if not flow.live:
            return Filled(solution, first.lowest, first.bound, prices, freezes, rounds, tuple(tried))
        risen = _rise(flow, copies, solve, solution, known[len(tried) : len(tried) + 1])
        tried.append(risen.tried)


class _Risen(NamedTuple):
    """The level at which the next rows are to be frozen, what is had there, and the rounds of prices that it took;
    how high the lowest row could be, and the bound on that; the prices tried."""

    level: float
    solution: Solution
    rounds: int
    lowest: float
    bound: float
    tried: tuple[Prices, Prices]


def _rise(flow: Flow, copies: Array, solve: Level, before: Solution | None, known: Tried) -> _Risen:
    """Go up to where prices bite or everything is full."""
    begin, end = known[0] if known else ((), ())
    now = flow.level
    if before is None:
        solution = solve(flow.rates, flow.rising(now), guess=begin)
    else:
        held = np.minimum(flow.rates, before.rates) * KEPT
        solution = solve(held, flow.rising(now), start=before.shares, guess=begin or before.tried, scale=now)
    rounds, lowest, bound = solution.rounds, now + solution.value, now + solution.bound
    if lowest < flow.next_top() * (1.0 - EXACT):
        return _Risen(lowest, solution, rounds, lowest, bound, (solution.tried, ()))
    # Rows become full on the way. At any level above the answer some prices show that what is demanded costs too much,
    # and how far down to go at least; this ends from above, like Newton's method on a convex function.
    level = min(flow.end, flow.highest(copies * solution.slope, solution.room))
    gap, first, guess = 1e-2, solution.tried, end or solution.tried
    for _ in range(STEPS):
        demand = flow.demand(level)
        solution = solve(np.zeros_like(demand), demand, guess=guess, gap=gap, least=1.0 - ROUGH)
        rounds, guess = rounds + solution.rounds, solution.tried
        if solution.value >= 1.0 - EXACT:
            return _Risen(level, solution, rounds, lowest, bound, (first, solution.tried))
        if solution.bound < 1.0:
            level = min(level, flow.highest(copies * solution.slope, solution.room))
        gap = GAP if solution.bound >= 1.0 else min(gap, max(GAP, 0.3 * (1.0 - solution.value)))
    if solution.value < 1.0 - ROUGH:
        raise SolverFailed("water filling found no level", level=level, reached=solution.value, steps=STEPS)
    return _Risen(level, solution, rounds, lowest, bound, (first, solution.tried))
