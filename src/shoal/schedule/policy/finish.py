"""From an outcome for a subproblem to an allocation of the whole problem."""

from __future__ import annotations

import numpy as np

from shoal.schedule.policy.solving import Outcome
from shoal.schedule.policy.subproblem import Subproblem
from shoal.schedule.solve.market import Market
from shoal.schedule.types import Allocation, Array, Certificate, Pairs


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
