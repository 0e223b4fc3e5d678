"""Shortest remaining time first, kept fair: what lowers mean completion times most, without starving long jobs.

The linear program maximises the part of remaining work that is done per second. Alone it would starve long jobs, so
that there are two guards. With `aging`, what is made small is not the sum of completion times but that of their powers
(1 + aging), so that jobs count more the longer they take. And everybody has at least `floor` of what max-min fairness
would give all.

`whole` rounds the optimum to whole jobs, for rounds: see `whole.py`. Then a guard stands in for the floor. A job is
late when it would end later than in an isolated share of the cluster even if it ran from now on where it is fastest;
and one that will end among the last is late when it falls behind what max-min fairness would have given it. Late jobs
come before all others, those that are latest first: a short job is not kept waiting by long ones that aging favours, a
gang not by many single jobs, and the last job not by all others. A batch is aimed at its end instead, and has no guard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.core import Invalid
from shoal.schedule.policy.ending import whole_until, worth_until
from shoal.schedule.policy.fair import fair_of, unchanged
from shoal.schedule.policy.finish import allocation, nothing
from shoal.schedule.policy.isolated import isolated_shares
from shoal.schedule.policy.solving import Outcome, best_level, best_value, tried_before
from shoal.schedule.policy.spare import shortest_first
from shoal.schedule.policy.subproblem import Subproblem, subproblem_of
from shoal.schedule.policy.whole import whole_jobs
from shoal.schedule.types import Allocation, Array, Index, Mask, Problem, Tried, positions

NAME = "blend"
OBJECTIVE = "parts of remaining work done per second, by weight"

SOON_S = 120.0
"""Jobs that would end within about this time count alike: no job is moved for the sake of seconds."""

FIRST = 1000.0
"""How much more an accelerator of a late job counts than any other: neither what a restart costs it nor a slow type
makes it count less."""

LATEST = 4.0
"""A late job counts for this power of how late it is: one that is twice as late comes before a gang of three."""

BEHIND = 0.01
"""The part of its time, from arrival to end, that a job which ends among the last may be behind max-min fairness."""

AMONG_LAST = 0.95
"""A job ends among the last if it takes longer than this part of the jobs: those that ended last did, and those present
will, from their arrival to the soonest that they can end."""

BEHIND_COUNTS = 10.0
"""A job that is behind by a tenth of its time counts as one that takes twice as long as in an isolated share."""

STAYS_FOR_S = 3600.0
"""A job that ends sooner by more than this elsewhere is moved, however small a part of its time that is: a job of 309
hours stayed for 363 on a type that was slower by a seventh, beside a free one of the faster (16:6:2, Pareto, 1.3, seed
47)."""


def blend(
    problem: Problem,
    *,
    floor: float = 0.25,
    aging: float = 0.0,
    late: float = 1.0,
    whole: bool = False,
    keep: float = 0.1,
    restart_s: float = 0.0,
    timely: bool = False,
    bounded: bool = False,
    behind_s: Array | None = None,
    took_s: Array | None = None,
    space_sharing: bool = False,
    previous: Allocation | None = None,
) -> Allocation:
    """Needs `work_left`. `floor` in 0..1 is the part of the best lowest normalised throughput that everybody has.
    With `whole`, staying in place counts for the part `keep` more, and coming from elsewhere costs `restart_s`; a job
    is late when it would take more than `late` times as long as in its isolated share (infinite: none is). With
    `behind_s` (m,), seconds of running where each is fastest that it had less than by max-min fairness, a job that ends
    among the last is also late when that is too much (`took_s` is how long some earlier jobs took), and the allocation
    says what is `fair`. A batch (jobs that all came at once) that is to be `timely` ends about as early as it can (see
    `ending.py`). With `bounded`, max-min fairness decides where most jobs came at once, and a choice of whole jobs
    stands until jobs come, go, or become late. After a `previous` allocation of nearly the same jobs it is found
    sooner."""
    if not 0.0 <= floor <= 1.0:
        raise Invalid(f"a floor of {floor}", where="floor", hint="between 0 and 1")
    if min(aging, late, keep, restart_s) < 0.0:
        raise Invalid("aging, late, keep and restart_s cannot be negative", where=NAME)
    if whole and space_sharing:
        raise Invalid("whole jobs do not share accelerators", where=NAME, hint="leave out one of the two")
    if bounded and came_at_once(problem):
        fair = fair_of(problem, previous)
        return replace(fair, problem=problem, policy=NAME, fair=fair)
    sub = subproblem_of(problem, space_sharing=space_sharing)
    if not len(sub.free):
        return allocation(sub, nothing(sub), policy=NAME)
    gain = shortest_first(sub) * _aged(sub, aging)
    if whole:
        batch = len(sub.free) > 1 and float(np.ptp(problem.arrived[sub.free])) == 0.0
        if not (timely and batch):
            ratio = lateness(sub)
            if behind_s is not None:
                ratio = np.maximum(ratio, behind(sub, behind_s[sub.free], took_s))
            is_late = ratio > late * (1.0 + 1e-9)
            facts = {"late": sub.free[is_late].tolist()}
            if bounded and previous is not None and _stands(previous, problem, facts):
                return replace(previous, problem=problem)
            guarded = _guarded(sub, gain, ratio, is_late)
            found = _rounded(sub, guarded, keep, restart_s, False, tried_before(sub, previous))
            found = replace(found, facts={**found.facts, **facts})
            return found if behind_s is None else replace(found, fair=fair_of(problem, previous))
        # All of a batch have waited equally long, and who is long is seen to by the end that is kept.
        return _rounded(sub, shortest_first(sub), keep, restart_s, True, tried_before(sub, previous))
    none = np.zeros(len(sub.free))
    start, owed = None, none
    if floor > 0.0:
        unit = sub.weight * sub.norm / sub.gang
        start = best_level(sub, none, unit)
        owed = np.minimum(floor * start.value * unit, start.rates) * (1.0 - 1e-9)
    outcome = best_value(sub, gain, np.zeros_like(gain), owed, start=start, tried=tried_before(sub, previous))
    return allocation(sub, outcome, policy=NAME, objective=OBJECTIVE)


def _aged(sub: Subproblem, aging: float) -> Array:
    """(k,) the soonest that each job can have taken from arrival to end, to the power of `aging`, relative to the mean:
    the slope of the sum of completion times to the power of 1 + aging."""
    if not aging:
        return np.ones(len(sub.free))
    soonest = sub.elapsed_s + sub.work_left / sub.market.fastest + SOON_S
    slope: Array = (soonest / soonest.mean()) ** aging
    return slope


def lateness(sub: Subproblem) -> Array:
    """(k,) when each job can end at the soonest over when it would in an isolated share, both from its arrival: the
    least finish-time ratio that it can still have.

    What it has done took `isolated_s` in such a share. A caller that does not know puts the job's age there; then the
    time that it ran says how much it can have done at most.
    """
    problem, left, fastest = sub.problem, sub.work_left, sub.market.fastest
    alone = sub.market.rates_of(isolated_shares(sub))
    with np.errstate(divide="ignore", invalid="ignore"):  # a job that can only run spread has no isolated share
        done_s = np.minimum(problem.isolated_s[sub.free], problem.ran_s[sub.free] * fastest / alone)
        ratio: Array = (sub.elapsed_s + left / fastest + SOON_S) / (done_s + left / alone + SOON_S)
    return np.where(alone > 0.0, ratio, 0.0)


def behind(sub: Subproblem, behind_s: Array, took_s: Array | None = None) -> Array:
    """(k,) above one for jobs that are too far behind max-min fairness, the more the further; zero for others.

    A job may wait for shorter ones until its end would be among the latest. From then on it may be behind by no more
    than the part `BEHIND` of its time, so that the last ends are about as early as under max-min fairness.
    """
    soonest_s = sub.elapsed_s + sub.work_left / sub.market.fastest + SOON_S
    known_s = soonest_s if took_s is None else np.concatenate([took_s, soonest_s])
    allowed_s = np.maximum(BEHIND * soonest_s, (1.0 + BEHIND) * _quantile(known_s, AMONG_LAST) - soonest_s)
    return np.where(behind_s > allowed_s, 1.0 + BEHIND_COUNTS * np.maximum(behind_s, 0.0) / soonest_s, 0.0)


def _quantile(values: Array, part: float) -> float:
    """`np.quantile` for few values: it takes a tenth of the time."""
    at = part * (len(values) - 1)
    low, high = int(at), min(int(at) + 1, len(values) - 1)
    found = np.partition(values, (low, high))
    return float(found[low] + (at - low) * (found[high] - found[low]))


def _stands(previous: Allocation, problem: Problem, facts: Mapping[str, Any]) -> bool:
    """Whether the same jobs are there, and the same ones are late."""
    return previous.facts.get("late") == facts["late"] and unchanged(previous.problem, problem)


def came_at_once(problem: Problem) -> bool:
    """Whether more than half of the jobs came at one moment: all of these have waited equally long, so whose turn it is
    is a matter of length alone. Shortest first then took a batch of 150 jobs half again as long as max-min fairness."""
    if problem.jobs < 2:
        return False
    middle = np.partition(problem.arrived, problem.jobs // 2)[problem.jobs // 2]
    return bool(2 * np.count_nonzero(problem.arrived == middle) > problem.jobs)


def _guarded(sub: Subproblem, gain: Array, ratio: Array, is_late: Mask) -> Array:
    """(n, k) `gain` (n, k), but for jobs that are late (k,) by their `ratio` (k,) enough that each accelerator of
    theirs counts for more than others."""
    left = sub.work_left
    if not is_late.any():
        return gain
    soon = left / sub.market.fastest + SOON_S
    most = float((gain * left / soon).max())
    first = FIRST * most * sub.gang * ratio**LATEST * soon / np.where(left > 0.0, left, 1.0)
    return np.where(is_late, first, gain)


def _rounded(sub: Subproblem, gain: Array, keep: float, restart_s: float, timely: bool, tried: Tried) -> Allocation:
    """The program's optimum in whole jobs, certified by the program's own."""
    market = sub.market
    here = np.arange(len(market.rate))[:, None] == sub.problem.placed[sub.free]
    left = sub.work_left
    with np.errstate(divide="ignore"):
        takes_s = np.where(market.rate > 0.0, left / market.rate, np.inf)
    # The time that is left, with what it costs to come, instead of the time alone.
    worth = np.where(left > 0.0, gain * left, 0.0) / (takes_s + SOON_S + np.where(here, 0.0, restart_s))
    with np.errstate(invalid="ignore"):
        stays_for = np.minimum(keep, STAYS_FOR_S / (takes_s + SOON_S))
    worth *= np.where(here, 1.0 + stays_for, 1.0)
    column = np.where(worth.max(axis=0) > 0.0, worth.argmax(axis=0), -1)
    if not timely and (market.usage_of(market.whole(column)) <= market.limits).all():
        return _chosen(sub, worth, column, None, tried)
    value = np.where(market.rate > 0.0, worth / np.where(market.rate > 0.0, market.rate, 1.0), 0.0)
    alike = len(np.unique(left)) < len(left)
    fluid = best_value(sub, value, np.zeros_like(value), np.zeros(len(left)), tried=tried, alike=alike)
    value, likely = worth, fluid.shares
    chosen = None
    if timely and left.any():
        chosen = whole_until(sub, worth)
        if chosen is None:
            value, likely = worth_until(sub, worth)
    if chosen is None:
        chosen = whole_jobs(sub, value, likely)
    return _chosen(sub, worth, chosen, fluid, tried)


def _chosen(sub: Subproblem, worth: Array, column: Index, fluid: Outcome | None, tried: Tried) -> Allocation:
    """Each job all of its `column`, or nothing where that is -1. `fluid` is the best with parts of jobs; without, no
    limit binds."""
    market = sub.market
    shares = market.whole(column)
    runs = positions(column >= 0)
    value = float(worth[column[runs], runs].sum())
    prices, bound, facts = np.zeros(len(market.limits)), value, {"fluid": value}
    if fluid is not None:
        prices, bound, tried = fluid.prices, fluid.bound, fluid.tried
        facts = {**fluid.facts, "fluid": fluid.value}
    outcome = Outcome(shares, market.rates_of(shares), prices, value, bound, facts=facts, tried=tried)
    return allocation(sub, outcome, policy=NAME, objective=OBJECTIVE)
