"""Deadlines as constraints: the rate that a job needs from now on to end in time."""

from __future__ import annotations

import numpy as np

from shoal.core import Invalid
from shoal.schedule.policy.subproblem import Subproblem
from shoal.schedule.types import Array

WHY = "deadline"


def needed_rates(sub: Subproblem) -> Array:
    """(k,) steps left over seconds left, zero without a deadline. Raises `Invalid` where a deadline has passed or the
    work left is not known."""
    problem = sub.problem
    deadline, left = problem.deadline[sub.free], problem.work_left[sub.free]
    due = np.isfinite(deadline)
    for wrong, what in (
        (due & np.isnan(left), "has a deadline, but the work that is left is not known"),
        (due & (deadline <= problem.now) & (left > 0.0), "has passed its deadline with work left"),
    ):
        rows = np.flatnonzero(wrong)
        if len(rows):
            raise Invalid(
                f"{what} ({len(rows)} such jobs)", where=f"job {sub.name(rows[0])}", hint="drop or move its deadline"
            )
    return np.where(due, np.nan_to_num(left) / np.maximum(deadline - problem.now, 1e-9), 0.0)
