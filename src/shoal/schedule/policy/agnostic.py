"""The assumption of heterogeneity-agnostic policies, that all types are as fast as one, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from shoal.core import Invalid
from shoal.schedule.policy.solving import Outcome
from shoal.schedule.policy.subproblem import Subproblem
from shoal.schedule.solve.market import Market
from shoal.schedule.types import Array, Problem

ROUNDS = 200


def equal_rates(problem: Problem, worth: Mapping[str, float]) -> Array:
    """(m, n) rates by which a type is worth the same to every job that can run on it; one, unless told."""
    columns = {column.name for column in problem.columns} | {column.key for column in problem.columns}
    for name, value in worth.items():
        if name not in columns or not 0.0 < value < float("inf"):
            raise Invalid(
                f"worth {value} of {name!r}", where="worth", hint=f"positive, of {', '.join(sorted(columns))}"
            )
    worths = np.array([worth.get(column.name, worth.get(column.key, 1.0)) for column in problem.columns])
    rates: Array = np.where(problem.rate > 0.0, worths, 0.0)
    return rates


def reference_rates(problem: Problem) -> Array:
    """Of policies that reason about time: (m, n) every job's rate on the column on which jobs are fastest in sum,
    wherever it can run; a job that cannot run there counts with its own fastest."""
    at = int(problem.rate.sum(axis=0).argmax())
    one = np.where(problem.rate[:, at] > 0.0, problem.rate[:, at], problem.rate.max(axis=1, initial=0.0))
    rates: Array = np.where(problem.rate > 0.0, one[:, None], 0.0)
    return rates


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
