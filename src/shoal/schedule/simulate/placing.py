"""Simulated placing: what becomes free between two rounds is given out at once, in the order of the last round.

First the jobs of the round that have not come to run yet, then those with a share of a free type, then any; as
`live.placing` does with nodes. Places that are reserved for a gang stay free.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.schedule.loop import Decided
from shoal.schedule.rounds.filling import Entries, Filling
from shoal.schedule.types import Array, Index, Mask, Problem, positions


class Given(NamedTuple):
    """Who starts: rows (k,) of the problem, columns (k,), accelerators (k,)."""

    rows: Index
    columns: Index
    accelerators: Index


def free_places(problem: Problem, filling: Filling, last: Decided | None, before: Index) -> Given:
    """What the jobs of `problem`, all of which wait, are given of what is left in `filling`. `before` (k,) are their
    rows when the last round was decided, or -1."""
    order, target, reserved, share = _as_decided(problem, last, before)
    planned = order[target[order] >= 0]
    filling.fill(_entries(planned, target[planned], problem.gang[planned]))
    for row in planned[reserved[planned]].tolist():
        if filling.column[row] < 0:
            filling.left[int(problem.pool_of[target[row]])] = 0
    for ways in (problem.possible & (share > 0.0), problem.possible):
        _spare(problem, filling, order, ways, last)
    column, need = np.array(filling.column, np.intp), np.array(filling.need, np.intp)
    rows = positions(column >= 0)
    return Given(rows, column[rows], need[rows])


def _entries(rows: Index, columns: Index, need: Index) -> Entries:
    return Entries(rows, np.full(len(rows), -1, np.intp), columns, need)


def _as_decided(problem: Problem, last: Decided | None, before: Index) -> tuple[Index, Index, Mask, Array]:
    """The order of all jobs, their columns (-1: none) and whether these are reserved, and shares, by the last round;
    those that came since are behind, by arrival."""
    jobs, columns = problem.rate.shape
    target, reserved = np.full(jobs, -1, np.intp), np.zeros(jobs, np.bool_)
    share, deserved = np.zeros((jobs, columns)), np.full(jobs, -np.inf)
    if last is not None:
        found = last.round
        old = positions(before >= 0)
        at = before[old]
        waiting = found.reserved[at]
        target[old] = np.where(found.column[at] >= 0, found.column[at], waiting)
        reserved[old] = waiting >= 0
        share[old] = found.share[at]
        deserved[old] = found.share[at].sum(axis=1) + found.deficit_s[at] / last.time_slice_s
    return np.lexsort((problem.arrived, -deserved, target < 0)), target, reserved, share


def _spare(problem: Problem, filling: Filling, order: Index, ways: Mask, last: Decided | None) -> None:
    """Each waiting job, in order, where it is fastest for what the type is worth."""
    if not filling.waiting or not any(filling.left):
        return
    if problem.configurations is None:
        ways = ways & (problem.gang[:, None] <= np.array(filling.left)[problem.pool_of])
    order = order[ways[order].any(axis=1)]
    prices = np.zeros(len(problem.pools)) if last is None else last.allocation.prices
    price = prices[problem.pool_of]
    for row in order.tolist():
        if filling.column[row] >= 0 or not any(filling.left):
            continue
        able = positions(ways[row])
        rate = problem.rate[row, able]
        with np.errstate(divide="ignore"):
            worth = np.where(price[able] > 0.0, rate / price[able], np.inf)
        able = able[np.lexsort((-rate, -worth))]
        need = problem.gang[row]
        sizes = _sizes(problem, filling, row) if problem.configurations is not None else {}
        needs = np.array([sizes.get(int(at), need) for at in able], np.intp)
        filling.fill(_entries(np.full(len(able), row, np.intp), able, needs))


def _sizes(problem: Problem, filling: Filling, row: int) -> dict[int, int]:
    """Of a job that leaves its size open, the largest that fits into each column now."""
    ways = problem.configurations
    assert ways is not None
    found: dict[int, int] = {}
    for at in positions(ways.job == row).tolist():
        column, size = int(ways.column[at]), int(ways.accelerators[at])
        if size <= filling.left[int(problem.pool_of[column])]:
            found[column] = max(size, found.get(column, 0))
    return found
