"""Whole jobs for now, so that a batch can still end about as early as it could.

Time is cut in two: a while from now, and the rest until the end. Both have the pools to themselves, and together they
must do all the work that is left; how the rest is spent is left open, so that a job may wait now if it can be caught up
with. Among all that is possible the first part is chosen for short jobs.

`whole_until` is exact: one mixed-integer program, in which each job has all of a column or nothing in the first part.
What is made large is the worth of the jobs that run now, less a price on every second by which the end is put off.
Where that program would be too large, `worth_until` solves it with parts of jobs. Its duals say what each job's
progress now is worth to the end, so that whole jobs can be chosen by the sum of both. They do not say which whole jobs
fit together: when few jobs are left there is little to choose from, and a batch that was on time for two thirds of its
run then loses half an hour.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from shoal.schedule.errors import SolverFailed
from shoal.schedule.policy.solving import best_level
from shoal.schedule.policy.subproblem import Subproblem
from shoal.schedule.solve.lp import solve_program
from shoal.schedule.types import Array, Index

WHILE_S = 360.0
"""How long a choice is taken to last."""

PAIRS = 600
"""Ways to run (jobs times columns) up to which the program is small: 0.1 s, seldom more, with 300."""

LATE = 500.0
"""What putting off the end by the whole first part costs, in worths of running one job (the mean over all ways). From
350 to 500 a batch of a hundred jobs that takes 17.1 h at least ended after 17.3 to 17.5 h, its jobs after 7.4 to 7.5 h
in the mean; with less the end is late, with more short jobs wait for it."""

NODES, GAP = 50, 1e-3
"""Branches that may be looked at, and what may be missing to the optimum. Nodes, unlike seconds, give one answer."""

LOOSER = 0.2
"""How much more the end may be put off, in parts of the while, when a program with parts of jobs is feasible and not
solved."""


@dataclass(frozen=True)
class _TwoParts:
    """The ways to run, job `row` (k,) in `column` (k,); what they use of limits (r, k) and of jobs' time (m, k); the
    part of a job's work (m, k) that is done in a second; and how long both parts of time are."""

    row: Index
    column: Index
    used: sparse.csc_matrix
    once: sparse.csc_matrix
    done: sparse.csc_matrix
    first_s: float
    later_s: float

    @classmethod
    def of(cls, sub: Subproblem) -> _TwoParts:
        market, left = sub.market, sub.work_left
        column, row = np.nonzero(market.rate)
        at, shape = np.arange(len(row)), (len(left), len(row))
        used = sparse.vstack([sparse.csc_matrix(c.load[:, column] * c.weight[row]) for c in market.constraints])
        once = sparse.csc_matrix((np.ones(len(row)), (row, at)), shape=shape)
        part = (market.rate / np.where(left > 0.0, left, np.inf))[column, row]
        done = sparse.csc_matrix((part, (row, at)), shape=shape)
        soonest_s = 1.0 / best_level(sub, np.zeros(len(left)), left).value
        first_s = min(WHILE_S, soonest_s / 2)
        return cls(row, column, used, once, done, first_s, soonest_s - first_s)


def whole_until(sub: Subproblem, worth: Array) -> Index | None:
    """(k,) the column of each job for now, or -1; None where the program is too large, or no answer was found. `worth`
    (n, k) is what each column is worth to each job."""
    market, left = sub.market, sub.work_left
    best: Index = market.rate.argmax(axis=0)
    if (worth.argmax(axis=0) == best).all() and (market.usage_of(market.whole(best)) <= market.limits).all():
        return best
    if np.count_nonzero(market.rate) > PAIRS:
        return None
    parts, jobs = _TwoParts.of(sub), len(left)
    count, used, once = len(parts.row), parts.used, parts.once
    # Unknowns: what runs now, seconds of each way later, and seconds by which the end is late.
    rows = sparse.bmat(
        [
            [used, None, None],
            [once, None, None],
            [None, used, -sparse.csc_matrix(market.limits[:, None])],
            [None, once, -sparse.csc_matrix(np.ones((jobs, 1)))],
            [-parts.first_s * parts.done, -parts.done, None],
        ],
        format="csc",
    )
    limits = np.concatenate([market.limits, np.ones(jobs)])
    gain = worth[parts.column, parts.row] / max(float(worth.max()), 1e-300)
    price = LATE * float(gain.mean()) / parts.first_s
    found = milp(
        np.concatenate([-gain, np.zeros(count), [price]]),
        constraints=LinearConstraint(
            rows, ub=np.concatenate([limits, limits * parts.later_s, (left > 0.0) * (1e-9 - 1.0)])
        ),
        integrality=np.repeat([1, 0], [count, count + 1]),
        bounds=Bounds(0.0, np.repeat([1.0, np.inf], [count, count + 1])),
        options={"mip_rel_gap": GAP, "node_limit": NODES},
    )
    if found.x is None:
        return None
    chosen = np.full(jobs, -1, np.intp)
    runs = found.x[:count] > 0.5
    chosen[parts.row[runs]] = parts.column[runs]
    return chosen


def worth_until(sub: Subproblem, worth: Array) -> tuple[Array, Array]:
    """(n, k) `worth` (n, k) with what a share of the while is worth to the end; and the shares (n, k) of the while that
    are best by both. Raises `SolverFailed`."""
    market, left, parts = sub.market, sub.work_left, _TwoParts.of(sub)
    limits = np.concatenate([market.limits, np.ones(len(left))])
    base = sparse.vstack([parts.used, parts.once])
    gain = np.concatenate([worth[parts.column, parts.row], np.zeros(len(parts.row))])
    scale = float(gain.max(initial=1e-300))
    bounds = np.concatenate([limits, limits, (left > 0.0) * (1e-7 - 1.0)])
    for extra_s in (0.0, LOOSER * parts.first_s, parts.first_s):
        later = -(parts.later_s + extra_s) * parts.done
        program = sparse.bmat([[base, None], [None, base], [-parts.first_s * parts.done, later]], format="csc")
        try:
            point, duals, _ = solve_program(gain / scale, program, bounds)
        except SolverFailed:
            continue
        shares = np.zeros_like(market.rate)
        shares[parts.column, parts.row] = point[: len(parts.row)]
        progress = duals[-len(left) :] * scale * parts.first_s * market.rate / np.where(left > 0.0, left, np.inf)
        return worth + progress, shares
    raise SolverFailed("no way was found to end in time what can end in time", jobs=len(left), seconds=parts.later_s)
