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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core import Invalid, Money, Quota, Tenant, Throughput
from shoal.schedule.build import problem_of
from shoal.schedule.types import Configuration, JobView, Pool, Problem
from shoal.schedule.workloads.files import Lines
from shoal.schedule.workloads.types import Throughputs, Workload

VERSION = 1
_NUMBERS = ("weight", "work_left", "deadline", "arrived", "ran_s", "placed_s", "min_run_s", "isolated_s")
_WORDS = ("placed", "entity", "kind")
_WHOLE = ("gang", "restarts")


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
    yield json.dumps({"shoal": "schedule", "version": VERSION, "now": now})
    for pool in pools:
        yield json.dumps(_said(
            pool=pool.type, count=pool.count, usd_per_hour=pool.price_per_hour.micro_usd / 1e6, zone=pool.zone or None,
            per_node=pool.per_node, unconsolidated=pool.unconsolidated,
        ))  # fmt: skip
    for tenant in tenants:
        yield json.dumps(_said(
            tenant=tenant.name, weight=tenant.weight, accelerators=tenant.quota.accelerators,
            by_type=dict(tenant.quota.by_type) or None,
        ))  # fmt: skip
    for job in jobs:
        rates = {name: [each.per_s, each.std_per_s] for name, each in job.throughput.items()}
        elastic = [
            {
                "type": each.type,
                "accelerators": each.accelerators,
                "goodput": [each.goodput.per_s, each.goodput.std_per_s],
            }
            for each in job.elastic
        ]
        other = {name: getattr(job, name) for name in (*_NUMBERS, *_WORDS, *_WHOLE)}
        yield json.dumps(_said(job=job.id, tenant=job.tenant, throughput=rates, elastic=elastic or None, **other))


def _said(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


class _Reader:
    def __init__(self, path: Path | str) -> None:
        self._lines = Lines(path)
        self._pools: dict[tuple[str, str], Pool] = {}
        self._tenants: dict[str, Tenant] = {}
        self._jobs: dict[str, JobView] = {}
        self._at: dict[str, int] = {}
        self._beside: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}

    def read(self) -> Snapshot:
        lines = self._lines
        now = math.nan
        for number, text in enumerate(lines.lines, 1):
            if not text.strip():
                continue
            try:
                found = json.loads(text)
            except json.JSONDecodeError as error:
                lines.fault(number, f"not JSON: {error.msg}")
                continue
            if not isinstance(found, dict):
                lines.fault(number, "each line must be a JSON object")
            elif "shoal" in found:
                now = self._head(number, found)
            else:
                try:
                    self._thing(number, found)
                except (TypeError, ValueError, KeyError, AttributeError) as error:
                    lines.fault(number, f"{type(error).__name__}: {error}")
        if math.isnan(now) and not lines.problems:
            lines.fault(
                1, "the first line must say what this is", '{"shoal": "schedule", "version": 1, "now": SECONDS}'
            )
        lines.raise_faults()
        return Snapshot(
            lines.source, now, tuple(self._pools.values()), tuple(self._jobs.values()), tuple(self._tenants.values()),
            self._beside, self._at,
        )  # fmt: skip

    def _head(self, number: int, found: dict[str, Any]) -> float:
        if found.get("shoal") != "schedule" or found.get("version") != VERSION:
            self._lines.fault(number, f"no snapshot of version {VERSION}: {json.dumps(found)[:80]}")
        return self._lines.number(number, "now", str(found.get("now", "")))

    def _thing(self, number: int, found: dict[str, Any]) -> None:
        if "job" in found:
            job = self._job(found)
            self._jobs[job.id], self._at[job.id] = job, number
        elif "pool" in found:
            pool = Pool(
                str(found["pool"]), int(found["count"]), Money.usd(_finite(found.get("usd_per_hour", 0.0))),
                str(found.get("zone", "")), found.get("per_node"), found.get("unconsolidated"),
            )  # fmt: skip
            self._pools[pool.type, pool.zone] = pool
        elif "tenant" in found:
            quota = Quota(found.get("accelerators"), tuple(sorted(dict(found.get("by_type", {})).items())))
            self._tenants[found["tenant"]] = Tenant(str(found["tenant"]), float(found.get("weight", 1.0)), quota)
        elif "beside" in found:
            first, second = found["beside"]
            one, other = found["rates"]
            self._beside.setdefault((first, second), {})[found["type"]] = (_finite(one), _finite(other))
        elif "ended" in found:
            self._jobs.pop(found["ended"], None)
        else:
            hint = "job, pool, tenant, beside or ended"
            self._lines.fault(number, f"a line about none of these: {hint}")

    def _job(self, found: dict[str, Any]) -> JobView:
        known = {"job", "tenant", "throughput", "elastic", *_NUMBERS, *_WORDS, *_WHOLE}
        if unknown := sorted(set(found) - known):
            raise ValueError(f"a job has no {', '.join(unknown)}")
        given: dict[str, Any] = {name: _finite(found[name]) for name in _NUMBERS if found.get(name) is not None}
        given |= {name: str(found[name]) for name in _WORDS if found.get(name) is not None}
        given |= {name: int(found[name]) for name in _WHOLE if name in found}
        return JobView(
            id=str(found["job"]),
            tenant=str(found.get("tenant", "default")),
            throughput={str(name): _throughput(value) for name, value in dict(found["throughput"]).items()},
            elastic=tuple(
                Configuration(str(each["type"]), int(each["accelerators"]), _throughput(each["goodput"]))
                for each in found.get("elastic", ())
            ),
            **given,
        )


def _throughput(value: Any) -> Throughput:
    return Throughput(*map(float, value)) if isinstance(value, list) else Throughput(float(value))


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not finite")
    return number
