"""POP (SOSP'21): partition a problem at random, solve the parts by themselves, put the answers together.

For policies whose solve grows faster than their number of jobs. Each part gets its jobs and its part of every pool; a
part's optimum is an allocation, so the union is one too, and with many jobs in each part it loses little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.core import Invalid
from shoal.schedule.types import Allocation, Pairs, Pool, Problem, no_pairs


def partitioned(
    policy: Callable[..., Allocation], problem: Problem, *, parts: int, seed: int = 0, **settings: Any
) -> Allocation:
    """The policy's answer in `parts` parts; nothing is proven about it as a whole. Raises `Invalid` where a part of a
    pool would be too small for a gang that the whole pool can hold, or where jobs are held or quotas span the parts."""
    if not 1 <= parts <= max(problem.jobs, 1):
        raise Invalid(f"{parts} parts of {problem.jobs} jobs", where="parts")
    if problem.held.any() or any(np.isfinite(problem.quota_of(tenant)).any() for tenant in problem.tenants):
        raise Invalid("held jobs and quotas cannot be cut into parts", where="parts", hint="solve it whole")
    of = np.empty(problem.jobs, np.intp)
    of[np.random.default_rng(seed).permutation(problem.jobs)] = np.arange(problem.jobs) % parts
    share = np.zeros(problem.rate.shape)
    prices, pairs = np.zeros(len(problem.pools)), [no_pairs()]
    name = "nothing"
    for part in range(parts):
        rows = np.flatnonzero(of == part)
        piece = problem.take(rows, tuple(_cut(pool, parts, part) for pool in problem.pools))
        small = problem.possible[rows].any(axis=1) & ~piece.possible.any(axis=1)
        if small.any():
            job = problem.ids[rows[np.flatnonzero(small)[0]]]
            raise Invalid(f"{parts} parts are too many for its gang", where=f"job {job}", hint="ask for fewer parts")
        answer = policy(piece, **settings)
        name = answer.policy
        share[rows] = answer.share
        prices += answer.prices / parts
        pairs.append(answer.pairs._replace(first=rows[answer.pairs.first], second=rows[answer.pairs.second]))
    together = Pairs(*(np.concatenate(each) for each in zip(*pairs, strict=True)))
    return Allocation(problem, name, share, prices, pairs=together, facts={"method": "partitioned", "parts": parts})


def _cut(pool: Pool, parts: int, part: int) -> Pool:
    return replace(pool, count=pool.count // parts + (part < pool.count % parts))
