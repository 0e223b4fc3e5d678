"""Shoal's own event log: the live state as JSON lines, for deciding on it anew and for what-if simulation.

The first line says what it is and when it was taken; each other line is one thing. Lines may come in any order, and
later lines about the same job or pool replace earlier ones, so that a log of events is a snapshot as well:

    {"shoal": "schedule", "version": 1, "now": 1700000000.0}
    {"pool": "v100", "count": 8, "usd_per_hour": 2.48, "per_node": 4, "zone": "a", "unconsolidated": "v100_far"}
    {"tenant": "vision", "weight": 2.0, "accelerators": 16, "by_type": {"v100": 4}}
    {"job": "j1", "tenant": "vision", "throughput": {"v100": 31.2, "k80": [4.8, 0.5]}, "gang": 2, "work_left": 1e6}
    {"beside": ["resnet", "lm"], "type": "v100", "rates": [20.1, 12.5]}
    {"ended": "j0"}

A throughput is steps per second, or that and its standard deviation. The other fields of a job are those of `JobView`
(`weight`, `deadline`, `arrived`, `ran_s`, `placed`, `placed_s`, `min_run_s`, `restarts`, `isolated_s`, `entity`,
`kind`), and `elastic`: a list of {"type", "accelerators", "goodput"}.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError

from shoal.base.validation import problems
from shoal.core import Invalid, Money, Quota, Tenant, Throughput
from shoal.schedule.build import problem_of
from shoal.schedule.types import Configuration, JobView, Pool, Problem
from shoal.schedule.workloads.files import Lines
from shoal.schedule.workloads.types import Throughputs, Workload


@dataclass(frozen=True)
class Snapshot:
    """What the log says; `lines` is where each job stands."""

    source: str
    now: float
    pools: tuple[Pool, ...]
    jobs: tuple[JobView, ...]
    tenants: tuple[Tenant, ...] = ()
    colocated: Mapping[tuple[str, str], Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    def problem(self) -> Problem:
        """What a policy is asked. Raises `Invalid` as `Problem` does."""
        return problem_of(
            self.jobs, self.pools, now=self.now, tenants=self.tenants, colocated=dict(self.colocated) or None
        )

    def workload(self) -> tuple[Workload, Throughputs]:
        """The same jobs to simulate from now on, each a kind of its own. Raises `Invalid` for jobs that do not say how
        much work they have left."""
        if not self.jobs:
            raise Invalid("there is no job in it", where=self.source)
        unknown = [job for job in self.jobs if job.work_left is None]
        if unknown:
            raise Invalid(
                f"{len(unknown)} jobs do not say how much work is left, and cannot be simulated",
                where=f"{self.source}:{self.lines.get(unknown[0].id, 1)}", hint="give work_left, in steps",
            )  # fmt: skip
        jobs = [job for job in self.jobs if job.work_left]
        types = tuple(dict.fromkeys(name for job in jobs for name in job.throughput))
        known = {tenant.name: tenant for tenant in self.tenants}
        for job in jobs:
            known.setdefault(job.tenant, Tenant(job.tenant))
        names = list(known)
        rates = {
            (job.id, job.gang): [job.throughput[t].per_s if t in job.throughput else np.nan for t in types]
            for job in jobs
        }
        for job in jobs:
            for way in job.elastic:
                if way.type in types:
                    row = rates.setdefault((job.id, way.accelerators), [np.nan] * len(types))
                    row[types.index(way.type)] = way.goodput.per_s
        rate, keys = np.array(list(rates.values())), {key: at for at, key in enumerate(rates)}
        count = len(jobs)
        work = Workload(
            source=self.source, ids=[job.id for job in jobs], kinds=tuple(job.id for job in jobs),
            kind=np.arange(count), arrived=np.zeros(count), steps=np.array([job.work_left for job in jobs], np.float64),
            gang=np.array([job.gang for job in jobs], np.intp), weight=np.array([job.weight for job in jobs]),
            deadline=np.array([np.inf if job.deadline is None else job.deadline - self.now for job in jobs]),
            tenant=np.array([names.index(job.tenant) for job in jobs], np.intp),
            line=np.array([self.lines.get(job.id, 1) for job in jobs], np.intp), tenants=tuple(known.values()),
        )  # fmt: skip
        pair = np.full((len(keys), len(keys), len(types)), np.nan)
        return work, Throughputs(self.source, types, keys, rate, pair)


def is_snapshot(path: Path | str) -> bool:
    """Whether a file begins as a snapshot does."""
    return bool(lines := Lines(path).lines) and lines[0].lstrip().startswith("{")


def read_snapshot(path: Path | str) -> Snapshot:
    """Raises `Invalid` naming the line of each fault."""
    return _Reader(path).read()


def snapshot_lines(
    jobs: tuple[JobView, ...], pools: tuple[Pool, ...], tenants: tuple[Tenant, ...] = (), *, now: float
) -> Iterator[str]:
    """The lines of a snapshot, to be written to a file."""
    things = [_Head(now=now), *map(_Pool.of, pools), *map(_Tenant.of, tenants), *map(_Job.of, jobs)]
    return (thing.model_dump_json(exclude_none=True) for thing in things)


def _parts(value: Any) -> Any:
    """Steps per second, or that and its standard deviation."""
    if isinstance(value, Throughput):
        return value
    parts = value if isinstance(value, list) else [value]
    if len(parts) > 2:
        raise ValueError("a throughput is steps per second, or that and its standard deviation")
    return dict(zip(("per_s", "std_per_s"), parts, strict=False))


_Speed = Annotated[Throughput, BeforeValidator(_parts), PlainSerializer(lambda found: [found.per_s, found.std_per_s])]


class _Thing(BaseModel):
    """What a line may say."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Head(_Thing):
    shoal: Literal["schedule"] = "schedule"
    version: Literal[1] = 1
    now: float


class _Pool(_Thing):
    pool: str
    count: int
    usd_per_hour: float = 0.0
    zone: str | None = None
    per_node: int | None = None
    unconsolidated: str | None = None

    @classmethod
    def of(cls, pool: Pool) -> _Pool:
        return cls(
            pool=pool.type, count=pool.count, usd_per_hour=pool.price_per_hour.micro_usd / 1e6, zone=pool.zone or None,
            per_node=pool.per_node, unconsolidated=pool.unconsolidated,
        )  # fmt: skip

    def told(self) -> Pool:
        price = Money.usd(self.usd_per_hour)
        return Pool(self.pool, self.count, price, self.zone or "", self.per_node, self.unconsolidated)


class _Tenant(_Thing):
    tenant: str
    weight: float = 1.0
    accelerators: int | None = None
    by_type: dict[str, int] | None = None

    @classmethod
    def of(cls, tenant: Tenant) -> _Tenant:
        quota = tenant.quota
        return cls(
            tenant=tenant.name, weight=tenant.weight, accelerators=quota.accelerators,
            by_type=dict(quota.by_type) or None,
        )  # fmt: skip

    def told(self) -> Tenant:
        return Tenant(self.tenant, self.weight, Quota(self.accelerators, tuple(sorted((self.by_type or {}).items()))))


class _Way(_Thing):
    type: str
    accelerators: int
    goodput: _Speed


class _Job(_Thing):
    """With the fields of `JobView`."""

    job: str
    tenant: str = "default"
    throughput: dict[str, _Speed]
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
    elastic: list[_Way] | None = None

    @classmethod
    def of(cls, job: JobView) -> _Job:
        ways = [_Way(type=each.type, accelerators=each.accelerators, goodput=each.goodput) for each in job.elastic]
        return cls(job=job.id, elastic=ways or None, **{name: getattr(job, name) for name in _ALIKE})

    def told(self) -> JobView:
        ways = tuple(Configuration(each.type, each.accelerators, each.goodput) for each in self.elastic or ())
        return JobView(id=self.job, elastic=ways, **{name: getattr(self, name) for name in _ALIKE})


_ALIKE = tuple(each.name for each in fields(JobView) if each.name not in ("id", "elastic"))


class _Beside(_Thing):
    beside: tuple[str, str]
    type: str
    rates: tuple[float, float]


class _Ended(_Thing):
    ended: str


_KINDS: Mapping[str, type[_Thing]] = {
    "shoal": _Head, "job": _Job, "pool": _Pool, "tenant": _Tenant, "beside": _Beside, "ended": _Ended,
}  # fmt: skip
"""By the field that tells what a line is about; a job, which names its tenant, is looked for before a tenant."""


class _Reader:
    def __init__(self, path: Path | str) -> None:
        self._lines = Lines(path)
        self._now = math.nan
        self._pools: dict[tuple[str, str], Pool] = {}
        self._tenants: dict[str, Tenant] = {}
        self._jobs: dict[str, JobView] = {}
        self._at: dict[str, int] = {}
        self._beside: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}

    def read(self) -> Snapshot:
        lines = self._lines
        for number, text in enumerate(lines.lines, 1):
            if text.strip():
                self._line(number, text)
        if math.isnan(self._now) and not lines.problems:
            lines.fault(
                1, "the first line must say what this is", '{"shoal": "schedule", "version": 1, "now": SECONDS}'
            )
        lines.raise_faults()
        return Snapshot(
            lines.source, self._now, tuple(self._pools.values()), tuple(self._jobs.values()),
            tuple(self._tenants.values()), self._beside, self._at,
        )  # fmt: skip

    def _line(self, number: int, text: str) -> None:
        fault = self._lines.fault
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            return fault(number, f"not JSON: {error.msg}")
        if not isinstance(found, dict):
            return fault(number, "each line must be a JSON object")
        kind = next((kind for name, kind in _KINDS.items() if name in found), None)
        if kind is None:
            return fault(number, "a line about none of these: job, pool, tenant, beside or ended")
        try:
            self._take(number, kind.model_validate(found))
        except ValidationError as error:
            for each in problems(error):
                fault(number, f"{each.where}: {each.what}" if each.where else each.what)
        except ValueError as error:
            fault(number, str(error))

    def _take(self, number: int, thing: _Thing) -> None:
        match thing:
            case _Head():
                self._now = thing.now
            case _Pool():
                self._pools[thing.pool, thing.zone or ""] = thing.told()
            case _Tenant():
                self._tenants[thing.tenant] = thing.told()
            case _Job():
                self._jobs[thing.job], self._at[thing.job] = thing.told(), number
            case _Beside():
                self._beside.setdefault(thing.beside, {})[thing.type] = thing.rates
            case _Ended():
                self._jobs.pop(thing.ended, None)
