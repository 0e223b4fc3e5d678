"""Use of capacity that a policy's objective leaves over: the shortest remaining time first.

An objective such as the makespan fixes what every job must have and is indifferent about the rest, of which there is
often much. The rest goes where it ends most work soonest (over pairs: where it makes the highest normalised
throughput), without taking anything that the objective gave.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.schedule.policy.solving import Outcome, best_value
from shoal.schedule.policy.subproblem import Subproblem
from shoal.schedule.types import Array

KEPT = 1.0 - 1e-9


def shortest_first(sub: Subproblem) -> Array:
    """(n, k) the value of a unit of rate: the part of its remaining work that a job does with it, times its weight."""
    left = sub.work_left
    worth = np.where(left > 0.0, sub.weight / np.where(left > 0.0, left, 1.0), 0.0)
    return np.broadcast_to(worth, sub.market.rate.shape)


def with_spare(sub: Subproblem, outcome: Outcome, owed: Array) -> Outcome:
    """The outcome with all that is left over given out as well; rates (k,) `owed` are kept, as are the value, bound and
    prices of the objective."""
    none = np.zeros_like(sub.market.rate)
    gain = shortest_first(sub)
    if sub.beside is not None:  # with a value of its own for each job there would be millions of pairs to tell apart
        gain = np.broadcast_to(sub.gang / sub.norm, none.shape)
    floor = np.minimum(owed, outcome.rates) * KEPT
    filled = best_value(sub, gain, none, floor, start=outcome)
    rounds = outcome.facts.get("rounds", 0) + filled.facts.get("rounds", 0)
    return replace(
        outcome, shares=filled.shares, pairs=filled.pairs, rates=filled.rates, facts={**filled.facts, "rounds": rounds}
    )
