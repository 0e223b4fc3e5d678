"""Jobs in the order in which max-min fairness would end them, and max-min fairness itself where there are too many.

As a program, `blend` maximises the part of remaining work that is done per second, and everybody has at least `floor`
of what max-min fairness would give all. For rounds it decides on `whole` jobs, by a schedule of max-min fairness that
is carried out beside (`reference.py`): a job counts for more the sooner it would end there, so that none has to wait
for one that would have ended later. On one machine no job would end later than by equal shares; gangs, several types
and restarts leave that a rule without a proof. Hence three guards:

- A job is late when it would take nearly as long as in an isolated share, or end after its end by the reference, even
  if it ran from now on where it is fastest. Late jobs come first, those that are latest before others.
- One that takes much longer than others is late as soon as it has done less than by the reference. It cannot catch up
  when the others have ended.
- Where jobs ask for many times what there is, a batch above all, max-min fairness decides until they ask for no more
  than that. Each would end as early in the order of their ends, but as fast as the queue got shorter its isolated share
  would grow, and that is what it is compared with.

Times are compared on a grid of a hundredth, so that how a processor rounds decides nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from shoal.core import Invalid
from shoal.schedule.policy.fair import fair_of, unchanged
from shoal.schedule.policy.finish import allocation, nothing
from shoal.schedule.policy.isolated import isolated_shares
from shoal.schedule.policy.reference import Reference, advanced
from shoal.schedule.policy.solving import Outcome, best_level, best_value, tried_before
from shoal.schedule.policy.spare import shortest_first
from shoal.schedule.policy.subproblem import Subproblem, subproblem_of
from shoal.schedule.policy.whole import whole_jobs
from shoal.schedule.types import Allocation, Array, Mask, Problem

NAME = "blend"
OBJECTIVE = "parts of remaining work done per second, by weight"

SOON_S = 120.0
"""Jobs that would end within about this time count alike: no job is moved for the sake of seconds."""

LATE = 0.93
"""A job that would take more than this part of the time in its isolated share is late: others need some of the rest."""

EMPTIER = 0.5
"""What is left of a job is measured by an isolated share between the present one (0) and one alone with nobody else
(1): the queue gets shorter while it waits."""

FIRST = 1000.0
"""How much more an accelerator of a late job counts than any other: neither what a restart costs it nor a slow type
makes it count less."""

LATEST = 4.0
"""A late job counts for this power of how late it is: one that is twice as late comes before a gang of three."""

AMONG_LAST = 0.95
"""The quantile of the times that jobs take, of those present (at the soonest) and of the last that ended, that says
what a long time is."""

NO_SLACK = 1e-6
"""A job that the reference runs all the time has no slack, and is late once it has lost this part of its time."""

LONG = 3.0
"""How late a job is against its end by the reference counts by this power of its length, in units of a long time."""

MUCH_LONGER = 1.5
"""A job is much longer than others from this number of long times on."""

BEHIND = 0.01
"""The part of its time, from arrival to end, that such a job may be behind the reference."""

BEHIND_COUNTS = 10.0
"""One that is behind by a tenth of its time counts as one that takes twice as long as in an isolated share."""

CROWDED = 2.5
"""Jobs that the reference has not ended ask for more than this number of times what there is: too many."""

ROOMY = 1.0
"""They ask for no more than this: no longer too many."""

AGAIN_S = 3600.0
"""For so long a choice stands if no job comes, goes, or ends by the reference: some may have become late."""

REPAYS_S = 300.0
"""Staying counts for as much more as a restart takes of this time: where restarts are expensive, jobs move seldom."""

STAYS_FOR_S = 3600.0
"""A job that ends sooner by more than this elsewhere is moved, however small a part of its time that is: a job of 309
hours stayed for 363 on a type that was slower by a seventh, beside a free one of the faster (16:6:2, Pareto, 1.3, seed
47)."""

GRID = 64
"""Steps by which what a job is worth is compared, to a doubling."""


def blend(
    problem: Problem,
    *,
    floor: float = 0.25,
    whole: bool = False,
    keep: float = 0.1,
    restart_s: float = 0.0,
    reference: Reference | None = None,
    took_s: Array | None = None,
    space_sharing: bool = False,
    previous: Allocation | None = None,
) -> Allocation:
    """Needs `work_left`. `floor` in 0..1 is the part of the best lowest normalised throughput that everybody has.
    With `whole`, `reference` is max-min fairness carried out beside until now (unless told, it begins now), and
    `took_s` how long some earlier jobs took; staying in place counts for the part `keep` more, and coming from
    elsewhere costs `restart_s`. After a `previous` allocation of nearly the same jobs it is found sooner."""
    if not 0.0 <= floor <= 1.0:
        raise Invalid(f"a floor of {floor}", where="floor", hint="between 0 and 1")
    if min(keep, restart_s) < 0.0:
        raise Invalid("keep and restart_s cannot be negative", where=NAME)
    if whole and space_sharing:
        raise Invalid("whole jobs do not share accelerators", where=NAME, hint="leave out one of the two")
    if whole and reference is not None and previous is not None and _stands(previous, problem, reference):
        return replace(previous, problem=problem)
    sub = subproblem_of(problem, space_sharing=space_sharing)
    if not len(sub.free):
        return allocation(sub, nothing(sub), policy=NAME)
    if not whole:
        return _program(sub, floor, previous)
    left_s = sub.work_left / sub.market.fastest
    if reference is None:
        reference = advanced(None, problem, np.zeros(problem.jobs))
    if too_many(reference, previous):
        fair = fair_of(problem, previous)
        return replace(fair, problem=problem, policy=NAME, fair=fair, facts={**fair.facts, "crowded": True})
    ratio = np.maximum(lateness(sub), _late_by(sub, left_s, reference, took_s))
    worth = _worth(sub, left_s, reference.ends_s()[sub.free], ratio, keep, restart_s)
    market = sub.market
    column = np.where(worth.max(axis=0) > 0.0, worth.argmax(axis=0), -1)
    roomy = bool((market.usage_of(market.whole(column)) <= market.limits).all())
    if not roomy:
        column = whole_jobs(sub, worth)
    shares = market.whole(column)
    facts: dict[str, Any] = {
        "late": sub.free[ratio > LATE].tolist(), "reference": reference.number, "at": problem.now, "roomy": roomy,
    }  # fmt: skip
    none = np.zeros(len(market.limits))
    return allocation(sub, Outcome(shares, market.rates_of(shares), none, 0.0, 0.0, facts=facts), policy=NAME)


def _program(sub: Subproblem, floor: float, previous: Allocation | None) -> Allocation:
    """The optimum in fractions of time."""
    gain, none = shortest_first(sub), np.zeros(len(sub.free))
    start, owed = None, none
    if floor > 0.0:
        unit = sub.weight * sub.norm / sub.gang
        start = best_level(sub, none, unit)
        owed = np.minimum(floor * start.value * unit, start.rates) * (1.0 - 1e-9)
    outcome = best_value(sub, gain, np.zeros_like(gain), owed, start=start, tried=tried_before(sub, previous))
    return allocation(sub, outcome, policy=NAME, objective=OBJECTIVE)


def _stands(previous: Allocation, problem: Problem, reference: Reference) -> bool:
    """Whether a choice of whole jobs stands: the same jobs are there and by the reference, and either all are where
    they are worth most, or it was made a short time ago."""
    facts = previous.facts
    if facts.get("reference") != reference.number:
        return False
    young: bool = facts["roomy"] or problem.now - facts["at"] < AGAIN_S
    return young and unchanged(previous.problem, problem)


def too_many(reference: Reference, previous: Allocation | None) -> bool:
    """Whether max-min fairness decides; once it does, until jobs ask for no more than there is."""
    before = previous is not None and bool(previous.facts.get("crowded"))
    return reference.crowd > (ROOMY if before else CROWDED)


def lateness(sub: Subproblem) -> Array:
    """(k,) when each job can end at the soonest over when it would in an isolated share, both from its arrival: about
    the least finish-time ratio that it can still have.

    What it has done took `isolated_s` in such a share. A caller that does not know puts the job's age there; then the
    time that it ran says how much it can have done at most. What is left takes a share of a queue that gets shorter.
    """
    problem, left, fastest = sub.problem, sub.work_left, sub.market.fastest
    alone = sub.market.rates_of(isolated_shares(sub))
    later = np.maximum(alone, EMPTIER * sub.norm + (1.0 - EMPTIER) * alone)
    with np.errstate(divide="ignore", invalid="ignore"):  # a job that can only run spread has no isolated share
        done_s = np.minimum(problem.isolated_s[sub.free], problem.ran_s[sub.free] * fastest / alone)
        ratio: Array = (sub.elapsed_s + left / fastest + SOON_S) / (done_s + left / later + SOON_S)
    return np.where(alone > 0.0, ratio, 0.0)


def _late_by(sub: Subproblem, left_s: Array, reference: Reference, took_s: Array | None) -> Array:
    """(k,) above one for jobs that are late against the reference, the more the later; zero for others."""
    soonest_s = sub.elapsed_s + left_s + SOON_S
    known_s = soonest_s if took_s is None else np.concatenate([took_s, soonest_s])
    long_s = _quantile(known_s, AMONG_LAST)
    over = soonest_s / (sub.elapsed_s + reference.ends_s()[sub.free] + SOON_S) - 1.0
    late = np.where(over > NO_SLACK, 1.0 + over * (soonest_s / long_s) ** LONG, 0.0)
    behind_s = left_s - reference.left_of()[sub.free]
    allowed_s = np.maximum(BEHIND * soonest_s, MUCH_LONGER * long_s - soonest_s)
    return np.maximum(late, np.where(behind_s > allowed_s, 1.0 + BEHIND_COUNTS * behind_s / soonest_s, 0.0))


def _quantile(values: Array, part: float) -> float:
    """`np.quantile` for few values: it takes a tenth of the time."""
    at = part * (len(values) - 1)
    low, high = int(at), min(int(at) + 1, len(values) - 1)
    found = np.partition(values, (low, high))
    return float(found[low] + (at - low) * (found[high] - found[low]))


def _worth(sub: Subproblem, left_s: Array, ends_s: Array, ratio: Array, keep: float, restart_s: float) -> Array:
    """(n, k) what each column is worth to each job: its accelerators over the time until it ends by the reference, its
    weight, and how fast it is there."""
    market = sub.market
    here = np.arange(len(market.rate))[:, None] == sub.problem.placed[sub.free]
    first = sub.weight * sub.gang / (ends_s + SOON_S)
    is_late: Mask = ratio > LATE
    first = np.where(is_late, FIRST * first.max() * sub.gang * np.maximum(ratio, LATE) ** LATEST, first)
    with np.errstate(divide="ignore"):
        takes_s = np.where(market.rate > 0.0, sub.work_left / market.rate, np.inf)
    worth = first * (left_s + SOON_S) / (takes_s + SOON_S + np.where(here, 0.0, restart_s))
    stays_for = np.minimum(keep + restart_s / REPAYS_S, STAYS_FOR_S / (takes_s + SOON_S))
    return _coarse(worth * np.where(here, 1.0 + stays_for, 1.0) * (left_s > 0.0))


def _coarse(values: Array) -> Array:
    """Positive values on a grid of `GRID` steps to a doubling; zero stays zero."""
    some = values > 0.0
    found: Array = np.where(some, np.exp2(np.round(np.log2(np.where(some, values, 1.0)) * GRID) / GRID), 0.0)
    return found
