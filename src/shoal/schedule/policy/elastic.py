"""Elastic jobs (Sia, SOSP'23): how many accelerators, and of which type, are chosen together for all jobs.

Each job has at most one of its configurations. A configuration counts with its goodput in units of the job's least
one, to a power: below zero it favours jobs that have little (-0.5 is Sia's), above zero those that gain most. A change
of configuration is discounted by the part of a job's life that restarts take. Jobs without configurations run on
their gang or not at all.

The sum of such worths knows no past: under overload some jobs would wait for long. So a job that is too far behind what
rounds of max-min fairness would have given it, at its least size, comes before all that are not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shoal.core import Invalid, Quota
from shoal.schedule.policy.fair import at_least, fair_of
from shoal.schedule.policy.finish import allocation, nothing
from shoal.schedule.policy.solving import Outcome
from shoal.schedule.policy.subproblem import Subproblem, quotas_of, subproblem_of
from shoal.schedule.solve.choice import best_choice
from shoal.schedule.solve.market import Constraint, Market
from shoal.schedule.types import Allocation, Array, Configurations, Index, Problem

NAME = "elastic"
OBJECTIVE = "sum of the chosen configurations' worths"

FIRST = 100.0
"""How much more an accelerator of a job that is too far behind counts than any other."""

FURTHEST = 2.0
"""Such a job counts for this power of how far behind it is, in parts of what is allowed."""


def elastic(
    problem: Problem,
    *,
    power: float = -0.5,
    unserved: float | Array = 1.1,
    restart_s: float = 30.0,
    horizon_s: float = float("inf"),
    gap: float = 1e-3,
    behind_s: Array | None = None,
    allowed_s: float | Array = 0.0,
    previous: Allocation | None = None,
) -> Allocation:
    """`unserved` is the penalty for a job that gets nothing, on the scale of the worths (the least configuration counts
    one); one for all, or for each (m,), which does not change what they gain from larger ones. A running job's present
    configuration is its `placed` column and its `gang`. `behind_s` (m,) is what each job had less than by max-min
    fairness, in seconds of running at its least size where it is fastest. With it, jobs that are behind by more than
    `allowed_s` come first, and the allocation says what is `fair`. Stops at the relative `gap`."""
    penalty: Array = np.broadcast_to(np.asarray(unserved, np.float64), problem.jobs)
    if power == 0.0 or not (penalty > 0.0).all():
        raise Invalid(f"power {power}, unserved {unserved}", where="elastic", hint="not zero; positive")
    sub = subproblem_of(_on_one(problem))
    configuration = _present(problem)
    fair, ratio = None, np.zeros(problem.jobs)
    if behind_s is not None:
        fair = fair_of(at_least(problem), previous)
        ratio = np.where(behind_s > allowed_s, behind_s / np.maximum(allowed_s, 1.0), 0.0)
    if not len(sub.free):
        empty = allocation(sub, nothing(sub), policy=NAME)
        return replace(empty, problem=problem, configuration=configuration, fair=fair)
    ways = _ways(problem, sub)
    option, market = _options(problem, sub, ways)
    value = np.zeros_like(market.rate)
    value[option, ways.job] = _worth(
        problem, sub, ways, ratio, power=power, unserved=penalty, restart_s=restart_s, horizon_s=horizon_s
    )
    chosen = best_choice(market, value, gap=gap)
    way_at = np.full(market.rate.shape, -1, np.intp)
    way_at[option, ways.job] = np.arange(len(option))
    rows = np.flatnonzero(chosen.option >= 0)
    way = way_at[chosen.option[rows], rows]
    configuration[sub.free] = -1
    configuration[sub.free[rows]] = ways.number[way]
    shares = np.zeros_like(sub.market.rate)
    shares[ways.column[way], rows] = 1.0
    facts = {"method": "prices and branch and bound", "options": len(market.rate), "core": chosen.core}
    prices = np.zeros(len(sub.market.limits))
    prices[: len(sub.pools)] = chosen.prices[: len(sub.pools)]
    outcome = Outcome(shares, np.zeros(len(sub.free)), prices, chosen.value, chosen.bound, facts=facts)
    found = allocation(sub, outcome, policy=NAME, objective=OBJECTIVE)
    quotas = dict(zip(market.names[len(sub.pools) :], map(float, chosen.prices[len(sub.pools) :]), strict=True))
    return replace(found, problem=problem, configuration=configuration, limits=quotas, fair=fair)


class _Ways(NamedTuple):
    """All ways to run the jobs of a subproblem (k,): row, column, accelerators, goodput, and the number of the
    configuration or -1 for a job that has none."""

    job: Index
    column: Index
    accelerators: Index
    goodput: Array
    number: Index


def _configurations(problem: Problem) -> Configurations:
    none = np.empty(0, np.intp)
    return problem.configurations or Configurations(none, none, none, np.empty(0))


def _on_one(problem: Problem) -> Problem:
    """The problem in which each job that may be moved wants one accelerator, wherever it has a way to run: what a
    subproblem makes of that is what is left of pools."""
    elastic = _configurations(problem)
    rate = np.where(problem.gang[:, None] <= problem.counts[problem.pool_of], problem.rate, 0.0)
    rate[np.unique(elastic.job)] = 0.0
    rate[elastic.job, elastic.column] = 1.0
    tenants = tuple(replace(tenant, quota=Quota()) for tenant in problem.tenants)
    return replace(problem, gang=np.where(problem.held, problem.gang, 1), rate=rate, tenants=tenants)


def _present(problem: Problem) -> Index:
    """(m,) the configuration that each held job runs in."""
    elastic, present = _configurations(problem), np.full(problem.jobs, -1, np.intp)
    job = elastic.job
    same = (elastic.column == problem.placed[job]) & (elastic.accelerators == problem.gang[job]) & problem.held[job]
    present[job[same]] = np.flatnonzero(same)
    return present


def _ways(problem: Problem, sub: Subproblem) -> _Ways:
    """The ways that have a goodput."""
    elastic, row_of = _configurations(problem), np.full(problem.jobs, -1, np.intp)
    row_of[sub.free] = np.arange(len(sub.free))
    able = np.flatnonzero((row_of[elastic.job] >= 0) & (elastic.goodput > 0.0))
    rigid = np.ones(problem.jobs, np.bool_)
    rigid[elastic.job] = False
    row, column = np.nonzero(sub.market.rate.T * rigid[sub.free][:, None])
    whole = sub.free[row]
    return _Ways(
        np.concatenate([row_of[elastic.job[able]], row]),
        np.concatenate([elastic.column[able], column]),
        np.concatenate([elastic.accelerators[able], problem.gang[whole]]),
        np.concatenate([elastic.goodput[able], problem.rate[whole, column]]),
        np.concatenate([able, np.full(len(row), -1)]),
    )


def _options(problem: Problem, sub: Subproblem, ways: _Ways) -> tuple[Index, Market]:
    """The option (k,) that each way is, and a market whose columns are options: a number of accelerators of a
    column."""
    kinds, option = np.unique(np.stack([ways.column, ways.accelerators]), axis=1, return_inverse=True)
    column, accelerators = kinds
    pools = sub.market.constraints[0]
    rows = np.ones(len(sub.free))
    constraints = [Constraint(pools.names, rows, pools.load[:, column] * accelerators, pools.limit)]
    for quota in quotas_of(problem, np.flatnonzero(problem.held)):
        load: Array = (quota.columns[column] * accelerators)[None, :].astype(np.float64)
        if quota.left > 0.0:
            constraints.append(
                Constraint((quota.name,), quota.rows[sub.free].astype(np.float64), load, np.array([quota.left]))
            )
    rate = np.zeros((len(column), len(sub.free)))
    rate[option.ravel(), ways.job] = 1.0
    for each in constraints:
        for load, limit in zip(each.load, each.limit, strict=True):
            rate[np.ix_(load > limit, each.weight > 0.0)] = 0.0
    for quota in quotas_of(problem, np.flatnonzero(problem.held)):
        if quota.left <= 0.0:
            rate[np.ix_(quota.columns[column], quota.rows[sub.free])] = 0.0
    return option.ravel(), Market(rate, rows, tuple(constraints))


def _worth(
    problem: Problem,
    sub: Subproblem,
    ways: _Ways,
    ratio: Array,
    *,
    power: float,
    unserved: Array,
    restart_s: float,
    horizon_s: float,
) -> Array:
    """(k,) how much better each way is than getting nothing. Of a job that is too far behind (`ratio` (m,), else zero),
    a way counts by the speed that it gives, up to that of the least size where that is fastest."""
    count = len(sub.free)
    least, fewest = np.full(count, np.inf), np.full(count, np.inf)
    np.minimum.at(least, ways.job, ways.goodput)
    np.minimum.at(fewest, ways.job, ways.accelerators)
    goodput = fewest[ways.job] * ways.goodput / least[ways.job]
    job = sub.free[ways.job]
    age = sub.elapsed_s[ways.job]
    lost = (age - problem.restarts[job] * restart_s) / np.maximum(age + restart_s, 1e-9)
    lost = np.minimum(lost, 1.0 - restart_s / max(horizon_s, restart_s + 1e-9))
    moves = (problem.placed[job] >= 0) & (
        (problem.placed[job] != ways.column) | (problem.gang[job] != ways.accelerators)
    )
    kept = np.where(moves, lost.clip(0.01, 1.0), 1.0)
    goodput = goodput * kept
    speed = np.minimum(ways.goodput / problem.least_pace[job], 1.0)
    first = FIRST * fewest[ways.job] * ratio[job] ** FURTHEST * speed * kept
    gained = unserved[job] - goodput**power if power < 0.0 else unserved[job] + goodput**power
    worth: Array = sub.weight[ways.job] * (gained + first)
    return worth
