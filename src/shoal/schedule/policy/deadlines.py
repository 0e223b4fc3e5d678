"""Deadlines as constraints: the rate that a job needs from now on to end in time."""

from __future__ import annotations

import numpy as np

from shoal.core import Invalid
from shoal.schedule.errors import Infeasible
from shoal.schedule.policy.solving import Outcome, best_level
from shoal.schedule.policy.subproblem import Subproblem
from shoal.schedule.types import Array

MET = 1e-7
"""A demand that is met but for this relative part counts as met."""


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


def reaching(sub: Subproblem, floor: Array) -> Outcome:
    """An allocation with rates of at least the floor (k,), which jobs need for their deadlines. Raises `Infeasible`,
    naming what stands against it, if there is none."""
    fastest = sub.market.fastest
    late = np.flatnonzero(floor > fastest * (1.0 + MET))
    if len(late) and sub.beside is None:
        worst = late[(floor / fastest)[late].argmax()]
        raise Infeasible(
            f"{len(late)} jobs cannot keep their deadline even alone: {sub.name(worst)} needs {floor[worst]:.4g} "
            f"steps/s and reaches {fastest[worst]:.4g}",
            constraints=tuple(f"deadline of job {sub.name(row)}" for row in late),
            hint="change the deadline, or add faster accelerators",
        )
    found = best_level(sub, np.zeros_like(floor), floor)
    if found.value < 1.0 - MET:
        worth = found.prices * sub.market.limits
        limits = [sub.market.names[at] for at in np.argsort(-worth) if worth[at] > MET * worth.max()]
        owed = [f"deadline of job {sub.name(row)}" for row in np.argsort(-floor * sub.gang / fastest) if floor[row] > 0]
        raise Infeasible(
            f"the deadlines need {1.0 / max(found.value, 1e-300):.3g} times what there is",
            constraints=(*limits, *owed),
            hint="add accelerators of these types, raise the quotas, or change the deadlines",
        )
    return found
