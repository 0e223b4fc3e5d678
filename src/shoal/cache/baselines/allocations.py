"""Policies that answer the same `Problem`, and are not fair, or not efficient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shoal.cache.policy import TOLERANCE, Allocation, Claims, Configuration, Policy
from shoal.cache.policy.claims import fractions_of, oracle_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.cache.policy.problem import Array


def _best(claims: Claims, value: Array, capacity: float) -> Array:
    """(M,): the content of most value."""
    found = oracle_of(claims.problem, claims.items, capacity, value[None]).best(value)
    return fractions_of(claims.problem, claims.items, found.parts)


def static(claims: Claims, tolerance: float = TOLERANCE) -> Allocation:
    """Each tenant has its part of the cache and fills it as it likes. What two hold is counted once: a reader of either
    copy saves the same."""
    del tolerance
    problem, items = claims.problem, claims.items
    part = problem.capacity * problem.weight / problem.weight.sum()
    kept = [_best(claims, items.value[at], float(part[at])) for at in claims.active]
    return Allocation.certain(np.max(kept, axis=0))


def serial_dictatorship(claims: Claims, tolerance: float = TOLERANCE) -> Allocation:
    """A tenant that is drawn by weight has the whole cache."""
    del tolerance
    return Allocation(tuple(
        Configuration(float(share), _best(claims, claims.value[at], claims.problem.capacity))
        for at, share in enumerate(claims.share)
    ))  # fmt: skip


def utility_maximal(claims: Claims, tolerance: float = TOLERANCE) -> Allocation:
    """The allocation with the greatest sum of what all tenants save, however that sum is shared among them."""
    del tolerance
    weight = claims.problem.weight[claims.active]
    value = weight @ claims.items.value[claims.active]
    return Allocation.certain(_best(claims, value, claims.problem.capacity))


def greedy(claims: Claims, tolerance: float = TOLERANCE) -> Allocation:
    """Set by set, the one that saves most a byte first, as long as it fits."""
    del tolerance
    items, left = claims.items, claims.problem.capacity
    value = items.value[claims.active].sum(0)
    parts = np.zeros(len(items.size))
    for at in np.argsort(-value / items.size, kind="stable"):
        if value[at] > 0 and items.size[at] <= left:
            parts[at], left = 1.0, left - items.size[at]
    return Allocation.certain(fractions_of(claims.problem, items, parts))


BASELINES: Mapping[str, Policy] = {
    "static": static, "rsd": serial_dictatorship, "optp": utility_maximal, "greedy": greedy,
}  # fmt: skip
