"""The simulated cluster: accelerators, jobs with their true speeds, prices over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from shoal.core import Invalid
from shoal.schedule.types import Array, Configurations, Index, Mask, Pool, Problem, columns_of
from shoal.schedule.workloads.types import NAMED, PriceChange, Throughputs, Workload


@dataclass(frozen=True, eq=False)
class Cluster:
    """`rate` (m, n) is the true speed of each job alone in each column, for its own gang. With `pair_rate` (kinds,
    kinds, n) and `pair_kind` (m,), jobs may share accelerators. With `sizes`, jobs are elastic: `sizes[g]` (m, n) is
    their speed with g accelerators. Made by `cluster_of`."""

    workload: Workload
    pools: tuple[Pool, ...]
    rate: Array
    pair_rate: Array | None = None
    pair_kind: Index | None = None
    sizes: dict[int, Array] = field(default_factory=dict)
    prices: tuple[PriceChange, ...] = ()

    @property
    def resizable(self) -> int:
        """How many jobs a policy may give another size."""
        ways = sum(((speeds > 0.0).any(axis=1).astype(int) for speeds in self.sizes.values()), start=np.zeros(1, int))
        return int((ways > 1).sum())

    def ids_of(self, jobs: Index) -> list[str]:
        ids = self.workload.ids
        return [ids[at] for at in jobs.tolist()]

    def everybody(self, pools: tuple[Pool, ...]) -> Problem:
        """All jobs that ever come, as a policy would be shown them. Raises `Invalid` with every fault found."""
        work = self.workload
        kind = 0 if self.pair_kind is None else self.pair_kind
        return Problem.columnar(
            pools, self.rate, ids=work.ids, gang=work.gang, weight=work.weight, deadline=work.deadline,
            arrived=work.arrived, isolated_s=0.0, tenant=work.tenant, kind=kind,
            tenants=work.tenants, pair_rate=self.pair_rate, configurations=self._configurations(np.arange(work.jobs)),
        )  # fmt: skip

    def problem(self, everybody: Problem, jobs: Index, **state: Any) -> Problem:
        """What a policy is shown of these of all jobs; `state` are the fields that change."""
        configurations = self._configurations(jobs)
        return everybody.rows(jobs, ids=self.ids_of(jobs), configurations=configurations, **state)

    def speed(self, jobs: Index, column: Index, accelerators: Index) -> Array:
        """(k,) how fast jobs are alone in these columns, with this number of accelerators."""
        rate: Array = self.rate[jobs, column]
        for size, speeds in self.sizes.items():
            mine = accelerators == size
            rate[mine] = speeds[jobs[mine], column[mine]]
        return rate

    @cached_property
    def _isolated(self) -> tuple[Array, Array]:
        """(m,) the speed of each job if its time is divided among all pools as these are large, and the number of jobs
        up to which an isolated share is all of that time. Gangs are together."""
        columns = columns_of(self.pools)
        counts = np.array([0.0 if column.spread else self.pools[column.pool].count for column in columns])
        return self.rate @ (counts / counts.sum()), counts.sum() / self.workload.gang

    def alone(self, jobs: Index, among: int) -> Array:
        """(k,) the speed that each of these jobs has in an isolated share, if this number of jobs divides all pools
        evenly."""
        whole, enough = self._isolated
        speed: Array = whole[jobs] * np.minimum(enough[jobs] / among, 1.0)
        return np.where(speed > 0.0, speed, 1.0)

    def stuck(self, jobs: Index, policy: str) -> Invalid:
        """What to raise where these jobs never come to run."""
        return Invalid(
            f"{policy} never lets {len(jobs)} jobs run, among them {', '.join(self.ids_of(jobs[:5]))}",
            where=self.workload.where(int(jobs[0])),
            hint="its gang, its tenant's quota or its deadline may leave no room",
        )

    def _configurations(self, jobs: Index) -> Configurations | None:
        if not self.sizes:
            return None
        sizes = np.array(sorted(self.sizes))
        speeds = np.stack([self.sizes[int(size)][jobs] for size in sizes], axis=2)
        row, column, at = np.nonzero(speeds > 0.0)
        return Configurations(row, column, sizes[at], speeds[row, column, at])


def cluster_of(
    workload: Workload,
    pools: Sequence[Pool],
    throughputs: Throughputs,
    *,
    space_sharing: bool = False,
    elastic: bool = False,
    prices: Sequence[PriceChange] = (),
) -> Cluster:
    """Raises `Invalid`, with the file and the line, for jobs of unknown speed or with gangs that fit nowhere."""
    columns = columns_of(pools)
    keys = [column.key for column in columns]
    rate, rows = throughputs.of(workload, keys)
    counts = np.array([pools[column.pool].count for column in columns])
    spread = np.array([column.spread for column in columns])
    fits = (rate > 0.0) & (workload.gang[:, None] <= counts)
    fits[np.ix_(workload.gang == 1, spread)] = False
    sizes: dict[int, Array] = {}
    if elastic:
        sizes = _elastic(workload, throughputs, keys, counts)
        fits |= np.any([speeds > 0.0 for speeds in sizes.values()], axis=0)
    _impossible(workload, pools, rate, fits)
    pair_rate, pair_kind = throughputs.beside(workload, rows, keys) if space_sharing else (None, None)
    known = {pool.type for pool in pools}
    ordered = tuple(sorted((change for change in prices if change.type in known), key=lambda change: change.at_s))
    return Cluster(workload, tuple(pools), rate, pair_rate, pair_kind, sizes, ordered)


def _elastic(workload: Workload, throughputs: Throughputs, keys: list[str], counts: Index) -> dict[int, Array]:
    """The speed of each job with each number of accelerators that its kind was measured with."""
    at = throughputs.at(keys)
    every = sorted({gang for _, gang in throughputs.keys if gang <= counts.max(initial=0)})
    sizes = {}
    for size in every:
        rows = np.array([throughputs.keys.get((kind, size), -1) for kind in workload.kinds])
        speeds = np.nan_to_num(throughputs.rate[rows][:, at]) * (rows >= 0)[:, None] * (size <= counts)
        sizes[size] = speeds[workload.kind]
    return sizes


def _impossible(workload: Workload, pools: Sequence[Pool], rate: Array, fits: Mask) -> None:
    stuck = np.flatnonzero(~fits.any(axis=1))
    if not len(stuck):
        return
    sizes = ", ".join(f"{pool.count} {pool.type}" for pool in pools)
    problems = tuple(
        Invalid(
            f"a gang of {workload.gang[job]} fits in no pool ({sizes})" if (rate[job] > 0.0).any()
            else f"{workload.kinds[workload.kind[job]]!r} runs on none of these types ({sizes})",
            where=workload.where(int(job)),
        )
        for job in stuck[:NAMED]
    )  # fmt: skip
    raise Invalid(
        f"{len(stuck)} jobs could never run, the first: {problems[0].what}", where=problems[0].where,
        hint="add accelerators, or leave these jobs out", problems=problems,
    )  # fmt: skip
