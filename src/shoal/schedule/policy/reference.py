"""Max-min fairness carried out beside the real schedule, in fractions of time: when it would have ended each job.

It begins with the jobs that come, and gives each what max-min fairness gives those that it has not ended yet, whether
they have ended in the real schedule or not. So a job that ended early for real leaves its part to nobody, and the end
of another is the one that it would have had if all had been treated alike throughout (the virtual schedule of the Fair
Sojourn Protocol; Friedman and Henderson, SIGMETRICS'03). Work is counted in seconds where a job is fastest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from shoal.core import Invalid
from shoal.schedule.policy.max_min import max_min
from shoal.schedule.types import Allocation, Array, Problem, positions

OVER_S = 1e-3
"""A job with less left than this has ended."""


@dataclass(frozen=True, eq=False)
class Reference:
    """Until `now`. `left_s` (k,) is what each job of `fair.problem` has left and `needs_s` (k,) what it needed in all,
    `fair` what they are given. `ended` are the jobs that it has ended and that are still there; `number` counts how
    often it decided."""

    now: float
    needs_s: Array
    left_s: Array
    fair: Allocation
    ended: frozenset[str] = frozenset()
    number: int = 0

    @property
    def pace(self) -> Array:
        """(k,) the part of its fastest rate that each job has."""
        problem = self.fair.problem
        found: Array = self.fair.throughput / problem.least_pace
        return found

    def ends_s(self, problem: Problem) -> Array:
        """(m,) in how many seconds it ends each job of the problem, if none comes: zero for those that it has ended."""
        with np.errstate(divide="ignore"):
            takes_s = self.left_s / self.pace
        of = dict(zip(self.fair.problem.ids, takes_s.tolist(), strict=True))
        return np.array([of.get(name, 0.0) for name in problem.ids])


def advanced(before: Reference | None, problem: Problem, worked_s: Array) -> Reference:
    """The reference at the time of the problem. `worked_s` (m,) is the work that each job has really done."""
    needs_s = worked_s + problem.work_left / problem.least_pace
    if before is None:
        return Reference(problem.now, needs_s, needs_s - worked_s, max_min(problem))
    told, old = before.fair.problem, before
    ran_s = max(problem.now - old.now, 0.0)
    left_s = np.maximum(old.left_s - ran_s * old.pace, 0.0)
    row_of = {name: row for row, name in enumerate(told.ids)}
    rows = np.array([row_of.get(name, -1) for name in problem.ids], np.intp)
    known = positions(rows >= 0)
    needed_s = old.needs_s.copy()
    # What is believed of a length may have changed.
    left_s[rows[known]] = np.maximum(left_s[rows[known]] + needs_s[known] - needed_s[rows[known]], 0.0)
    needed_s[rows[known]] = needs_s[known]
    stays = positions(left_s > OVER_S)
    over = frozenset(told.ids[row] for row in positions(left_s <= OVER_S).tolist())
    new = positions(np.array([row < 0 and name not in old.ended for row, name in zip(rows.tolist(), problem.ids, strict=True)], np.bool_))
    if len(stays) == len(left_s) and not len(new):
        return replace(old, now=problem.now, left_s=left_s, needs_s=needed_s)
    ended = (old.ended | over) & frozenset(problem.ids)
    needs, left = needed_s[stays], left_s[stays]
    joined = joined_of(told, stays, problem, new)
    fair = max_min(joined, previous=old.fair)
    new_s = needs_s[new]
    return Reference(problem.now, np.concatenate([needs, new_s]), np.concatenate([left, new_s - worked_s[new]]), fair, ended, old.number + 1)


_BY_JOB = ("rate", "gang", "weight", "tenant")


def joined_of(told: Problem, stays: Any, problem: Problem, new: Any) -> Problem:
    ids = [told.ids[row] for row in stays.tolist()] + [problem.ids[row] for row in new.tolist()]
    given = {name: np.concatenate([getattr(told, name)[stays], getattr(problem, name)[new]]) for name in _BY_JOB}
    return Problem.columnar(problem.pools, given.pop("rate"), now=problem.now, ids=ids, tenants=problem.tenants, **given)
