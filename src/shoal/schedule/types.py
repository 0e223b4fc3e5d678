"""Inputs and results of a scheduling decision: jobs, pools, the problem, the allocation.

A problem is columnar, because a cluster may have a hundred thousand jobs: no object per job is needed. `problem_of`
in `build.py` makes one from `JobView`s. Throughout, `m` is the number of jobs and `n` the number of columns; a column
is a way to run on a pool (`Column`). Arrays are read-only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.core import Invalid, Money, Tenant, Throughput
from shoal.schedule.validate import faults

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


Prices = tuple[Array, ...]
Tried = tuple[Prices, ...]
"""For each step of a search, prices (r,) worth trying first."""


def positions(mask: NDArray[Any]) -> Index:
    """(k,) where a mask (m,) is true: `np.flatnonzero` without its layers, which cost more than small problems do."""
    return mask.nonzero()[0]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to run an elastic job: this many accelerators of a type, and the goodput it then has."""

    type: str
    accelerators: int
    goodput: Throughput


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as a policy sees it. Times are Unix seconds, throughputs steps per second of the whole gang.

    `throughput` has an entry for each accelerator type that the job can run on. `work_left` is in steps; None means
    unknown. `entity` is the group it belongs to in hierarchical fairness (its tenant, unless told). `kind` names its
    model and batch size for co-location tables. `ran_s` is all the time it has run, `placed` the column it runs on
    now, `placed_s` since how long, and it is held there until `min_run_s`. `isolated_s` is how long the work done so
    far would have taken in an isolated share (the time since arrival, unless told).
    """

    id: str
    tenant: str
    throughput: Mapping[str, Throughput]
    gang: int = 1
    weight: float = 1.0
    work_left: float | None = None
    deadline: float | None = None
    arrived: float = 0.0
    ran_s: float = 0.0
    placed: str | None = None
    placed_s: float = 0.0
    min_run_s: float = 0.0
    restarts: int = 0
    isolated_s: float | None = None
    entity: str | None = None
    kind: str | None = None
    elastic: tuple[Configuration, ...] = ()


FREE = Money()


@dataclass(frozen=True, slots=True)
class Pool:
    """Accelerators of one type in one zone.

    `unconsolidated` is the throughput key of gangs that are spread over more machines than they need; a pool that has
    one is offered in both ways, and `per_node` then bounds how many gangs can run consolidated.
    """

    type: str
    count: int
    price_per_hour: Money = FREE
    zone: str = ""
    per_node: int | None = None
    unconsolidated: str | None = None


class Column(NamedTuple):
    """A way to run: on `pool` (an index), at the rates that jobs give for `key`; `spread` over machines or not."""

    name: str
    key: str
    pool: int
    spread: bool


class Configurations(NamedTuple):
    """Elastic configurations of all jobs, sorted by job: which job (k,), column (k,), accelerators (k,), goodput (k,)
    in steps per second."""

    job: Index
    column: Index
    accelerators: Index
    goodput: Array


class Pairs(NamedTuple):
    """Time that two jobs share one gang's accelerators: jobs (k,) and (k,), column (k,), fraction of wall time (k,)."""

    first: Index
    second: Index
    column: Index
    share: Array


class QuotaOf(NamedTuple):
    """How many accelerators the `tenant` (an index) may hold at most in these `columns` (n,) together."""

    tenant: int
    name: str
    columns: Mask
    most: int


def no_pairs() -> Pairs:
    none = np.empty(0, np.intp)
    return Pairs(none, none, none, np.empty(0))


def columns_of(pools: Sequence[Pool]) -> tuple[Column, ...]:
    """One column per pool, and a second one for pools that are also offered unconsolidated."""
    types = [pool.type for pool in pools]
    found: list[Column] = []
    for at, pool in enumerate(pools):
        zone = f"@{pool.zone}" if types.count(pool.type) > 1 else ""
        found.append(Column(pool.type + zone, pool.type, at, False))
        if pool.unconsolidated is not None:
            found.append(Column(pool.unconsolidated + zone, pool.unconsolidated, at, True))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Problem:
    """A snapshot that a policy decides on; `Problem.columnar` fills in what is left out.

    `rate` (m, n) is steps per second of job i in column j, zero where it cannot run, `rate_std` its standard
    deviation. `gang` (m,) accelerators, all of one column. `work_left` (m,) steps, NaN where unknown; `deadline` (m,),
    infinite where there is none; `placed` (m,) column or -1; `held` (m,) true where a job may not be moved yet.
    `tenant`, `entity` and `kind` (m,) index `tenants`, `entities` and the co-location table: `pair_rate`
    (kinds, kinds, n) is the rate of the first kind beside the second one, zero where they do not fit together.
    The other fields mean what they mean in `JobView`. Raises `Invalid` with every fault found.
    """

    pools: tuple[Pool, ...]
    now: float
    ids: Sequence[str]
    rate: Array
    rate_std: Array
    gang: Index
    weight: Array
    work_left: Array
    deadline: Array
    arrived: Array
    ran_s: Array
    isolated_s: Array
    placed: Index
    held: Mask
    restarts: Index
    tenant: Index
    entity: Index
    kind: Index
    tenants: tuple[Tenant, ...] = (Tenant("default"),)
    entities: tuple[str, ...] = ("default",)
    pair_rate: Array | None = None
    configurations: Configurations | None = None

    def __post_init__(self) -> None:
        found = tuple(faults(self))
        if found:
            raise Invalid(f"{len(found)} faults in the problem, the first: {found[0]}", problems=found)
        self._seal()

    def _seal(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @classmethod
    def columnar(
        cls, pools: Sequence[Pool], rate: ArrayLike, *, now: float = 0.0, ids: Sequence[str] | None = None, **given: Any
    ) -> Self:
        """A problem from arrays: `rate` (m, n) and whichever other fields there are, scalars broadcast. What is left
        out takes the default it has in `JobView`. The arrays are copied."""
        table = np.array(rate, np.float64, order="F")
        jobs = len(table)
        arrived = np.asarray(given.get("arrived", now), np.float64)
        defaults: dict[str, Any] = {
            "gang": 1, "weight": 1.0, "work_left": np.nan, "deadline": np.inf, "arrived": now, "ran_s": 0.0,
            "isolated_s": np.maximum(now - arrived, 0.0), "placed": -1, "held": False, "restarts": 0, "tenant": 0,
            "entity": given.get("tenant", 0), "kind": 0,
        }  # fmt: skip
        kinds = {name: np.asarray(default).dtype for name, default in defaults.items()}
        for name, default in defaults.items():
            value = np.asarray(given.pop(name, default))
            if value.shape not in ((), (jobs,)):
                raise Invalid(f"expected {jobs} values, got the shape {value.shape}", where=name)
            given[name] = np.empty(jobs, kinds[name])
            given[name][:] = value
            if kinds[name] == np.intp and (given[name] != value).any():
                raise Invalid("must be whole numbers", where=name)
        given["rate_std"] = np.array(np.broadcast_to(given.pop("rate_std", 0.0), table.shape), np.float64, order="F")
        tenants = given.pop("tenants", (Tenant("default"),))
        given.setdefault("entities", tuple(tenant.name for tenant in tenants))
        names = list(map(str, range(jobs))) if ids is None else ids
        return cls(pools=tuple(pools), now=now, ids=names, rate=table, tenants=tuple(tenants), **given)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return columns_of(self.pools)

    @property
    def jobs(self) -> int:
        return len(self.rate)

    @cached_property
    def pool_of(self) -> Index:
        """(n,) the pool of each column."""
        return np.array([column.pool for column in self.columns], np.intp)

    @cached_property
    def counts(self) -> Array:
        """(pools,) accelerators."""
        return np.array([pool.count for pool in self.pools], np.float64)

    @cached_property
    def usd_per_hour(self) -> Array:
        """(n,) price of one accelerator in each column."""
        return np.array([self.pools[at].price_per_hour.micro_usd / 1e6 for at in self.pool_of])

    @cached_property
    def possible(self) -> Mask:
        """(m, n) where a job can run at all: a positive rate, and a pool and a quota that its gang fits in; for elastic
        jobs, a configuration that does."""
        most = np.tile(self.counts[self.pool_of], (len(self.tenants), 1))
        for quota in self.quotas:
            most[quota.tenant, quota.columns] = np.minimum(most[quota.tenant, quota.columns], quota.most)
        fits: Mask = (self.rate > 0) & (self.gang[:, None] <= most[self.tenant])
        if (ways := self.configurations) is not None:
            able = (ways.accelerators <= most[self.tenant[ways.job], ways.column]) & (ways.goodput > 0.0)
            fits[np.unique(ways.job)] = False
            fits[ways.job[able], ways.column[able]] = True
        return fits

    @cached_property
    def least(self) -> Index:
        """(m,) the least number of accelerators that each job can have."""
        found = self.gang.astype(np.intp)
        if (ways := self.configurations) is not None:
            found[ways.job] = np.iinfo(np.intp).max
            np.minimum.at(found, ways.job, ways.accelerators)
        return found

    @cached_property
    def least_pace(self) -> Array:
        """(m,) steps per second of each job at its least size where it is fastest."""
        found: Array = self.rate.max(axis=1, initial=0.0)
        if (ways := self.configurations) is not None:
            found[ways.job] = 0.0
            own = ways.accelerators == self.least[ways.job]
            np.maximum.at(found, ways.job[own], ways.goodput[own])
        return np.maximum(found, 1e-300)

    @cached_property
    def quotas(self) -> tuple[QuotaOf, ...]:
        types = np.array([self.pools[pool].type for pool in self.pool_of], np.str_)
        return tuple(
            QuotaOf(at, f"quota of {tenant.name}: {kind or 'all types'}", (types == kind) | (kind is None), limit)
            for at, tenant in enumerate(self.tenants)
            for kind, limit in ((None, tenant.quota.accelerators), *tenant.quota.by_type)
            if limit is not None
        )

    def rows(self, jobs: Index, **changed: Any) -> Problem:
        """The problem of some jobs, not checked again, since rows of a sound problem are sound. A caller that gives
        fields anew (`ids` and `configurations` must be, tenants and pools cannot) answers for what is in them."""
        known = {name: getattr(self, name) for name in _SHARED}
        known |= {name: getattr(self, name).T.take(jobs, axis=-1).T for name in (*_BY_JOB, "possible")}
        return _unchecked(known | changed)

    def again(self, **changed: Any) -> Problem:
        """The same jobs at another time, not checked again: rates, gangs, tenants and pools cannot change."""
        return _unchecked(vars(self) | changed)


_SHARED = ("pools", "now", "tenants", "entities", "pair_rate", "columns", "pool_of", "counts", "usd_per_hour", "quotas")
_BY_JOB = (
    "rate", "rate_std", "gang", "weight", "work_left", "deadline", "arrived", "ran_s", "isolated_s", "placed", "held",
    "restarts", "tenant", "entity", "kind",
)  # fmt: skip
"""What all jobs of a problem have in common, and what each has of its own."""


def _unchecked(values: Mapping[str, Any]) -> Problem:
    made = object.__new__(Problem)
    vars(made).update(values)
    made._seal()
    return made


@dataclass(frozen=True, slots=True)
class Certificate:
    """How good an allocation is: the value it reaches, and a bound that no allocation can pass.

    `sense` is "max" or "min"; `gap` is relative to the bound.
    """

    objective: str
    value: float
    bound: float
    sense: str = "max"

    @property
    def gap(self) -> float:
        return abs(self.bound - self.value) / max(abs(self.bound), 1e-300)


@dataclass(frozen=True, eq=False)
class Allocation:
    """What a policy decided.

    `share` (m, n) is the fraction of wall time that job i runs alone in column j, `pairs` what it runs beside another.
    `prices` (pools,) is what one more accelerator of a pool would add to the objective, so the ratio of two prices
    says what an hour on one is worth in hours on the other; zero means that some of the pool is left over. `limits`
    has the same for quotas and other named constraints. `configuration` (m,) is the chosen elastic configuration or
    -1. Heuristics, which prove nothing, have no certificate. `facts` says how it was solved, and
    `tried` with which prices of which `limited` constraints: a search for a problem that differs a little begins there.
    `fair` is what max-min fairness gives the same jobs, where the policy bounds how far a job falls behind that.
    """

    problem: Problem
    policy: str
    share: Array
    prices: Array
    certificate: Certificate | None = None
    pairs: Pairs = field(default_factory=no_pairs)
    limits: Mapping[str, float] = field(default_factory=dict)
    configuration: Index | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    limited: tuple[str, ...] = ()
    tried: Tried = ()
    fair: Allocation | None = None

    @cached_property
    def time(self) -> Array:
        """(m,) fraction of wall time that each job runs, alone or beside another."""
        total: Array = self.share.sum(axis=1)
        np.add.at(total, self.pairs.first, self.pairs.share)
        np.add.at(total, self.pairs.second, self.pairs.share)
        return total

    @cached_property
    def throughput(self) -> Array:
        """(m,) steps per second that each job has over time (Gavel's effective throughput)."""
        problem = self.problem
        total: Array = np.einsum("ij,ij->i", self.share, problem.rate)
        if self.configuration is not None and problem.configurations is not None:
            chosen = np.flatnonzero(self.configuration >= 0)
            total[chosen] = problem.configurations.goodput[self.configuration[chosen]]
        if len(self.pairs.share) and problem.pair_rate is not None:
            first, second = problem.kind[self.pairs.first], problem.kind[self.pairs.second]
            column, share = self.pairs.column, self.pairs.share
            np.add.at(total, self.pairs.first, share * problem.pair_rate[first, second, column])
            np.add.at(total, self.pairs.second, share * problem.pair_rate[second, first, column])
        return total

    @cached_property
    def usage(self) -> Array:
        """(pools,) accelerators in use on average."""
        problem = self.problem
        gang = problem.gang
        if self.configuration is not None and problem.configurations is not None:
            chosen = problem.configurations.accelerators[np.maximum(self.configuration, 0)]
            gang = np.where(self.configuration >= 0, chosen, gang)
        by_column: Array = gang.astype(np.float64) @ self.share
        np.add.at(by_column, self.pairs.column, self.pairs.share * gang[self.pairs.first])
        used: Array = np.bincount(problem.pool_of, by_column, minlength=len(problem.pools)).astype(np.float64)
        return used
