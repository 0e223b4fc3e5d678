"""prototype"""
from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.schedule.policy.fair import fair_of, unchanged
from shoal.schedule.policy.finish import allocation, nothing
from shoal.schedule.policy.isolated import isolated_shares
from shoal.schedule.policy.reference import Reference, advanced
from shoal.schedule.policy.solving import Outcome
from shoal.schedule.policy.subproblem import Subproblem, subproblem_of
from shoal.schedule.policy.whole import whole_jobs
from shoal.schedule.types import Allocation, Array, Index, Problem, positions

NAME = "blend"
SOON_S = 120.0
K: dict[str, float] = {"late": 0.93, "keep": 0.2, "first": 1e3, "latest": 4., "tail": 0.95, "cube": 3., "tol": 0.0, "relp": 1.0, "staymax": 3600., "gangp": 1.0, "tailon":1., "norm":0.5, "crowd":2.5, "back":1., "batch":0.}
K |= {k: float(v) for k, _, v in (x.partition("=") for x in os.environ.get("K", "").split(",") if x)}


def blend(problem: Problem, *, whole: bool = False, aging: float = 0.0, keep: float = 0.1, bounded: bool = False, restart_s: float = 0.0, reference: Reference | None = None, took_s: Array | None = None, previous: Allocation | None = None) -> Allocation:
    sub = subproblem_of(problem)
    if not len(sub.free):
        return allocation(sub, nothing(sub), policy=NAME)
    if reference is None:
        reference = advanced(None, problem, np.zeros(problem.jobs))
    ends_s = reference.ends_s(problem)[sub.free]
    ratio = lateness(sub)
    left = sub.work_left / sub.market.fastest
    soonest = sub.elapsed_s + left + SOON_S
    late = ratio > K["late"]
    first = np.where(late, np.maximum(ratio, 1e-9), 0.0)
    if K["tailon"]:
        known = soonest if took_s is None else np.concatenate([took_s, soonest])
        q = np.quantile(known, K["tail"])
        behind = (sub.elapsed_s + left + SOON_S) / (sub.elapsed_s + ends_s + SOON_S)
        b = (behind - 1.0) * (soonest / q) ** K["cube"] + 1.0
        isb = b > 1.0 + K["tol"]
        first = np.maximum(first, np.where(isb, b, 0.0))
        late |= isb
    crowd = float(reference.fair.problem.gang @ (reference.left_s > 0.0)) / float(problem.counts.sum())
    fairly = previous is not None and previous.facts.get("fairly")
    if crowd > (K["back"] if fairly else K["crowd"]) or (K["batch"] and came_at_once(problem)):
        fair = fair_of(problem, previous)
        return replace(fair, problem=problem, policy=NAME, fair=fair, facts={"fairly": True})
    facts: dict[str, Any] = {"late": tuple(sub.free[late].tolist()), "number": reference.number}
    if previous is not None and previous.facts.get("late") == facts["late"] and previous.facts.get("number") == facts["number"] and unchanged(previous.problem, problem):
        return replace(previous, problem=problem)
    worth = worth_of(sub, ends_s, first, late, keep, restart_s)
    column = np.where(worth.max(axis=0) > 0.0, worth.argmax(axis=0), -1)
    market = sub.market
    if not (market.usage_of(market.whole(column)) <= market.limits).all():
        column = whole_jobs(sub, worth, np.zeros_like(worth))
    shares = market.whole(column)
    out = Outcome(shares, market.rates_of(shares), np.zeros(len(market.limits)), 0.0, 0.0, facts=facts)
    return allocation(sub, out, policy=NAME)


def worth_of(sub: Subproblem, ends_s: Array, first: Array, late: Any, keep: float, restart_s: float) -> Array:
    market = sub.market
    here = np.arange(len(market.rate))[:, None] == sub.problem.placed[sub.free]
    left_s = sub.work_left / market.fastest
    soon = ends_s + SOON_S
    base = sub.gang**K["gangp"] / soon
    base = np.where(late, K["first"] * base.max() * sub.gang * first ** K["latest"], base)
    with np.errstate(divide="ignore"):
        takes_s = np.where(market.rate > 0.0, sub.work_left / market.rate, np.inf)
    speed = (left_s + SOON_S) / (takes_s + SOON_S + np.where(here, 0.0, restart_s))
    worth = base * speed ** K["relp"]
    stays = np.minimum(keep, K["staymax"] / (takes_s + SOON_S))
    worth *= np.where(here, 1.0 + np.nan_to_num(stays), 1.0)
    return worth


def lateness(sub: Subproblem) -> Array:
    problem, left, fastest = sub.problem, sub.work_left, sub.market.fastest
    alone = sub.market.rates_of(isolated_shares(sub))
    with np.errstate(divide="ignore", invalid="ignore"):
        done_s = np.minimum(problem.isolated_s[sub.free], problem.ran_s[sub.free] * fastest / alone)
        ratio: Array = (sub.elapsed_s + left / fastest + SOON_S) / (done_s + left / np.where(K['norm'] > 0, np.maximum(alone, K['norm'] * sub.norm + (1-K['norm'])*alone), alone) + SOON_S)
    return np.where(alone > 0.0, ratio, 0.0)


def came_at_once(problem: Problem) -> bool:
    if problem.jobs < 2:
        return False
    middle = np.partition(problem.arrived, problem.jobs // 2)[problem.jobs // 2]
    return bool(2 * np.count_nonzero(problem.arrived == middle) > problem.jobs)
