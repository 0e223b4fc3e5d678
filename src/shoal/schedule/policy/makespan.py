"""Least makespan: all work that is left ends as early as possible (Gavel, section 4.2).

One linear program, where Gavel bisects: the makespan is one over the highest level t at which every job has the rate
t * (steps left). What that leaves over ends short jobs earlier.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.schedule.policy.finish import allocation, evened, nothing
from shoal.schedule.policy.frame import frame_of
from shoal.schedule.policy.reference import reference_rates
from shoal.schedule.policy.solving import best_level
from shoal.schedule.policy.spare import with_spare
from shoal.schedule.types import Allocation, Problem

NAME = "makespan"
OBJECTIVE = "seconds until all work is done"


def makespan(
    problem: Problem, *, agnostic: bool = False, reference: str | None = None, space_sharing: bool = False
) -> Allocation:
    """Needs `work_left`. The agnostic form takes every type to be as fast as the `reference` type is for the job."""
    rate = reference_rates(problem, reference, space_sharing=space_sharing) if agnostic else None
    frame = frame_of(problem, rate=rate, space_sharing=space_sharing)
    if not len(frame.free) or not frame.work_left.any():
        return allocation(frame, nothing(frame), policy=NAME)
    none = np.zeros(len(frame.free))
    fastest = best_level(frame, none, frame.work_left)
    outcome = with_spare(frame, fastest, fastest.value * frame.work_left)
    if agnostic:
        outcome = evened(frame, outcome)
    # One more accelerator ends everything so many seconds earlier.
    seconds = replace(
        outcome, value=1.0 / fastest.value, bound=1.0 / fastest.bound, prices=fastest.prices / fastest.value**2
    )
    return allocation(frame, seconds, policy=NAME, objective=OBJECTIVE, sense="min")
