"""Inputs of a simulation: the jobs, and how fast each kind of job is on each type of accelerator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from shoal.core import Invalid, Tenant
from shoal.schedule.types import Array, Index

NAMED = 10
"""Faults of one sort that are listed; a file that is wrong throughout need not be listed whole."""


@dataclass(frozen=True, slots=True)
class PriceChange:
    """From this second on, an accelerator of this type costs this price."""

    at_s: float
    type: str
    usd_per_hour: float


@dataclass(frozen=True, eq=False)
class Workload:
    """`m` jobs in order of arrival. `kind` (m,) indexes `kinds`, `tenant` (m,) indexes `tenants`; `steps` (m,) of
    work, `gang` (m,) accelerators, `arrived` (m,) and `deadline` (m,) in seconds (infinite where there is none).
    `line` (m,) is where in `source` each job stands."""

    source: str
    ids: Sequence[str]
    kinds: tuple[str, ...]
    kind: Index
    arrived: Array
    steps: Array
    gang: Index
    weight: Array
    deadline: Array
    tenant: Index
    line: Index
    tenants: tuple[Tenant, ...] = (Tenant("default"),)

    @classmethod
    def of(cls, source: str, kinds: tuple[str, ...], *, steps: Array, **given: Any) -> Self:
        """With what is left out as usual: jobs named by their positions, one a line, of weight one, without deadlines
        and of one tenant."""
        jobs = len(steps)
        usual: dict[str, Any] = {
            "ids": list(map(str, range(jobs))), "weight": np.ones(jobs), "deadline": np.full(jobs, np.inf),
            "tenant": np.zeros(jobs, np.intp), "line": np.arange(1, jobs + 1),
        }  # fmt: skip
        return cls(source=source, kinds=kinds, steps=steps, **usual | given)

    @property
    def jobs(self) -> int:
        return len(self.steps)

    def where(self, job: int) -> str:
        """For an error: the file and line that the job comes from."""
        return f"{self.source}:{self.line[job]}"

    def first(self, count: int) -> Workload:
        """The first `count` jobs."""
        columns = ("ids", "kind", "arrived", "steps", "gang", "weight", "deadline", "tenant", "line")
        return replace(self, **{name: getattr(self, name)[:count] for name in columns})


@dataclass(frozen=True, eq=False)
class Throughputs:
    """Measured speeds. `rate` (k, types) is steps per second of each (kind, gang) of `keys`, NaN where it was not
    measured, zero where it does not fit; `pair` (k, k, types) is the rate of the first beside the second, NaN where
    the pair was not measured. With `scaled`, a gang that was not measured has the rate per accelerator of the largest
    measured one that is smaller."""

    source: str
    types: tuple[str, ...]
    keys: Mapping[tuple[str, int], int]
    rate: Array
    pair: Array
    scaled: bool = False
    lines: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @cached_property
    def gangs(self) -> Mapping[str, tuple[int, ...]]:
        """The gang sizes that each kind was measured with."""
        found: dict[str, list[int]] = {}
        for kind, gang in self.keys:
            found.setdefault(kind, []).append(gang)
        return {kind: tuple(sorted(sizes)) for kind, sizes in found.items()}

    def at(self, types: Sequence[str]) -> list[int]:
        """The columns of these types. Raises `Invalid` for one that was never measured."""
        missing = [name for name in types if name not in self.types]
        if missing:
            raise Invalid(
                f"no throughputs for {', '.join(missing)}", where=self.source, hint=f"it has {', '.join(self.types)}"
            )
        return [self.types.index(name) for name in types]

    def of(self, workload: Workload, types: Sequence[str]) -> tuple[Array, Index]:
        """(m, types) the rate of each job alone, zero where it cannot run, and (m,) its row of `pair`, or -1. Raises
        `Invalid`, naming the lines of the trace, for jobs that no throughput is known of."""
        columns = self.at(types)
        rows, scale = np.full(workload.jobs, -1, np.intp), np.ones(workload.jobs)
        pairs = np.stack([workload.kind, workload.gang], axis=1)
        unique, inverse = np.unique(pairs, axis=0, return_inverse=True)
        problems: list[Invalid] = []
        for at, (kind, gang) in enumerate(unique.tolist()):
            mine = inverse.reshape(-1) == at
            found = self.nearest(workload.kinds[kind], gang)
            if found is None:
                job = int(np.flatnonzero(mine)[0])
                problems.append(self._unknown(workload, job))
                continue
            rows[mine], scale[mine] = self.keys[workload.kinds[kind], found], gang / found
        if problems:
            raise Invalid(
                f"{len(problems)} kinds of job have no throughput, the first: {problems[0].what}",
                where=problems[0].where, hint=problems[0].hint, problems=tuple(problems[:NAMED]),
            )  # fmt: skip
        rate = np.nan_to_num(self.rate[rows][:, columns]) * scale[:, None]
        return rate, np.where(scale == 1.0, rows, -1)

    def beside(self, workload: Workload, rows: Index, types: Sequence[str]) -> tuple[Array, Index]:
        """(kinds, kinds, types) rates of co-located jobs for a problem, and (m,) the kind of each job in it. Only jobs
        of equal gangs share. Raises `Invalid` for pairs in the workload that were never measured."""
        used, kind = np.unique(rows, return_inverse=True)
        columns = self.at(types)
        names = {row: key for key, row in self.keys.items()}
        if (used < 0).any():
            job = int(np.flatnonzero(rows < 0)[0])
            raise Invalid("a gang that was not measured cannot share accelerators", where=workload.where(job))
        gangs = np.array([names[int(row)][1] for row in used])
        table = self.pair[np.ix_(used, used)][:, :, columns]
        same = gangs[:, None] == gangs[None, :]
        missing = np.isnan(table).any(axis=2) & same
        if missing.any():
            first, second = (names[int(used[at])] for at in np.argwhere(missing)[0])
            raise Invalid(
                f"no throughput of {first[0]!r} beside {second[0]!r}, gangs of {first[1]}",
                where=f"{self.source}:{self.lines.get(first, 1)}",
                hint="measure the pair (zeros say that the two do not fit together), or leave out --space-sharing",
            )
        return np.where(same[:, :, None], np.nan_to_num(table), 0.0), kind.reshape(-1)

    def nearest(self, kind: str, gang: int) -> int | None:
        """The measured gang by which the speed of this one is known."""
        sizes = self.gangs.get(kind, ())
        if gang in sizes:
            return gang
        smaller = [size for size in sizes if size < gang]
        return smaller[-1] if self.scaled and smaller else None

    def _unknown(self, workload: Workload, job: int) -> Invalid:
        kind, gang = workload.kinds[workload.kind[job]], int(workload.gang[job])
        sizes = self.gangs.get(kind)
        what = f"no throughput for {kind!r} with a gang of {gang} in {self.source}"
        hint = (
            f"it has gangs of {', '.join(map(str, sizes))}; or --scale-gangs"
            if sizes
            else "it does not know this kind of job at all"
        )
        return Invalid(what, where=workload.where(job), hint=hint)
