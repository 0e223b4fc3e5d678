"""Least makespan: all work that is left ends as early as possible (Gavel, section 4.2).

One linear program, where Gavel bisects: the makespan is one over the highest level t at which every job has the rate
t * (steps left). What that leaves over ends short jobs earlier.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.core import Invalid
from shoal.schedule.policy.agnostic import evened, reference_rates
from shoal.schedule.policy.finish import allocation, nothing
from shoal.schedule.policy.solving import best_level
from shoal.schedule.policy.spare import with_spare
from shoal.schedule.policy.subproblem import subproblem_of
from shoal.schedule.types import Allocation, Problem

NAME = "makespan"
OBJECTIVE = "seconds until all work is done"


def makespan(
    problem: Problem,
    *,
    agnostic: bool = False,
    space_sharing: bool = False,
    central: bool = False,
) -> Allocation:
    """Needs `work_left`. The agnostic form takes every type to be as fast as the one on which jobs are fastest in sum.
    `central` ends when Gavel's bisection would (up to a twentieth later), and shares out as its solver does (see
    `baselines/gavel/centre.py`)."""
    if central and space_sharing:
        raise Invalid("the central form has no space sharing", where=NAME)
    rate = reference_rates(problem) if agnostic else None
    sub = subproblem_of(problem, rate=rate, space_sharing=space_sharing)
    if not len(sub.free) or not sub.work_left.any():
        return allocation(sub, nothing(sub), policy=NAME)
    none = np.zeros(len(sub.free))
    fastest = best_level(sub, none, sub.work_left)
    if central:
        from shoal.schedule.baselines.gavel.centre import reaching

        seconds_left = _bisected(1.0 / fastest.value)
        found = replace(reaching(sub, sub.work_left / seconds_left), value=seconds_left, bound=1.0 / fastest.bound)
        return allocation(sub, found, policy=NAME, objective=OBJECTIVE, sense="min")
    outcome = with_spare(sub, fastest, fastest.value * sub.work_left)
    if agnostic:
        outcome = evened(sub, outcome)
    # One more accelerator ends everything this number of seconds earlier.
    seconds = replace(
        outcome, value=1.0 / fastest.value, bound=1.0 / fastest.bound, prices=fastest.prices / fastest.value**2
    )
    return allocation(sub, seconds, policy=NAME, objective=OBJECTIVE, sense="min")


def _bisected(least_s: float) -> float:
    """What Gavel's bisection finds where the least makespan is this: between 100 s and a million to begin with, and
    ten times as far each time that this is too little, until it knows it within a twentieth."""
    low, high, most = 100.0, 1e6, 1e6
    found = 0.0
    while not found:
        while 1.05 * low < high:
            middle = (low + high) / 2.0
            if middle >= least_s:
                found = high = middle
            else:
                low = middle
        low, high, most = most, most * 10.0, most * 10.0
    return found
