"""Certificate: the distance of an allocation from the proportionally fair one, computed from the allocation alone.

`gap = max over feasible S of sum_i w_i V_i(S) / V_i(x) / sum_i w_i - 1`. It is 0 at the optimum, and where it is g, no
group of tenants with a part of the weights could save more for all its members with that part of the time, but for a
factor of 1 + g (the core). For g near 0 this includes each tenant alone: V_i(x) >= w_i / sum w.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shoal.cache.policy.claims import Claims, claims_of
from shoal.cache.policy.problem import TINY

if TYPE_CHECKING:
    from shoal.cache.policy.problem import Allocation, Array, Problem


@dataclass(frozen=True, slots=True)
class Certificate:
    """`gap` as above, infinite where a tenant with a claim gets nothing. `saved` (N,) is what each tenant is expected
    to save, `alone` (N,) what it would with the whole cache. `claim` (N,) is its weight over those of all tenants that
    could save anything; 0 for the others."""

    gap: float
    saved: Array
    alone: Array
    claim: Array

    @property
    def scaled(self) -> Array:
        """(N,): saved over alone; 1 for a tenant that could save nothing."""
        return np.divide(self.saved, self.alone, out=np.ones_like(self.saved), where=self.alone > 0)

    @property
    def smallest(self) -> float:
        """The smallest scaled utility of a tenant with a claim; 1 without one."""
        return float(self.scaled[self.claim > 0].min(initial=1.0))

    def incentive_broken(self, tolerance: float = 2e-3) -> bool:
        """Whether a tenant gets less than its part of the time: `V_i < w_i / sum w`."""
        return bool((self.scaled < self.claim - tolerance).any())


def certify(problem: Problem, allocation: Allocation) -> Certificate:
    return certificate_of(claims_of(problem), allocation)


def certificate_of(claims: Claims, allocation: Allocation) -> Certificate:
    saved = allocation.utility(claims.problem)
    claim = np.zeros(len(saved))
    claim[claims.active] = claims.share
    return Certificate(_gap(claims, saved), saved, claims.alone, claim)


def _gap(claims: Claims, saved: Array) -> float:
    if not len(claims.active):
        return 0.0
    scaled = saved[claims.active] / claims.alone[claims.active]
    if (scaled <= TINY).any():
        return float("inf")
    return max(claims.oracle.best((claims.share / scaled) @ claims.value).bound - 1.0, 0.0)
