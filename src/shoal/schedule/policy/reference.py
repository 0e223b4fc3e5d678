"""Max-min fairness carried out beside the real schedule, in fractions of time: when it would have ended each job.

It begins with the jobs as they come, and gives those that it has not ended what max-min fairness gives them, whether
they have ended in the real schedule or not. So what a job that really ended early leaves is given to nobody, and each
has the end that it would have had if all had been treated alike throughout: the virtual schedule of the Fair Sojourn
Protocol (Friedman and Henderson, SIGMETRICS'03). Work is counted in seconds where a job is fastest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from shoal.core import Money, Quota, Tenant
from shoal.schedule.policy.max_min import NAME, max_min
from shoal.schedule.types import Allocation, Array, Index, Mask, Pool, Problem, positions

OVER_S = 1e-3
"""A job with less left than this has ended."""

_BY_JOB = ("rate", "gang", "weight")


@dataclass(frozen=True, eq=False)
class Reference:
    """Until `now`. Of the jobs of `fair.problem`, those that it has not ended, `needs_s` (k,) is what each needs in
    all and `left_s` (k,) what it has left; `fair` is what they are given. The jobs `ids` (m,) are there for real, in
    its rows `row` (m,), -1 where it has ended them. `number` counts how often it decided."""

    now: float
    ids: Sequence[str]
    row: Index
    needs_s: Array
    left_s: Array
    fair: Allocation
    number: int = 0

    @cached_property
    def pace(self) -> Array:
        """(k,) the part of its fastest rate that each job has."""
        found: Array = self.fair.throughput / self.fair.problem.least_pace
        return found

    @cached_property
    def crowd(self) -> float:
        """Accelerators that its jobs ask for, over all that there are."""
        problem = self.fair.problem
        return float(problem.gang.sum()) / max(float(problem.counts.sum()), 1.0)

    def left_of(self) -> Array:
        """(m,) what it has left of each job that is there."""
        return np.where(self.row >= 0, np.append(self.left_s, 0.0)[self.row], 0.0)

    def ends_s(self) -> Array:
        """(m,) in how many seconds it ends each job that is there at its present pace: zero for those that it has
        ended."""
        with np.errstate(divide="ignore"):
            takes_s = self.left_s / self.pace
        return np.where(self.row >= 0, np.append(takes_s, 0.0)[self.row], 0.0)

    def as_json(self) -> dict[str, Any]:
        told = self.fair.problem
        return {
            "now": self.now, "number": self.number, "ids": list(map(str, self.ids)), "there": self.row.tolist(),
            "needs_s": self.needs_s.tolist(), "left_s": self.left_s.tolist(), "share": self.fair.share.tolist(),
            "jobs": list(map(str, told.ids)), "pools": [asdict(pool) for pool in told.pools],
            "tenants": [asdict(tenant) for tenant in told.tenants],
            **{name: getattr(told, name).tolist() for name in (*_BY_JOB, "tenant")},
        }  # fmt: skip

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError, and `Invalid`, for what is no reference."""
        pools = [Pool(**{**pool, "price_per_hour": Money(**pool["price_per_hour"])}) for pool in found["pools"]]
        tenants = tuple(Tenant(one["name"], one["weight"], _quota(one["quota"])) for one in found["tenants"])
        jobs, ids, now = found["jobs"], tuple(map(str, found["ids"])), float(found["now"])
        given = {name: found[name] for name in (*_BY_JOB, "tenant") if name != "rate"}
        wide = (len(jobs), sum(1 + (pool.unconsolidated is not None) for pool in pools))
        rate = np.array(found["rate"], np.float64).reshape(wide)
        problem = Problem.columnar(pools, rate, now=now, ids=list(map(str, jobs)), tenants=tenants, **given)
        fair = Allocation(problem, NAME, np.array(found["share"], np.float64).reshape(wide), np.zeros(len(pools)))
        row = np.array(found["there"], np.intp).reshape(len(ids))
        needs_s, left_s = (np.array(found[name], np.float64).reshape(len(jobs)) for name in ("needs_s", "left_s"))
        if not ((row >= -1) & (row < len(jobs))).all() or not np.isfinite([now, *fair.share.flat]).all():
            raise ValueError("a number of the reference is out of range")
        return cls(now, ids, row, needs_s, left_s, fair, int(found["number"]))


def _quota(found: Mapping[str, Any]) -> Quota:
    return Quota(**{**found, "by_type": tuple((kind, most) for kind, most in found["by_type"])})


def advanced(before: Reference | None, problem: Problem, worked_s: Array) -> Reference:
    """The reference at the time of the problem. `worked_s` (m,) is the work that each job has really done."""
    needs_s = worked_s + problem.work_left / problem.least_pace
    if before is None:
        row = np.arange(problem.jobs)
        return Reference(problem.now, problem.ids, row, needs_s, needs_s - worked_s, max_min(problem))
    told = before.fair.problem
    left_s = np.maximum(before.left_s - max(problem.now - before.now, 0.0) * before.pace, 0.0)
    same = before.ids is problem.ids or before.ids == problem.ids
    row = before.row if same else _rows(before, problem)
    here = positions(row >= 0)
    mine = row[here]
    changed = needs_s[here] - before.needs_s[mine]
    if changed.any():  # what is believed of a length may change
        left_s[mine] = np.maximum(left_s[mine] + np.where(np.isfinite(changed), changed, 0.0), 0.0)
    needed_s = before.needs_s.copy()
    needed_s[mine] = needs_s[here]
    goes_on = left_s > OVER_S
    alike = told.pools == problem.pools and told.tenants == problem.tenants
    if alike and goes_on.all() and (row > _NEW).all():
        return replace(before, now=problem.now, ids=problem.ids, row=row, needs_s=needed_s, left_s=left_s)
    # Jobs that are gone for real stay as they were; those that are there are as the problem has them.
    gone = goes_on.copy()
    gone[mine] = False
    gone &= bool(told.columns == problem.columns) & _known_tenant(told, problem)
    at = np.maximum(row, -1)
    there = positions((row == _NEW) | np.append(goes_on, False)[at])
    old = row[there] >= 0
    fair = max_min(_joined(told, positions(gone), problem, there), previous=before.fair)
    now_in = np.full(problem.jobs, -1, np.intp)
    now_in[there] = np.count_nonzero(gone) + np.arange(len(there))
    began_s = np.maximum(needs_s - worked_s, 0.0)
    left = np.where(old, np.append(left_s, 0.0)[at[there]], began_s[there])
    return Reference(problem.now, problem.ids, now_in, np.concatenate([needed_s[gone], needs_s[there]]),
                     np.concatenate([left_s[gone], left]), fair, before.number + 1)  # fmt: skip


_NEW = -2


def _rows(before: Reference, problem: Problem) -> Index:
    """(m,) where each job of the problem is in the reference: -1 if it was ended there, `_NEW` if it has just come."""
    of = dict(zip(before.ids, before.row.tolist(), strict=True))
    return np.array([of.get(name, _NEW) for name in problem.ids], np.intp)


def _known_tenant(told: Problem, problem: Problem) -> Mask:
    names = {tenant.name for tenant in problem.tenants}
    return np.array([tenant.name in names for tenant in told.tenants], np.bool_)[told.tenant]


def _joined(told: Problem, gone: Index, problem: Problem, there: Index) -> Problem:
    """The problem of jobs that are gone, of an earlier problem, and of those that are there."""
    onto = {tenant.name: at for at, tenant in enumerate(problem.tenants)}
    tenant = np.array([onto[told.tenants[at].name] for at in told.tenant[gone].tolist()], np.intp)
    ids = [told.ids[row] for row in gone.tolist()] + [problem.ids[row] for row in there.tolist()]
    if not len(gone):  # of other columns, maybe
        given = {name: getattr(problem, name)[there] for name in _BY_JOB}
    else:
        given = {name: np.concatenate([getattr(told, name)[gone], getattr(problem, name)[there]]) for name in _BY_JOB}
    tenants = np.concatenate([tenant, problem.tenant[there]])
    return Problem.columnar(problem.pools, given.pop("rate"), ids=ids, tenant=tenants, tenants=problem.tenants, **given)
