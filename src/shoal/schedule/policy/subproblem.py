"""The part that a policy decides about: the jobs that can run and may be moved, as a market.

Jobs that may not be moved yet keep their place and what they use; jobs that fit nowhere wait. The rest are the rows of
a `Market` whose constraints are pools, quotas, and whole nodes where a pool is also offered unconsolidated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from shoal.core import Invalid
from shoal.schedule.solve.market import Constraint, Market
from shoal.schedule.types import Array, Index, Mask, Problem, positions


@dataclass(frozen=True)
class Beside:
    """How jobs run beside others: `kind` (m,) indexes `rate` (kinds, kinds, n), the rate of the first kind beside the
    second one; only jobs with the same `gang` (m,) can share."""

    kind: Index
    gang: Index
    rate: Array


@dataclass(frozen=True)
class Subproblem:
    """`free` (k,) are the jobs decided about, the rows of `market` in this order; `kept` (m, n) are the shares of held
    jobs; the first constraints' rows are the pools `pools`. With `beside`, jobs may share accelerators."""

    problem: Problem
    free: Index
    kept: Array
    market: Market
    pools: Index
    beside: Beside | None

    @cached_property
    def gang(self) -> Array:
        return self.problem.gang[self.free].astype(np.float64)

    @cached_property
    def weight(self) -> Array:
        return self.problem.weight[self.free]

    @cached_property
    def elapsed_s(self) -> Array:
        """(k,) seconds since each job arrived."""
        return np.maximum(self.problem.now - self.problem.arrived[self.free], 0.0)

    @cached_property
    def norm(self) -> Array:
        """(k,) the rate that each job has in a proportional share of all accelerators (Gavel's normaliser)."""
        part = self.problem.counts[self.problem.pool_of] * [not column.spread for column in self.problem.columns]
        # Summed column by column, so that equal jobs have equal norms to the last bit, wherever they stand.
        norm: Array = ((part / part.sum())[:, None] * self.market.rate).sum(axis=0)
        return norm

    @property
    def accelerators(self) -> Array:
        """(n,) how many held jobs leave in the pool of each column; none where gangs are spread."""
        counts = np.zeros(len(self.problem.pools))
        counts[self.pools] = self.market.limits[: len(self.pools)]
        return counts[self.problem.pool_of] * [not column.spread for column in self.problem.columns]

    @cached_property
    def work_left(self) -> Array:
        """(k,) steps. Raises `Invalid` if some are unknown."""
        left = self.problem.work_left[self.free]
        unknown = positions(np.isnan(left))
        if len(unknown):
            raise Invalid(
                f"this policy needs to know the work that is left, and {len(unknown)} jobs do not say",
                where=f"job {self.name(unknown[0])}",
                hint="give lengths or predictions of them, or choose a policy that needs none, such as max-min",
            )
        return left

    def name(self, row: int | np.intp) -> str:
        return str(self.problem.ids[int(self.free[row])])


def subproblem_of(problem: Problem, *, rate: Array | None = None, space_sharing: bool = False) -> Subproblem:
    """The subproblem of a problem; `rate` (m, n) replaces the measured rates in what the policy aims at, of which space
    sharing knows nothing."""
    if rate is not None and space_sharing:
        raise Invalid("space sharing needs measured rates, which an agnostic policy does not look at")
    held = positions(problem.held)
    kept = np.zeros(problem.rate.shape)
    left, fits = problem.counts, problem.possible.copy()
    if len(held):
        kept[held, problem.placed[held]] = 1.0
        used = np.bincount(problem.pool_of[problem.placed[held]], problem.gang[held], minlength=len(problem.pools))
        left = left - used
        fits &= problem.gang[:, None] <= left[problem.pool_of]
        fits[held] = False
    spread = [column.spread for column in problem.columns]
    if any(spread):
        fits[np.ix_(problem.gang == 1, spread)] = False
    nodes = list(_nodes(problem, held))
    for each in nodes:
        fits[:, each.column] &= each.needed <= each.left
    quotas = list(quotas_of(problem, held))
    for quota in quotas:
        fits[np.ix_(quota.rows, quota.columns)] &= problem.gang[quota.rows, None] <= quota.left
    aimed = problem.rate if rate is None else rate
    fits &= aimed > 0.0
    free = np.flatnonzero(fits.any(axis=1))
    rates = np.where(fits, aimed, 0.0).take(free, axis=0).T.copy()
    gang = problem.gang[free].astype(np.float64)
    pools = positions(left > 0.0)
    load = (problem.pool_of == pools[:, None]).astype(np.float64)
    names = tuple(_pool_name(problem, int(pool)) for pool in pools)
    constraints = [Constraint(names, gang, load, left[pools])]
    for each in nodes:
        if 0.0 < each.left < each.needed[free].sum():
            of_column = (np.arange(len(problem.columns)) == each.column)[None, :].astype(np.float64)
            constraints.append(Constraint((each.name,), each.needed[free], of_column, np.array([each.left])))
    for quota in quotas:
        weight = np.where(quota.rows[free], gang, 0.0)
        if 0.0 < quota.left < min(weight.sum(), left[np.unique(problem.pool_of[quota.columns])].sum()):
            columns = (quota.columns & load.any(axis=0))[None, :].astype(np.float64)
            constraints.append(Constraint((quota.name,), weight, columns, np.array([quota.left])))
    market = Market(rates, np.ones(len(free)), tuple(constraints))
    return Subproblem(problem, free, kept, market, pools, _beside(problem, free) if space_sharing else None)


def _pool_name(problem: Problem, pool: int) -> str:
    return next(column.name for column in problem.columns if column.pool == pool)


class Left(NamedTuple):
    """Of a tenant's quota: its jobs (m,), the columns (n,) that count, and what held jobs leave of it."""

    name: str
    rows: Mask
    columns: Mask
    left: float


def quotas_of(problem: Problem, held: Index) -> Iterator[Left]:
    """What is left of each quota when held jobs have what they have."""
    for quota in problem.quotas:
        rows = problem.tenant == quota.tenant
        mine = held[rows[held] & quota.columns[problem.placed[held]]]
        yield Left(quota.name, rows, quota.columns, float(quota.most - problem.gang[mine].sum()))


class _Nodes(NamedTuple):
    """Of a pool that is offered both ways: the column of consolidated gangs, how many whole nodes each job needs there
    (m,), and how many held jobs leave."""

    name: str
    column: int
    needed: Array
    left: float


def _nodes(problem: Problem, held: Index) -> Iterator[_Nodes]:
    """A consolidated gang takes whole nodes, and one with a rest of more than half a node takes that node too, as no
    two such rests fit in one (a dual feasible function of bin packing)."""
    for at, column in enumerate(problem.columns):
        pool = problem.pools[column.pool]
        if pool.unconsolidated is None or pool.per_node is None or column.spread:
            continue
        whole, rest = np.divmod(problem.gang, pool.per_node)
        needed = (whole + (2 * rest > pool.per_node)).astype(np.float64)
        left = -(-pool.count // pool.per_node) - needed[held[problem.placed[held] == at]].sum()
        yield _Nodes(f"nodes of {column.name}", at, needed, float(left))


def _beside(problem: Problem, free: Index) -> Beside:
    if problem.pair_rate is None:
        raise Invalid("space sharing needs the rates of co-located jobs, and the problem has none", where="pair_rate")
    return Beside(problem.kind[free], problem.gang[free].astype(np.float64), problem.pair_rate)
