"""What running a job now is worth if all present work shall end about as early as it can.

Time is cut in two: a while from now, and the rest until the end. Both have the pools to themselves, and together they
must do all the work that is left; how the rest is spent is left open, so that a job may wait now if it can be caught up
with. Among all that is possible the first part is chosen for short jobs. The duals say what each job's progress now is
worth to the end, so that whole jobs can be chosen by the sum of both.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from shoal.schedule.errors import SolverFailed
from shoal.schedule.policy.solving import best_level
from shoal.schedule.policy.subproblem import Subproblem
from shoal.schedule.solve.lp import solve_program
from shoal.schedule.types import Array

LOOSER = 0.2
"""How much more the end may be put off, in parts of the while, when a program that is feasible is not solved."""


def worth_until(sub: Subproblem, worth: Array, *, while_s: float, drift: float) -> tuple[Array, Array]:
    """(n, k) `worth` (n, k) with what a share of the while is worth to the end, which may be put off by `drift` seconds
    for each second of the while; and the shares (n, k) of the while that are best by both."""
    left = sub.work_left
    soonest_s = 1.0 / best_level(sub, np.zeros(len(left)), left).value
    first_s = min(while_s, soonest_s / 2)
    shares, progress = _program(sub, worth, first_s, soonest_s - first_s * (1.0 - drift))
    return worth + progress, shares


def _program(sub: Subproblem, worth: Array, first_s: float, later_s: float) -> tuple[Array, Array]:
    """(n, k) the shares of the first part, and (n, k) what a share of it is worth to the end."""
    market, left = sub.market, sub.work_left
    column, row = np.nonzero(market.rate)
    at = np.arange(len(row))
    constraints = sparse.vstack(
        [sparse.csc_matrix(each.load[:, column] * each.weight[row]) for each in market.constraints]
    )
    time = sparse.csc_matrix((np.ones(len(row)), (row, at)), shape=(len(left), len(row)))
    part = (market.rate / np.where(left > 0.0, left, np.inf))[column, row]  # of the work that is left, done in a second
    done = sparse.csc_matrix((part, (row, at)), shape=(len(left), len(row)))
    limits = np.concatenate([market.limits, np.ones(len(left))])
    base = sparse.vstack([constraints, time])
    gain = np.concatenate([worth[column, row], np.zeros(len(row))])
    scale = float(gain.max(initial=1e-300))
    bounds = np.concatenate([limits, limits, (left > 0.0) * (1e-7 - 1.0)])
    for extra_s in (0.0, LOOSER * first_s, first_s):
        later = -(later_s + extra_s) * done
        program = sparse.bmat([[base, None], [None, base], [-first_s * done, later]], format="csc")
        try:
            point, duals, _ = solve_program(gain / scale, program, bounds)
        except SolverFailed:
            continue
        shares = np.zeros_like(market.rate)
        shares[column, row] = point[: len(row)]
        return shares, duals[-len(left) :] * scale * first_s * market.rate / np.where(left > 0.0, left, np.inf)
    raise SolverFailed("no way was found to end in time what can end in time", jobs=len(left), seconds=later_s)
