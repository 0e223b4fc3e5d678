"""Records as the API answers them: plain values in the shape of `shoal.contract.models`, which names the fields.

They are read off the records by name, and not validated again: every submission and every row of a listing passes here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import orjson

from shoal.admission import Explanation, NodeState, TenantState
from shoal.contract import models
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import parse_array
from shoal.contract.principal import Principal
from shoal.contract.records import ArrayRecord, AttemptRecord, JobRecord, TenantRecord
from shoal.contract.view import View
from shoal.control.jobs.cache import Live
from shoal.core import Reason, Resources, Share
from shoal.extension.web import resources_view

Json = dict[str, Any]


def _shape(model: type[View], *computed: str) -> Callable[[Any], Json]:
    """Reads a record's values of the model's fields, all but the `computed` ones."""
    names = [name for name in model.model_fields if name not in computed]
    read = attrgetter(*names)
    return lambda record: dict(zip(names, read(record), strict=True))


event_view = _shape(models.EventView)
metric_view = _shape(models.MetricView)
token_view = _shape(models.TokenView)
_job = _shape(models.JobView, "resources", "fault", "running_at")
_array = _shape(models.ArrayView, "limit", "states")
_attempt = _shape(models.AttemptView, "placement")
_placement = _shape(models.PlacementView)
_explanation = _shape(models.ExplanationView, "causes", "start_low", "start_high")
_blocker = _shape(models.BlockerView, "reason")
_quota = _shape(models.QuotaView, "by_type")
_tenant = _shape(models.TenantView, "quota", "used", "running_jobs", "disk_bytes", "jobs")
_device = _shape(models.DeviceView, "free", "job_id", "tenant", "best_effort_jobs")


def job_view(job: JobRecord, live: Live | None = None) -> Json:
    """`live` is the same job as the plane has it, while it is not over."""
    attempt = live.attempt if live is not None and live.job.state.active else None
    return {
        **_job(job),
        "running_at": None if attempt is None else attempt.running_at,
        "resources": resources_view(job.resources),
        "fault": job.error_code.fault if job.error_code else None,
    }


def job_detail(job: JobRecord, live: Live | None, attempts: Iterable[AttemptRecord], run_dir: Path | None) -> Json:
    shown = [{**_attempt(one), "placement": [_placement(place) for place in one.placement]} for one in attempts]
    place = None if run_dir is None else str(run_dir)
    return {**job_view(job, live), "manifest": orjson.loads(job.manifest), "attempts": shown, "run_dir": place}


def memory_from(job: JobRecord) -> str | None:
    """Whose default its memory is; None where its manifest named it."""
    asked = orjson.loads(job.manifest).get("resources", {})
    return None if (found := asked.get("memory_from")) is None else str(found)


def array_view(array: ArrayRecord, states: Mapping[JobState, int]) -> Json:
    return {**_array(array), "limit": parse_array(array.indices).limit, "states": dict(states)}


def reason_view(reason: Reason) -> Json:
    return reason.as_json()


def explanation_view(explanation: Explanation) -> Json:
    causes = [{**_blocker(cause), "reason": cause.reason.as_json()} for cause in explanation.causes]
    low, high = explanation.start_between or (None, None)
    return {**_explanation(explanation), "start_low": low, "start_high": high, "causes": causes}


def tenant_view(
    tenant: TenantRecord,
    state: TenantState | None = None,
    jobs: Mapping[str, int] | None = None,
    *,
    disk_bytes: int = 0,
) -> Json:
    return {
        **_tenant(tenant),
        "quota": {**_quota(tenant.quota), "by_type": dict(tenant.quota.by_type)},
        "used": resources_view(state.used if state else Resources()),
        "running_jobs": state.running_jobs if state else 0,
        "disk_bytes": disk_bytes,
        "jobs": dict(jobs or {}),
    }


def node_views(nodes: Iterable[NodeState], active: Iterable[Live], principal: Principal) -> list[Json]:
    """Nodes with who holds each device, and the machines of pools on which jobs run; a tenant learns of its own jobs
    only."""
    held: dict[tuple[str, str], list[JobRecord]] = {}
    machines: dict[str, dict[str, set[str]]] = {}
    for live in active:
        if live.attempt is None or not principal.may_see(live.job.tenant):
            continue
        for place in live.attempt.placement:
            for device in place.devices:
                held.setdefault((place.node, device), []).append(live.job)
        given = {place.rank: place.node for place in live.attempt.placement}
        for fact in live.attempt.ranks:
            pool, machine = given.get(fact["rank"]), fact["node"]
            if pool is not None and machine not in ("", pool):
                machines.setdefault(pool, {}).setdefault(machine, set()).add(live.job.id)
    return [{**_node_view(state, held), "machines": _machines(machines.get(state.node.name, {}))} for state in nodes]


def _machines(jobs: Mapping[str, Collection[str]]) -> list[Json]:
    return [{"name": name, "job_ids": sorted(jobs[name])} for name in sorted(jobs)]


def _node_view(state: NodeState, held: Mapping[tuple[str, str], list[JobRecord]]) -> Json:
    node = state.node
    free = {device for devices in state.free_devices.values() for device in devices}
    devices = []
    for device in node.devices:
        jobs = held.get((node.name, device.id), [])
        holder = next((job for job in jobs if job.resources.share is not Share.BEST_EFFORT), None)
        devices.append({
            **_device(device), "free": device.id in free, "job_id": holder and holder.id,
            "tenant": holder and holder.tenant, "best_effort_jobs": [job.id for job in jobs if job is not holder],
        })  # fmt: skip
    return {
        "name": node.name,
        "schedulable": state.schedulable,
        "closed": state.closed,
        "labels": dict(node.labels),
        "taints": [str(taint) for taint in node.taints],
        "devices": devices,
        "cpu_milli": node.cpu_milli,
        "free_cpu_milli": state.free_cpu_milli,
        "memory_bytes": node.memory_bytes,
        "free_memory_bytes": state.free_memory_bytes,
    }
