"""From what runs to the guard's groups. Pure.

A job is a group by its id: its ranks' processes with all their children. A service is one group with all its replicas,
for its gateway counts their work together. Both are known to the guard by class, and by where their steps are told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from shoal.contract.gangs import RUN, gang_name
from shoal.contract.lifecycle import JobState
from shoal.core import PriorityClass
from shoal.extension import LiveJob

MIN_SHARE = 0.05
"""What best-effort work keeps of its speed at least: less would be cheaper to preempt than to slow down."""
_WEIGHTS = (1e-3, 1e3)
_RUNNING = (JobState.RUNNING, JobState.CHECKPOINTING)


ReadTelemetry = Callable[[str], Mapping[str, Any] | None]
"""Where the speed of a job can be read, if another source knows better than its own reports."""


def groups(
    active: Iterable[LiveJob],
    weights: Mapping[str, float],
    gangs: Path,
    telemetry: ReadTelemetry,
    *,
    max_slowdown: float,
) -> list[dict[str, Any]]:
    """The groups as the guard's configuration has them, by name. `weights` are the tenants': what a tenant's is, its
    best-effort groups share. `gangs` is the engine's directory."""
    found: dict[str, dict[str, Any]] = {}
    tenants: dict[str, str] = {}
    promised: dict[str, int] = {}
    for live in active:
        pids = _pids(live)
        if not pids:
            continue
        job = live.job
        name = job.owner_id or job.id
        group = found.get(name)
        if group is None:
            group = found[name] = {"name": name, "class": job.priority_class.value, "pids": []}
            tenants[name] = job.tenant
            if job.priority_class is PriorityClass.GUARANTEED:
                group |= {"slo": {"max_slowdown": max_slowdown}, **_told(live, gangs, telemetry)}
        group["pids"] = sorted({*group["pids"], *pids})
        promised[name] = promised.get(name, 0) + job.resources.cpu_milli * len(pids)
    best_effort = {name for name, group in found.items() if group["class"] == PriorityClass.BEST_EFFORT}
    shared_by = Counter(tenants[name] for name in best_effort)
    for name, group in found.items():
        if name in best_effort:
            weight = weights.get(tenants[name], 1.0) / shared_by[tenants[name]]
            group |= {"weight": min(max(weight, _WEIGHTS[0]), _WEIGHTS[1]), "min_share": MIN_SHARE}
        elif promised[name]:
            group["cpus"] = promised[name] / 1000
    return [found[name] for name in sorted(found)]


def _pids(live: LiveJob) -> list[int]:
    if live.job.state not in _RUNNING or live.attempt is None:
        return []
    return [rank["pid"] for rank in live.attempt.ranks if rank.get("pid") and rank.get("ended_at") is None]


def _told(live: LiveJob, gangs: Path, telemetry: ReadTelemetry) -> dict[str, Any]:
    """Where its steps are told: a job's by rings in its ranks' directories, or by what rank 0 reports; a service's by
    the server of it."""
    known = telemetry(live.job.id)
    if known is not None:
        return {"reports": dict(known)}
    if live.attempt is None or live.job.owner_id is not None:
        return {}
    gang = gangs / gang_name(live.job.id, live.attempt.number, RUN)
    return {"ring": str(gang), "reports": {"lines": str(gang / "rank-0" / "metrics.jsonl")}}
