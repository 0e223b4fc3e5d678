"""Isolated: every job has its part of every pool to itself, as if the cluster had been cut into pieces.

The baseline that sharing must beat, and the denominator of finish-time fairness.
"""

from __future__ import annotations

import numpy as np

from shoal.schedule.policy.finish import allocation, nothing, within_limits
from shoal.schedule.policy.frame import Frame, frame_of
from shoal.schedule.policy.solving import Outcome
from shoal.schedule.types import Allocation, Array, Problem

NAME = "isolated"


def isolated(problem: Problem) -> Allocation:
    """Parts are in proportion to weights; a job whose part is more than all of its time has all of it."""
    frame = frame_of(problem)
    if not len(frame.free):
        return allocation(frame, nothing(frame), policy=NAME)
    shares = isolated_shares(frame)
    none = np.zeros(len(frame.market.limits))
    outcome = Outcome(shares, frame.market.rates_of(shares), none, 0.0, 0.0)
    return allocation(frame, outcome, policy=NAME)


def isolated_shares(frame: Frame) -> Array:
    """(n, k) x_ij = N_j w_i / (s_i sum w), lowered where a row passes one or a quota binds."""
    market, problem = frame.market, frame.problem
    counts = np.zeros(len(problem.pools))
    counts[frame.pools] = market.limits[: len(frame.pools)]
    spread = np.array([column.spread for column in problem.columns])
    size = np.where(spread, 0.0, counts[problem.pool_of])
    shares = size[:, None] * (frame.weight / (frame.gang * frame.weight.sum()))
    shares = np.where(market.rate > 0.0, shares, 0.0)
    return within_limits(market, shares / np.maximum(shares.sum(axis=0), 1.0))
