"""Isolated: every job has its part of every pool to itself, as if the cluster had been cut into pieces.

The baseline that sharing must beat, and the denominator of finish-time fairness.
"""

from __future__ import annotations

import numpy as np

from shoal.schedule.policy.finish import allocation, nothing, within_limits
from shoal.schedule.policy.greedy import shared
from shoal.schedule.policy.subproblem import Subproblem, subproblem_of
from shoal.schedule.types import Allocation, Array, Problem

NAME = "isolated"


def isolated(problem: Problem) -> Allocation:
    """Parts are in proportion to weights; a job whose part is more than all of its time has all of it."""
    sub = subproblem_of(problem)
    if not len(sub.free):
        return allocation(sub, nothing(sub), policy=NAME)
    return shared(sub, isolated_shares(sub), NAME)


def isolated_shares(sub: Subproblem) -> Array:
    """(n, k) x_ij = N_j w_i / (s_i sum w), lowered where a row passes one or a quota binds."""
    market = sub.market
    shares = sub.accelerators[:, None] * (sub.weight / (sub.gang * sub.weight.sum()))
    shares = np.where(market.rate > 0.0, shares, 0.0)
    return within_limits(market, shares / np.maximum(shares.sum(axis=0), 1.0))
