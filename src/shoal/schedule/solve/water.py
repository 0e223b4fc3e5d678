"""Water filling: raise all levels together, freeze what can rise no more, go on with the rest. Exact, without integers.

Gavel finds the jobs that are stuck with a mixed-integer program; here the shadow prices say it. At the highest level
the rows cost together all that the used-up limits are worth, and none can have its rate for less, so from then on
nothing of those is left: a row can only rise in columns that are free for it (`Solution.reach`). Each freeze closes at
least one limit, so there are no more freezes than limits, however many rows. Rows that become full on the way are no
event either: how fast each row rises between two freezes is known in closed form (`flow.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

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


Level = Callable[..., Solution]
"""Solves for the best level, as `exact.best_level` does for a market."""

Tangents = Callable[[Prices, Array], tuple[Array, Array]]
"""For some prices and demanded rates (m,): costs (p, m) of each row's rate, and sums (p,) that costs @ rates cannot
pass, as `prices.tangents` finds them for a market."""


@dataclass(frozen=True)
class Filled:
    """The lexicographic optimum: the last solution; the best lowest level, with its bound; the first prices that there
    were; how many freezes and rounds of prices it took; and for each rise the prices worth trying first in
    a like problem."""

    solution: Solution
    level: float
    bound: float
    prices: Array
    freezes: int
    rounds: int
    tried: Tried = ()


def water_fill(flow: Flow, copies: Array, solve: Level, known: Tried = (), tangents: Tangents | None = None) -> Filled:
    """Fill until every row is frozen or full. `flow` is used up; `copies` (m,) are the rows' multiplicities; `known` is
    what the filling of a like problem tried, of use only with `tangents`."""
    if not flow.live:
        raise SolverFailed("there is nothing to fill")
    if tangents is None:
        known = ()
    rise = partial(_rise, flow, copies, solve, tangents)
    guess = known[0] if known else ()
    risen = rise(None, guess)
    tried = [risen.tried]
    first, prices, freezes, rounds = risen, risen.solution.prices, 0, 0
    while True:
        solution, freezes, rounds = risen.solution, freezes + 1, rounds + risen.rounds
        prices = prices if prices.any() else solution.prices
        live, costs = flow.live, copies * solution.slope * flow.rising(risen.level)
        flow.freeze(risen.level, solution.reach, solution.rates)
        stuck = flow.live < live
        if not stuck and not guess:  # at a kink prices may leave open which of several rows is stuck: the dearest is
            flow.freeze(risen.level, np.where(costs >= costs.max(), 0.0, np.inf), solution.rates)
        if not flow.live:
            return Filled(solution, first.lowest, first.bound, prices, freezes, rounds, tuple(tried))
        # Where known prices leave it open, the next rise goes by prices that are found for it.
        guess = known[len(tried)] if stuck and len(known) > len(tried) else ()
        risen = rise(solution, guess)
        tried.append(risen.tried)


class _Risen(NamedTuple):
    """The level at which the next rows are to be frozen, what is had there, and the rounds of prices that it took;
    how high the lowest row could be, and the bound on that; the prices tried."""

    level: float
    solution: Solution
    rounds: int
    lowest: float
    bound: float
    tried: Prices


def _rise(
    flow: Flow, copies: Array, solve: Level, tangents: Tangents | None, before: Solution | None, guess: Prices
) -> _Risen:
    """Go up to where prices bite or everything is full."""
    now = flow.level
    if guess and tangents is not None:
        rounds, level = _down(flow, tangents, guess)
        lowest = bound = min(level, flow.next_top())
        gap, start = GAP, 1.0
    else:
        if before is None:
            solution = solve(flow.rates, flow.rising(now))
        else:
            held = np.minimum(flow.rates, before.rates) * KEPT
            solution = solve(held, flow.rising(now), start=before.shares, guess=before.tried, scale=now)
        rounds, lowest, bound = solution.rounds, now + solution.value, now + solution.bound
        if lowest < flow.next_top() * (1.0 - EXACT):
            return _Risen(lowest, solution, rounds, lowest, bound, solution.tried)
        level = min(flow.end, flow.highest(copies * solution.slope, solution.room))
        gap, start, guess = 1e-2, None, solution.tried
    # Rows become full on the way. At any level above the answer some prices show that what is demanded costs too much,
    # and how far down to go at least; this ends from above, like Newton's method on a convex function.
    for _ in range(STEPS):
        demand = flow.demand(level)
        solution = solve(np.zeros_like(demand), demand, guess=guess, gap=gap, least=1.0 - ROUGH, at=start)
        rounds, guess = rounds + solution.rounds, solution.tried
        if solution.value >= 1.0 - EXACT:
            return _Risen(level, solution, rounds, min(lowest, level), min(bound, level), solution.tried)
        if solution.bound < 1.0:
            level = min(level, flow.highest(copies * solution.slope, solution.room))
        elif gap <= GAP:
            break  # the same again would be found again
        gap = GAP if solution.bound >= 1.0 else min(gap, max(GAP, 0.3 * (1.0 - solution.value)))
    if solution.value < 1.0 - ROUGH:
        raise SolverFailed("water filling found no level", level=level, reached=solution.value, steps=STEPS)
    return _Risen(level, solution, rounds, min(lowest, level), min(bound, level), solution.tried)


def _down(flow: Flow, tangents: Tangents, guess: Prices) -> tuple[int, float]:
    """How many prices were tried, and the highest level that they allow."""
    level, rounds = flow.end, 0
    for _ in range(STEPS):
        above, demand = level, flow.demand(level)
        costs, most = tangents(guess, demand)
        rounds += len(guess)
        over = costs @ demand - most
        while (worst := int(over.argmax())) >= 0 and over[worst] > EXACT * most[worst]:
            level = flow.highest(costs[worst], float(most[worst]), at_most=level)
            over = np.where(np.arange(len(over)) == worst, 0.0, costs @ flow.demand(level) - most)
        if level >= above * (1.0 - GAP):
            break
    return rounds, level
