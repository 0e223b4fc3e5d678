"""Least makespan: all work that is left ends as early as possible (Gavel, section 4.2).

One linear program, where Gavel bisects: the makespan is one over the highest level t at which every job has the rate
t * (steps left). What that leaves over ends short jobs earlier.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.core import Invalid
from shoal.schedule.policy.centre import reaching
from shoal.schedule.policy.finish import allocation, evened, nothing
from shoal.schedule.policy.frame import frame_of
from shoal.schedule.policy.reference import reference_rates
from shoal.schedule.policy.solving import best_level
from shoal.schedule.policy.spare import with_spare
from shoal.schedule.types import Allocation, Problem

NAME = "makespan"
OBJECTIVE = "seconds until all work is done"


def makespan(
    problem: Problem,
    *,
    agnostic: bool = False,
    reference: str | None = None,
    space_sharing: bool = False,
    central: bool = False,
) -> Allocation:
    """Needs `work_left`. The agnostic form takes every type to be as fast as the `reference` type is for the job.
    `central` ends when Gavel's bisection would (up to a twentieth later), and shares out as its solver does (see
    `centre.py`)."""
    if central and space_sharing:
        raise Invalid("the central form has no space sharing", where=NAME)
    rate = reference_rates(problem, reference, space_sharing=space_sharing) if agnostic else None
    frame = frame_of(problem, rate=rate, space_sharing=space_sharing)
    if not len(frame.free) or not frame.work_left.any():
        return allocation(frame, nothing(frame), policy=NAME)
    none = np.zeros(len(frame.free))
    fastest = best_level(frame, none, frame.work_left)
    if central:
        seconds_left = _bisected(1.0 / fastest.value)
        found = replace(reaching(frame, frame.work_left / seconds_left), value=seconds_left, bound=1.0 / fastest.bound)
        return allocation(frame, found, policy=NAME, objective=OBJECTIVE, sense="min")
    outcome = with_spare(frame, fastest, fastest.value * frame.work_left)
    if agnostic:
        outcome = evened(frame, outcome)
    # One more accelerator ends everything so many seconds earlier.
    seconds = replace(
        outcome, value=1.0 / fastest.value, bound=1.0 / fastest.bound, prices=fastest.prices / fastest.value**2
    )
    return allocation(frame, seconds, policy=NAME, objective=OBJECTIVE, sense="min")


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
