"""Claims: the savings of each tenant if the cache were its own. Its utility is measured by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shoal.cache.policy.knapsack import Filler, Oracle, Packer
from shoal.cache.policy.problem import Mode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shoal.cache.policy.problem import Array, Items, Problem


@dataclass(frozen=True, slots=True)
class Claims:
    """The tenants that a policy serves, and what they are served by.

    `active` (A,) are those with a weight and something to save; `share` (A,) their weights over the sum of these;
    `alone` (N,) what each tenant would save with the whole cache, and `best` (A, K) its content then; `items` what may
    be kept, `value` (A, K) the utility of each item in parts of `alone`; `oracle` finds the best content of the cache.
    """

    problem: Problem
    items: Items
    active: NDArray[np.intp]
    share: Array
    alone: Array
    best: Array
    value: Array
    oracle: Oracle


def claims_of(problem: Problem) -> Claims:
    items = problem.items()
    oracle = oracle_of(problem, items, problem.capacity, items.value)
    packings = [oracle.best(value) for value in items.value]
    alone = np.array([one.value for one in packings])
    active = np.flatnonzero((alone > 0) & (problem.weight > 0))
    weight = problem.weight[active]
    share = weight / weight.sum() if len(active) else weight
    best = np.array([packings[at].parts for at in active])
    return Claims(problem, items, active, share, alone, best, items.value[active] / alone[active, None], oracle)


def oracle_of(problem: Problem, items: Items, capacity: float, values: Array, *, once: bool = False) -> Oracle:
    """The best content of a cache of this capacity for any mix of the rows of `values` (A, K). `once`: it is asked for
    one alone."""
    if problem.mode is Mode.LOTTERY:
        return Packer(items.size, capacity, np.flatnonzero(values.any(axis=0)), enumerated=not once)
    return Filler(items.size, capacity)


def own_parts(claims: Claims) -> Array:
    """(N, K) parts of the items that each tenant would keep with its part of the bytes for itself."""
    problem, items = claims.problem, claims.items
    found = np.zeros_like(items.value)
    for at, share in zip(claims.active, claims.share, strict=True):
        value = items.value[at]
        found[at] = oracle_of(problem, items, problem.capacity * share, value[None], once=True).best(value).parts
    return found


def fractions_of(problem: Problem, items: Items, parts: Array) -> Array:
    """(M,) parts of sets from (K,) parts of items."""
    if problem.mode is Mode.LOTTERY:
        return parts.astype(np.float64)
    if not problem.held.any():
        return parts
    found = np.bincount(items.of, parts * items.part, len(problem.size))
    return np.clip(found, 0.0, 1.0)
