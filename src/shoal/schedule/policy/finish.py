"""From an outcome for a frame to an allocation of the whole problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.schedule.policy.frame import Frame
from shoal.schedule.policy.solving import Outcome
from shoal.schedule.solve.market import Market
from shoal.schedule.types import Allocation, Array, Certificate, Pairs

ROUNDS = 200


def allocation(
    frame: Frame, outcome: Outcome, *, policy: str, objective: str | None = None, sense: str = "max"
) -> Allocation:
    """The allocation of all jobs: what the policy decided for the free ones, what the held ones keep, nothing for
    those that fit nowhere. An objective's name makes it a certified one."""
    share = frame.kept.copy()
    share[frame.free] = outcome.shares.T
    prices = np.zeros(len(frame.problem.pools))
    prices[frame.pools] = outcome.prices[: len(frame.pools)]
    pairs = outcome.pairs
    limits = zip(frame.market.names, outcome.prices, strict=True)
    return Allocation(
        problem=frame.problem,
        policy=policy,
        share=share,
        prices=prices,
        certificate=None if objective is None else Certificate(objective, outcome.value, outcome.bound, sense),
        pairs=Pairs(frame.free[pairs.first], frame.free[pairs.second], pairs.column, pairs.share),
        limits={name: float(price) for name, price in list(limits)[len(frame.pools) :]},
        facts=outcome.facts,
        limited=frame.market.names,
        tried=outcome.tried,
    )


def nothing(frame: Frame) -> Outcome:
    """What a frame without jobs gets."""
    none = np.zeros(len(frame.free))
    return Outcome(np.zeros_like(frame.market.rate), none, np.zeros(len(frame.market.limits)), 0.0, 0.0)


def within_limits(market: Market, shares: Array) -> Array:
    """Shares (n, k) lowered, in each limit that they pass, by the same part for all that use it."""
    lowered = shares.copy()
    for each in market.couplings:
        for load, limit in zip(each.load, each.limit, strict=True):
            usage = load @ (lowered @ (each.weight * market.copies))
            if usage > limit:
                lowered[np.ix_(load > 0.0, each.weight > 0.0)] *= limit / usage
    return lowered


def evened(frame: Frame, outcome: Outcome) -> Outcome:
    """The same rates with each job's time spread over its columns in proportion to their sizes, where that fits.

    A policy that takes all columns for equal leaves open which to use, and a job must not be left on the slowest one
    by accident. Columns that this would overfill are weighed down until nothing is (Sinkhorn's scaling).
    """
    market, problem = frame.market, frame.problem
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
    """(n,) how much over its limit the fullest coupling of each column is."""
    most = np.zeros(len(shares))
    for each in market.couplings:
        over = (each.load @ (shares @ (each.weight * market.copies))) / each.limit
        most = np.maximum(most, np.where(each.load > 0.0, over[:, None], 0.0).max(axis=0))
    return most
