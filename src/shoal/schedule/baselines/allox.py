"""AlloX (EuroSys'20): the least mean completion time by matching jobs to places in queues.

On a column of N accelerators, a job that runs k-th from the end delays k completions by its own time. So the mean
completion time is least where jobs are matched to (column, k), N places each, at cost k * time: an assignment problem.
Those matched to run first on their accelerator start now. Running jobs stay. A column needs at most m / N positions,
so there are m * n + sum(N) places rather than Gavel's m * sum(N).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from shoal.core import Invalid
from shoal.schedule.policy.greedy import Room, by_arrival, placed
from shoal.schedule.policy.subproblem import Subproblem, subproblem_of
from shoal.schedule.types import Allocation, Array, Index, Problem

NAME = "allox"


def allox(problem: Problem, *, considered: float = 0.3) -> Allocation:
    """Needs `work_left`, and jobs of one accelerator each. Of the waiting jobs, the part `considered` that has waited
    longest is matched, or as many as there are free accelerators, if that is more."""
    if not 0.0 <= considered <= 1.0:
        raise Invalid(f"a part of {considered}", where="considered", hint="between 0 and 1")
    sub = subproblem_of(problem)
    wide = np.flatnonzero(sub.gang > 1.0)
    if len(wide):
        raise Invalid("AlloX is defined for jobs of one accelerator", where=f"job {sub.name(wide[0])}")
    room = Room(sub)
    for row in by_arrival(sub):
        at = problem.placed[sub.free[row]]
        if at >= 0 and room.fits(row)[at]:
            room.put(row, at)
    waiting = np.array([row for row in by_arrival(sub) if room.column[row] < 0], np.intp)
    free = _free(sub, room.column)
    count = min(len(waiting), max(int(free.sum()), int(considered * len(waiting))))
    if count and free.any():
        for row, column in _starting(sub, waiting[:count], free):
            if room.fits(row)[column]:
                room.put(row, column)
    return placed(sub, room.column, NAME)


def _free(sub: Subproblem, column: Index) -> Index:
    """(n,) accelerators of each column that no job has."""
    pools = sub.market.constraints[0]
    taken = np.bincount(column[column >= 0], minlength=len(sub.market.rate))
    left = pools.load.T @ (pools.limit - pools.load @ taken)
    spread = np.array([each.spread for each in sub.problem.columns])
    return np.where(spread, 0, np.floor(left + 1e-9)).astype(np.intp)


def _starting(sub: Subproblem, rows: Index, free: Index) -> list[tuple[int, int]]:
    """The jobs that run first on their accelerators, and where."""
    rate, left = sub.market.rate[:, rows], sub.work_left[rows]
    times: Array = np.where(rate > 0.0, left / np.where(rate > 0.0, rate, 1.0), np.inf)
    columns, positions = [], []
    for each in np.flatnonzero(free):
        depth = -(-len(rows) // free[each])
        columns.append(np.full(depth * free[each], each))
        positions.append(np.repeat(np.arange(1, depth + 1), free[each]))
    column, position = np.concatenate(columns), np.concatenate(positions)
    cost = times[column].T * position
    # A place where a job cannot run costs more than any matching that avoids it.
    finite = np.isfinite(cost)
    cost = np.where(finite, cost, 1.0 + cost[finite].sum() if finite.any() else 1.0)
    chosen, place = linear_sum_assignment(cost)
    first: list[tuple[int, int]] = []
    for at in np.flatnonzero(free):
        mine = np.flatnonzero((column[place] == at) & finite[chosen, place])
        ahead = mine[np.argsort(-position[place[mine]], kind="stable")][: free[at]]
        first.extend((int(rows[chosen[row]]), int(at)) for row in ahead)
    return first
