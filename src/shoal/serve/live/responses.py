"""Services as seen from outside: plain values in the shape of `shoal.serve.models`."""

from __future__ import annotations

from typing import Any

import orjson

from shoal.extension.asking import resources_view
from shoal.serve.live.manager import ReplicaSnapshot, ServiceSnapshot
from shoal.serve.models import TrafficView

Json = dict[str, Any]

_OF_THE_ROW = (
    "id", "tenant", "name", "state", "settled", "version", "generation", "deployment", "replicas", "created_at",
    "updated_at", "ended_at",
)  # fmt: skip


def service_view(snapshot: ServiceSnapshot) -> Json:
    service, manifest, status, at = snapshot.record, snapshot.manifest, snapshot.status, snapshot.gateway
    states = {(one.model, one.version): one for one in status.models} if status is not None else {}
    models = []
    for model in manifest.models:
        seen = states.get((model.name, model.version))
        about = {"name": model.name, "version": model.version, "runtime": model.runtime}
        if seen is None:
            models.append({**about, "state": "UNKNOWN", "reason": ""})
            continue
        says: Json = {"runtime_state": seen.word, "runtime_reason": seen.said, "figures": seen.figures}
        models.append({**about, "state": seen.state, "reason": seen.reason, **says})
    return {
        **{name: getattr(service, name) for name in _OF_THE_ROW},
        "ready": sum(one.ready for one in snapshot.replicas),
        "priority_class": manifest.priority_class,
        "slo_p99_s": manifest.slo.p99 if manifest.slo else None,
        "rate_limit": manifest.rate_limit,
        "reason": snapshot.reason,
        "models": models,
        "traffic": {name: getattr(status, name) for name in TrafficView.model_fields} if status is not None else None,
        "endpoints": {"http": f"http://{at.http.reached_at}", "grpc": at.grpc.reached_at} if at is not None else None,
    }


def service_detail(snapshot: ServiceSnapshot) -> Json:
    return {
        **service_view(snapshot),
        "manifest": orjson.loads(snapshot.record.manifest),
        "members": [_replica(one) for one in snapshot.replicas],
    }


def _replica(snapshot: ReplicaSnapshot) -> Json:
    return {
        "job_id": snapshot.job.id,
        "name": snapshot.replica.name,
        "index": snapshot.replica.index,
        "generation": snapshot.replica.generation,
        "state": snapshot.replica.state,
        "ready": snapshot.ready,
        "leaving": snapshot.replica.leaving,
        "text": snapshot.text,
        "attempt": snapshot.job.attempt,
        "resources": resources_view(snapshot.job.resources),
    }
