"""Gandiva-like packing (OSDI'18, as Gavel models it): random pairs, kept while they pay, and equal time for all.

While the jobs ask for more accelerators than there are, they are paired at random with partners of the same gang size;
a pair that does less than one job alone would is broken up again. Every pair and every single job has the same part of
every pool.
"""

from __future__ import annotations

import numpy as np

from shoal.schedule.policy.finish import within_limits
from shoal.schedule.policy.greedy import combined, shared
from shoal.schedule.policy.subproblem import Subproblem, subproblem_of
from shoal.schedule.types import Allocation, Index, Pairs, Problem

NAME = "gandiva"


def gandiva(problem: Problem, *, previous: Allocation | None = None, seed: int = 0) -> Allocation:
    """Pairs of the `previous` allocation are kept while both jobs are there and the pair pays. Needs `pair_rate` to
    pair at all."""
    sub = subproblem_of(problem, space_sharing=problem.pair_rate is not None)
    partner = np.full(len(sub.free), -1, np.intp)
    if sub.gang.sum() > sub.market.constraints[0].limit.sum() and sub.beside is not None:
        for one, other in _kept(sub, previous):
            partner[one], partner[other] = other, one
        _pair_up(sub, partner, np.random.default_rng(seed))
    return _divided(sub, partner)


def _kept(sub: Subproblem, previous: Allocation | None) -> list[tuple[int, int]]:
    if previous is None:
        return []
    row_of = {sub.name(row): row for row in range(len(sub.free))}
    kept: dict[tuple[int, int], None] = {}
    for first, second in zip(previous.pairs.first, previous.pairs.second, strict=True):
        one, other = row_of.get(previous.problem.ids[first]), row_of.get(previous.problem.ids[second])
        if one is not None and other is not None and combined(sub, one, other).max() >= 1.0:
            kept[one, other] = None
    return list(kept)


def _pair_up(sub: Subproblem, partner: Index, chance: np.random.Generator) -> None:
    """Pair the jobs that have no partner at random, in place."""
    single = [int(row) for row in chance.permutation(np.flatnonzero(partner < 0))]
    waiting: dict[float, int] = {}
    for row in single:
        other = waiting.pop(sub.gang[row], None)
        if other is None:
            waiting[sub.gang[row]] = row
        elif combined(sub, row, other).max() >= 1.0:
            partner[row], partner[other] = other, row


def _divided(sub: Subproblem, partner: Index) -> Allocation:
    """Equal time for every pair and every single job."""
    market = sub.market
    rows = np.arange(len(partner))
    leads = (partner < 0) | (rows < partner)
    part = sub.accelerators[:, None] / (max(leads.sum(), 1) * sub.gang)
    able = market.rate > 0.0
    together = able.copy()
    for row in map(int, np.flatnonzero(partner >= 0)):
        together[:, row] = combined(sub, row, int(partner[row])) > 0.0
    time = np.where(together & leads, part, 0.0)
    time = within_limits(market, time / np.maximum(time.sum(axis=0), 1.0))
    alone = np.where(partner < 0, time, 0.0)
    column, first = np.nonzero(np.where(partner >= 0, time, 0.0))
    return shared(sub, alone, NAME, Pairs(first, partner[first], column, time[column, first]))
