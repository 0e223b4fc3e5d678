"""First in, first out: in order of arrival, each job has all that it asks for, and the first that does not fit blocks
those behind it.

The agnostic form picks any type with room, by chance, and leaves running jobs where they are; the other takes the
fastest type with room and decides anew each time (as Gavel's two forms do).
"""

from __future__ import annotations

import numpy as np

from shoal.core import Invalid
from shoal.schedule.policy.greedy import Room, by_arrival, combined, placed
from shoal.schedule.policy.subproblem import Subproblem, subproblem_of
from shoal.schedule.types import Allocation, Index, Pairs, Problem

NAME = "fifo"


def fifo(
    problem: Problem,
    *,
    agnostic: bool = False,
    space_sharing: bool = False,
    worthwhile: float = 1.5,
    seed: int = 0,
) -> Allocation:
    """A job that only its tenant's quota keeps waiting does not block others. With `space_sharing`, jobs that find no
    room join the running job beside which both together keep most of their speed, if that is more than `worthwhile`
    times one job's."""
    if agnostic and space_sharing:
        raise Invalid("space sharing needs measured rates, which an agnostic policy does not look at")
    sub = subproblem_of(problem, space_sharing=space_sharing)
    room, order = Room(sub), by_arrival(sub)
    chance = np.random.default_rng(seed)
    if agnostic:
        for row in order:
            at = problem.placed[sub.free[row]]
            if at >= 0 and room.fits(row)[at]:
                room.put(row, at)
    waiting = [row for row in order if room.column[row] < 0]
    for position, row in enumerate(waiting):
        fits = np.flatnonzero(room.fits(row))
        if len(fits):
            room.put(row, chance.choice(fits) if agnostic else fits[sub.market.rate[fits, row].argmax()])
        elif not room.pools_allow(row):
            pairs = _joined(sub, room.column, waiting[position:], worthwhile) if space_sharing else None
            return placed(sub, room.column, NAME, pairs)
    return placed(sub, room.column, NAME)


def _joined(sub: Subproblem, column: Index, waiting: list[int], worthwhile: float) -> Pairs:
    """Put waiting jobs beside running ones, in order; the first that finds no partner ends it. Jobs that get a partner
    lose their time alone, in place."""
    alone = [int(row) for row in np.flatnonzero(column >= 0)]
    found: list[tuple[int, int, int]] = []
    for row in waiting:
        gains = [combined(sub, other, row)[column[other]] for other in alone]
        if not gains or max(gains) <= worthwhile:
            break
        other = alone.pop(int(np.argmax(gains)))
        found.append((other, row, int(column[other])))
        column[other] = -1
    first, second, at = np.array(found, np.intp).reshape(-1, 3).T
    return Pairs(first, second, at, np.ones(len(first)))
