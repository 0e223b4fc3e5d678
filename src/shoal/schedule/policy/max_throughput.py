"""Most throughput in sum, with deadlines kept on request."""

from __future__ import annotations

import numpy as np

from shoal.schedule.policy.deadlines import needed_rates, reaching
from shoal.schedule.policy.finish import allocation, nothing
from shoal.schedule.policy.solving import best_value
from shoal.schedule.policy.subproblem import subproblem_of
from shoal.schedule.types import Allocation, Problem

NAME = "max-throughput"


def max_throughput(
    problem: Problem, *, normalised: bool = False, deadlines: bool = False, space_sharing: bool = False
) -> Allocation:
    """The sum of steps per second, as Gavel has it; or `normalised`, of each job's rate over that in a proportional
    share, times its weight, so that models with short steps do not win by that. With `deadlines`, jobs that have one
    keep it; raises `Infeasible` where they cannot all."""
    sub = subproblem_of(problem, space_sharing=space_sharing)
    if not len(sub.free):
        return allocation(sub, nothing(sub), policy=NAME)
    unit = sub.weight * sub.gang / sub.norm if normalised else np.ones(len(sub.free))
    none = np.zeros_like(sub.market.rate)
    owed = needed_rates(sub) if deadlines else none[0]
    start = reaching(sub, owed) if owed.any() else None
    outcome = best_value(sub, np.broadcast_to(unit, none.shape), none, owed * (1.0 - 1e-9), start=start)
    objective = "sum of normalised throughputs by weight" if normalised else "sum of throughputs, steps/s"
    return allocation(sub, outcome, policy=NAME, objective=objective)
