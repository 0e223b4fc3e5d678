"""From an outcome for a subproblem to an allocation of the whole problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.schedule.policy.solving import Outcome
from shoal.schedule.policy.subproblem import Subproblem
from shoal.schedule.solve.market import Market
from shoal.schedule.types import Allocation, Array, Certificate, Pairs

ROUNDS = 200


def allocation(
    sub: Subproblem, outcome: Outcome, *, policy: str, objective: str | None = None, sense: str = "max"
) -> Allocation:
    """The allocation of all jobs: what the policy decided for the free ones, what the held ones keep, nothing for
    those that fit nowhere. An objective's name makes it a certified one."""
    share = sub.kept.copy()
    share[sub.free] = outcome.shares.T
    prices = np.zeros(len(sub.problem.pools))
    prices[sub.pools] = outcome.prices[: len(sub.pools)]
    pairs = outcome.pairs
    limits = zip(sub.market.names, outcome.prices, strict=True)
    return Allocation(
        problem=sub.problem,
        policy=policy,
        share=share,
        prices=prices,
        certificate=None if objective is None else Certificate(objective, outcome.value, outcome.bound, sense),
        pairs=Pairs(sub.free[pairs.first], sub.free[pairs.second], pairs.column, pairs.share),
        limits={name: float(price) for name, price in list(limits)[len(sub.pools) :]},
        facts=outcome.facts,
        limited=sub.market.names,
        tried=outcome.tried,
    )


def nothing(sub: Subproblem) -> Outcome:
    """What a subproblem without jobs gets."""
    none = np.zeros(len(sub.free))
    return Outcome(np.zeros_like(sub.market.rate), none, np.zeros(len(sub.market.limits)), 0.0, 0.0)


def within_limits(market: Market, shares: Array) -> Array:
    """Shares (n, k) lowered, in each limit that they pass, by the same part for all that use it."""
    lowered = shares.copy()
    for each in market.constraints:
        for load, limit in zip(each.load, each.limit, strict=True):
            usage = load @ (lowered @ (each.weight * market.copies))
            if usage > limit:
                lowered[np.ix_(load > 0.0, each.weight > 0.0)] *= limit / usage
    return lowered


def evened(sub: Subproblem, outcome: Outcome) -> Outcome:
    """The same rates with each job's time spread over its columns in proportion to their sizes, where that fits.

    A policy that takes all columns for equal leaves open which to use, and a job must not be left on the slowest one
    by accident. Columns that this would overfill are weighed down until nothing is (Sinkhorn's scaling).
    """
    market, problem = sub.market, sub.problem
    size = problem.counts[problem.pool_of].copy()
    able = market.rate > 0.0
    for _ in range(ROUNDS):
        spread = np.where(able, size[:, None], 0.0)
        per_size = np.einsum("jm,jm->m", spread, market.rate)
        shares = spread * (outcome.rates / np.where(per_size > 0.0, per_size, 1.0))
        over = np.maximum(_pressure(market, shares), 1.0)
        if over.max() <= 1.0 + 1e-9:
            fits = shares.sum(axis=0).max(initial=0.0) <= 1.0 + 1e-9
            return replace(outcome, shares=market.fitted(shares)) if fits else outcome
        size /= over
    return outcome


def _pressure(market: Market, shares: Array) -> Array:
    """(n,) how much over its limit the fullest constraint of each column is."""
    most = np.zeros(len(shares))
    for each in market.constraints:
        over = (each.load @ (shares @ (each.weight * market.copies))) / each.limit
        most = np.maximum(most, np.where(each.load > 0.0, over[:, None], 0.0).max(axis=0))
    return most
