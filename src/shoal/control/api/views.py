"""How records look from outside: plain values in the shape of `shoal.contract.models`.

Made by hand, not by pydantic, because every submission and every row of a listing passes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from shoal.admission import Explanation, NodeState, Running, TenantState
from shoal.contract.principal import Principal
from shoal.contract.records import AttemptRecord, Event, JobRecord, MetricPoint, TenantRecord, TokenRecord
from shoal.core import Quota, Reason, Resources
from shoal.extension.web import resources_view

Json = dict[str, Any]


def job_view(job: JobRecord) -> Json:
    return {
        "id": job.id,
        "tenant": job.tenant,
        "name": job.name,
        "state": job.state,
        "version": job.version,
        "desired": job.desired,
        "priority_class": job.priority_class,
        "priority": job.priority,
        "resources": resources_view(job.resources),
        "ranks": job.ranks,
        "min_ranks": job.min_ranks,
        "size": job.size,
        "attempt": job.attempt,
        "submitted_at": job.submitted_at,
        "updated_at": job.updated_at,
        "queued_at": job.queued_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "not_before": job.not_before,
        "deadline_at": job.deadline_at,
        "expected_s": job.expected_s,
        "retries": dict(job.retries),
        "waited_s": job.waited_s,
        "ran_s": job.ran_s,
        "error_code": job.error_code,
        "fault": job.error_code.fault if job.error_code else None,
        "message": job.message,
        "reason": job.reason,
        "wait_cause": job.wait_cause,
        "progress": job.progress,
        "idempotency_key": job.idempotency_key,
        "service_id": job.service_id,
    }


def job_detail(job: JobRecord, attempts: Iterable[AttemptRecord]) -> Json:
    return {
        **job_view(job),
        "manifest": orjson.loads(job.manifest),
        "attempts": [attempt_view(attempt) for attempt in attempts],
    }


def attempt_view(attempt: AttemptRecord) -> Json:
    return {
        "number": attempt.number,
        "epoch": attempt.epoch,
        "created_at": attempt.created_at,
        "running_at": attempt.running_at,
        "ended_at": attempt.ended_at,
        "outcome": attempt.outcome,
        "error_code": attempt.error_code,
        "message": attempt.message,
        "stop": attempt.stop,
        "stop_at": attempt.stop_at,
        "stop_cause": attempt.stop_cause,
        "placement": [{"rank": p.rank, "node": p.node, "devices": list(p.devices)} for p in attempt.placement],
        "ranks": [dict(rank) for rank in attempt.ranks],
    }


def event_view(event: Event) -> Json:
    return {
        "seq": event.seq,
        "at": event.at,
        "kind": event.kind,
        "actor": event.actor,
        "cause": event.cause,
        "tenant": event.tenant,
        "job_id": event.job_id,
        "attempt": event.attempt,
        "old_state": event.old_state,
        "new_state": event.new_state,
        "data": dict(event.data),
        "service_id": event.service_id,
    }


def metric_view(point: MetricPoint) -> Json:
    return {
        "attempt": point.attempt,
        "at": point.at,
        "step": point.step,
        "name": point.name,
        "value": point.value,
    }


def reason_view(reason: Reason) -> Json:
    return reason.as_json()


def explanation_view(explanation: Explanation) -> Json:
    return {
        "job_id": explanation.job_id,
        "summary": explanation.summary,
        "ahead": explanation.ahead,
        "estimated_start": explanation.estimated_start,
        "estimate": explanation.estimate,
        "causes": [
            {
                "cause": cause.cause,
                "blocking": cause.blocking,
                "reason": cause.reason.as_json(),
                "change": cause.change,
            }
            for cause in explanation.causes
        ],
    }


def quota_view(quota: Quota) -> Json:
    return {
        "accelerators": quota.accelerators,
        "by_type": dict(quota.by_type),
        "cpu_milli": quota.cpu_milli,
        "memory_bytes": quota.memory_bytes,
        "running_jobs": quota.running_jobs,
        "queued_jobs": quota.queued_jobs,
        "disk_bytes": quota.disk_bytes,
        "default_cpu_milli": quota.default_cpu_milli,
        "default_memory_bytes": quota.default_memory_bytes,
    }


def tenant_view(
    tenant: TenantRecord,
    state: TenantState | None = None,
    jobs: Mapping[str, int] | None = None,
    *,
    disk_bytes: int = 0,
) -> Json:
    return {
        "disk_bytes": disk_bytes,
        "name": tenant.name,
        "weight": tenant.weight,
        "quota": quota_view(tenant.quota),
        "max_priority_class": tenant.max_priority_class,
        "created_at": tenant.created_at,
        "used": resources_view(state.used if state else Resources()),
        "running_jobs": state.running_jobs if state else 0,
        "jobs": dict(jobs or {}),
    }


def token_view(token: TokenRecord) -> Json:
    return {
        "id": token.id,
        "tenant": token.tenant,
        "label": token.label,
        "created_at": token.created_at,
        "revoked_at": token.revoked_at,
    }


def node_views(nodes: Iterable[NodeState], running: Iterable[Running], principal: Principal) -> list[Json]:
    """Nodes with who holds each device; a tenant learns the names of its own jobs only."""
    holders = {
        (place.node, device): (job.job_id, job.tenant)
        for job in running
        for place in job.placement
        for device in place.devices
        if principal.may_see(job.tenant)
    }
    return [_node_view(state, holders) for state in nodes]


def _node_view(state: NodeState, holders: Mapping[tuple[str, str], tuple[str, str]]) -> Json:
    node = state.node
    free = {device for devices in state.free_devices.values() for device in devices}
    devices = []
    for device in node.devices:
        job_id, tenant = holders.get((node.name, device.id), (None, None))
        devices.append(
            {
                "id": device.id,
                "type": device.type,
                "index": device.index,
                "memory_bytes": device.memory_bytes,
                "free": device.id in free,
                "job_id": job_id,
                "tenant": tenant,
            }
        )
    return {
        "name": node.name,
        "schedulable": state.schedulable,
        "closed": state.closed,
        "labels": dict(node.labels),
        "devices": devices,
        "cpu_milli": node.cpu_milli,
        "free_cpu_milli": state.free_cpu_milli,
        "memory_bytes": node.memory_bytes,
        "free_memory_bytes": state.free_memory_bytes,
    }
