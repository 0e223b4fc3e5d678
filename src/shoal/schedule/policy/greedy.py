"""Shared parts of the heuristics: whole gangs on whole accelerators, one at a time, within pools and quotas."""

from __future__ import annotations

import numpy as np

from shoal.schedule.policy.finish import allocation
from shoal.schedule.policy.solving import Outcome
from shoal.schedule.policy.subproblem import Subproblem
from shoal.schedule.types import Allocation, Array, Index, Mask, Pairs, no_pairs


class Room:
    """What is still free in a subproblem; each job put somewhere takes its gang for all of the time."""

    def __init__(self, sub: Subproblem) -> None:
        self._market = sub.market
        self._left = [each.limit.copy() for each in sub.market.constraints]
        self.column = np.full(len(sub.free), -1, np.intp)

    def fits(self, row: int) -> Mask:
        """(n,) the columns that the job can have now."""
        fits: Mask = self._market.rate[:, row] > 0.0
        for each, left in zip(self._market.constraints, self._left, strict=True):
            fits &= (each.load * each.weight[row] <= left[:, None] + 1e-9).all(axis=0)
        return fits

    def pools_allow(self, row: int) -> bool:
        """False when the pools, and not only a quota of the job's own tenant, keep it waiting."""
        pools = self._market.constraints[0]
        room = (pools.load * pools.weight[row] <= self._left[0][:, None] + 1e-9).all(axis=0)
        return bool((room & (self._market.rate[:, row] > 0.0)).any())

    def put(self, row: int, column: int) -> None:
        self.column[row] = column
        for each, left in zip(self._market.constraints, self._left, strict=True):
            left -= each.load[:, column] * each.weight[row]


def placed(sub: Subproblem, column: Index, policy: str, pairs: Pairs | None = None) -> Allocation:
    """The allocation in which each job has all of its column, (k,), or nothing where that is -1."""
    return shared(sub, sub.market.whole(column), policy, pairs)


def shared(sub: Subproblem, shares: Array, policy: str, pairs: Pairs | None = None) -> Allocation:
    """The allocation of shares (n, k) that nothing is proven about."""
    none = np.zeros(len(sub.market.limits))
    rates = sub.market.rates_of(shares)
    outcome = Outcome(shares, rates, none, 0.0, 0.0, pairs if pairs is not None else no_pairs())
    return allocation(sub, outcome, policy=policy)


def by_arrival(sub: Subproblem) -> Index:
    """The rows, oldest job first."""
    return np.argsort(sub.problem.arrived[sub.free], kind="stable")


def combined(sub: Subproblem, one: int, other: int) -> Array:
    """(n,) the normalised throughput of two jobs beside each other: the sum of what each keeps of its rate alone; zero
    where they cannot share."""
    beside, market = sub.beside, sub.market
    if beside is None or beside.gang[one] != beside.gang[other]:
        return np.zeros(len(market.rate))
    first = beside.rate[beside.kind[one], beside.kind[other]]
    second = beside.rate[beside.kind[other], beside.kind[one]]
    alone = market.rate[:, [one, other]]
    able = (first > 0.0) & (second > 0.0) & (alone > 0.0).all(axis=1)
    safe = np.where(able[:, None], alone, 1.0)
    return np.where(able, first / safe[:, 0] + second / safe[:, 1], 0.0)
