"""Metrics of a simulation: completion times, fairness, use, cost, and what deciding took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shoal.schedule.simulate.result import Simulated
from shoal.schedule.types import Array

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Metrics:
    """Of the measured jobs, but for what is about the whole simulation: makespan, migrations, utilisation, hours lost,
    cost and decisions. `fairness` is completion time over that in an isolated share (mean, worst, and the share of
    jobs above 1.1); `jain` is Jain's index of the tenants' mean slowdowns, by weight (1: all alike);
    `lease_extended` the share of leases that were extended in place."""

    policy: str
    jobs: int
    avg_jct_h: float
    p50_jct_h: float
    p99_jct_h: float
    makespan_h: float
    fairness_mean: float
    fairness_worst: float
    fairness_above: float
    jain: float
    utilisation: float
    migrations: int
    lease_extended: float
    accelerator_hours_lost: float
    failures: int
    slo_misses: int
    slo_jobs: int
    cost_usd: float
    policy_cpu_s: float
    policy_cpu_p50_s: float
    policy_cpu_p99_s: float
    decisions: int
    rounds: int

    def as_json(self) -> dict[str, Any]:
        return {"simulated": True, **asdict(self)}


def metrics_of(found: Simulated) -> Metrics:
    """Everything about one run."""
    jct, measured, work = found.jct_s, found.measured, found.workload
    fairness = jct / np.maximum(found.alone_s[measured], 1e-9)
    due = np.isfinite(work.deadline[measured])
    late = found.finished[measured][due] > work.deadline[measured][due] + 1e-6
    cpu = found.policy_cpu_s if len(found.policy_cpu_s) else np.zeros(1)
    return Metrics(
        policy=found.run.policy,
        jobs=len(jct),
        avg_jct_h=float(jct.mean()) / HOUR,
        p50_jct_h=float(np.percentile(jct, 50)) / HOUR,
        p99_jct_h=float(np.percentile(jct, 99)) / HOUR,
        makespan_h=(found.ended - found.began) / HOUR,
        fairness_mean=float(fairness.mean()),
        fairness_worst=float(fairness.max()),
        fairness_above=float((fairness > 1.1).mean()),
        jain=_jain(found, fairness),
        utilisation=float(found.held_s.sum() / found.capacity_s) if found.capacity_s else 0.0,
        migrations=int(found.restarts.sum()),
        lease_extended=found.extended / found.extendable if found.extendable else 1.0,
        accelerator_hours_lost=float(found.lost_s.sum()) / HOUR,
        failures=int(found.failures.sum()),
        slo_misses=int(late.sum()),
        slo_jobs=int(due.sum()),
        cost_usd=float(found.cost_usd.sum()),
        policy_cpu_s=float(found.policy_cpu_s.sum()),
        policy_cpu_p50_s=float(np.percentile(cpu, 50)),
        policy_cpu_p99_s=float(np.percentile(cpu, 99)),
        decisions=len(found.policy_cpu_s),
        rounds=found.rounds,
    )


def jain(values: Array) -> float:
    """Jain's index: 1 when all are equal, 1/n when one has everything."""
    squares = float((values**2).sum()) * len(values)
    return float(values.sum() ** 2 / squares) if squares > 0.0 else 1.0


def _jain(found: Simulated, fairness: Array) -> float:
    tenant = found.workload.tenant[found.measured]
    weights = np.array([each.weight for each in found.workload.tenants])
    present = np.unique(tenant)
    return jain(np.array([(1.0 / fairness[tenant == at]).mean() / weights[at] for at in present]))


COMPARED = (
    ("avg_jct_h", "avg JCT"), ("p50_jct_h", "p50"), ("p99_jct_h", "p99"), ("makespan_h", "makespan"),
    ("fairness_worst", "worst rho"), ("utilisation", "used"), ("migrations", "migrations"),
    ("cost_usd", "cost"), ("policy_cpu_s", "policy CPU"),
)  # fmt: skip
"""What tables show: the field, and its name there."""

JOB_COLUMNS = (
    "policy", "job", "kind", "gang", "tenant", "arrived_s", "started_s", "finished_s", "jct_s", "ran_s", "alone_s",
    "restarts", "failures", "accelerator_s", "lost_s", "cost_usd",
)  # fmt: skip


def job_rows(found: Simulated) -> list[Sequence[Any]]:
    """One row of `JOB_COLUMNS` for each measured job, for a CSV."""
    work = found.workload
    return [
        (
            found.run.policy, work.ids[job], work.kinds[work.kind[job]], int(work.gang[job]),
            work.tenants[work.tenant[job]].name, _plain(work.arrived[job]), _plain(found.started[job]),
            _plain(found.finished[job]), _plain(found.finished[job] - work.arrived[job]), _plain(found.ran_s[job]),
            _plain(found.alone_s[job]), int(found.restarts[job]), int(found.failures[job]), _plain(found.held_s[job]),
            _plain(found.lost_s[job]), _plain(found.cost_usd[job]),
        )
        for job in found.measured.tolist()
    ]  # fmt: skip


def _plain(value: float) -> float:
    return round(float(value), 3)


def relative(found: Metrics, base: Metrics) -> Mapping[str, float]:
    """Each compared number over that of another run."""
    ratios = {}
    for field, _ in COMPARED:
        mine, theirs = getattr(found, field), getattr(base, field)
        if theirs:
            ratios[field] = mine / theirs
    return ratios
