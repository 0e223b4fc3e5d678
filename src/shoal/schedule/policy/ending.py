"""Whole jobs for now, so that a batch can still end about as early as it could: the exact form of `horizon.py`.

Prices say what a job's progress is worth to the end, but not which whole jobs fit together, and when few jobs are left
there is little to choose from: a batch that was on time for two thirds of its run then loses half an hour. Here the two
parts of time are one mixed-integer program: in the first, a round, each job has all of a column or nothing; in the rest
jobs share as they like. What is made large is the worth of the jobs that run now, less a price on every second by which
the end is put off.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from shoal.schedule.policy.solving import best_level
from shoal.schedule.policy.subproblem import Subproblem
from shoal.schedule.types import Array, Index

PAIRS = 600
"""Ways to run (jobs times columns) up to which the program is small: 0.1 s, seldom more, with 300."""

LATE = 500.0
"""What putting off the end by the whole first part costs, in worths of running one job (the mean over all ways). From
350 to 500 a batch of a hundred jobs that takes 17.1 h at least ended after 17.3 to 17.5 h, its jobs after 7.4 to 7.5 h
in the mean; with less the end is late, with more short jobs wait for it."""

NODES, GAP = 50, 1e-3
"""Branches that may be looked at, and what may be missing to the optimum. Nodes, unlike seconds, give one answer."""


def whole_until(sub: Subproblem, worth: Array, *, while_s: float, drift: float) -> Index | None:
    """(k,) the column of each job for now, or -1; None where the program is too large, or no answer was found. `worth`
    (n, k) is what each column is worth to each job; `drift` seconds of each second of the while may be lost for
    nothing."""
    market, left = sub.market, sub.work_left
    column, row = np.nonzero(market.rate)
    count, jobs = len(row), len(left)
    best: Index = market.rate.argmax(axis=0)
    if (worth.argmax(axis=0) == best).all() and (market.usage_of(_all_of(best, market.rate)) <= market.limits).all():
        return best  # everybody at once
    if count > PAIRS:
        return None
    soonest_s = 1.0 / best_level(sub, np.zeros(jobs), left).value
    first_s = min(while_s, soonest_s / 2)
    later_s = soonest_s - first_s * (1.0 - drift)
    used = sparse.vstack([sparse.csc_matrix(each.load[:, column] * each.weight[row]) for each in market.constraints])
    once = sparse.csc_matrix((np.ones(count), (row, np.arange(count))), shape=(jobs, count))
    part = (market.rate / np.where(left > 0.0, left, np.inf))[column, row]  # of the work that is left, done in a second
    done = sparse.csc_matrix((part, (row, np.arange(count))), shape=(jobs, count))
    # Unknowns: what runs now, seconds of each way later, and seconds by which the end is late.
    rows = sparse.bmat(
        [
            [used, None, None],
            [once, None, None],
            [None, used, -sparse.csc_matrix(market.limits[:, None])],
            [None, once, -sparse.csc_matrix(np.ones((jobs, 1)))],
            [-first_s * done, -done, None],
        ],
        format="csc",
    )
    limits = np.concatenate(
        [market.limits, np.ones(jobs), market.limits * later_s, np.full(jobs, later_s), (left > 0.0) * (1e-9 - 1.0)]
    )
    gain = worth[column, row] / max(float(worth.max()), 1e-300)
    price = LATE * float(gain.mean()) / first_s
    found = milp(
        np.concatenate([-gain, np.zeros(count), [price]]),
        constraints=LinearConstraint(rows, ub=limits),
        integrality=np.repeat([1, 0], [count, count + 1]),
        bounds=Bounds(0.0, np.repeat([1.0, np.inf], [count, count + 1])),
        options={"mip_rel_gap": GAP, "node_limit": NODES},
    )
    if found.x is None:
        return None
    chosen = np.full(jobs, -1, np.intp)
    runs = found.x[:count] > 0.5
    chosen[row[runs]] = column[runs]
    return chosen


def _all_of(column: Index, rate: Array) -> Array:
    shares = np.zeros_like(rate)
    shares[column, np.arange(len(column))] = 1.0
    return shares
