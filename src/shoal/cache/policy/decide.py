"""One decision: what the cache holds from now on, how fair that is, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from shoal.cache.policy import fractional, lottery, max_min
from shoal.cache.policy.certificate import Certificate, certificate_of
from shoal.cache.policy.claims import Claims, claims_of, own_parts
from shoal.cache.policy.problem import TINY, Allocation, Mode
from shoal.cache.policy.reasons import explain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from shoal.cache.policy.problem import Array, Problem
    from shoal.core import Reason

TOLERANCE = 5e-4
"""The gap at which a solver stops: half of the 0.1 % that is promised."""


class Policy(Protocol):
    """Who gets how much. Pure: the same problem has the same answer."""

    def __call__(self, claims: Claims, tolerance: float = TOLERANCE) -> Allocation: ...


def proportional(claims: Claims, tolerance: float = TOLERANCE) -> Allocation:
    """Proportional fairness, the default."""
    if claims.problem.mode is Mode.LOTTERY:
        return lottery.proportional(claims, tolerance)
    return fractional.proportional(claims, tolerance)


def max_min_fair(claims: Claims, tolerance: float = TOLERANCE) -> Allocation:
    """Max-min fairness: exact, whatever the tolerance."""
    del tolerance
    return max_min.lottery(claims) if claims.problem.mode is Mode.LOTTERY else max_min.fractional(claims)


POLICIES: Mapping[str, Policy] = {"pf": proportional, "mmf": max_min_fair}


@dataclass(frozen=True, slots=True)
class Decision:
    """What is kept, and how fair that is."""

    claims: Claims
    allocation: Allocation
    certificate: Certificate

    @property
    def problem(self) -> Problem:
        return self.claims.problem

    def own(self) -> Array:
        """(N,): what each tenant would save with its part of the bytes for itself."""
        found: Array = (self.claims.items.value * own_parts(self.claims)).sum(1)
        return found

    def explain(self) -> dict[str, Reason]:
        """Why: one reason for each set, and one for each tenant without a claim, by its name."""
        return explain(self.claims, self.allocation, self.certificate)


def decide(problem: Problem, policy: Policy = proportional, tolerance: float = TOLERANCE) -> Decision:
    """Raises nothing for a problem that was checked: without claims, what is held stays as far as it fits."""
    claims = claims_of(problem)
    allocation = _allocate(claims, policy, tolerance)
    return Decision(claims, allocation, certificate_of(claims, allocation))


def allocate(problem: Problem, policy: Policy = proportional, tolerance: float = TOLERANCE) -> Allocation:
    """The policy's answer, with what is held already kept where it leaves room."""
    return _allocate(claims_of(problem), policy, tolerance)


def _allocate(claims: Claims, policy: Policy, tolerance: float) -> Allocation:
    problem = claims.problem
    found = policy(claims, tolerance) if len(claims.active) else Allocation.certain(np.zeros(len(problem.size)))
    if not problem.held.any():
        return found
    order = _retention_order(problem)
    return Allocation(tuple(
        replace(one, fractions=_retained(problem, one.fractions, order)) for one in found.configurations
    ))  # fmt: skip


def _retention_order(problem: Problem) -> NDArray[np.intp]:
    """Held sets, the one that saves most a byte first."""
    density = problem.benefit.sum(0) / np.maximum(problem.size, TINY)
    held = np.flatnonzero(problem.held > 0)
    order: NDArray[np.intp] = held[np.argsort(-density[held], kind="stable")]
    return order


def _retained(problem: Problem, fractions: Array, order: NDArray[np.intp]) -> Array:
    left = problem.capacity - float(problem.size @ fractions)
    made = fractions.copy()
    for at in order:
        missing = (problem.held[at] - made[at]) * problem.size[at]
        if missing <= 0:
            continue
        if problem.mode is Mode.LOTTERY:
            if missing > left:
                continue
            made[at] = 1.0
        else:
            missing = min(missing, max(left, 0.0))
            made[at] = min(made[at] + missing / problem.size[at], 1.0)
        left -= missing
    return made
