"""How services look from outside: plain values in the shape of `shoal.contract.models`."""

from __future__ import annotations

from typing import Any

import orjson

from shoal.extension.web import resources_view
from shoal.serve.contract import Address
from shoal.serve.live.manager import ReplicaSnapshot, ServiceExplanation, ServiceSnapshot

Json = dict[str, Any]


def service_view(snapshot: ServiceSnapshot) -> Json:
    service, manifest, status = snapshot.record, snapshot.manifest, snapshot.status
    states = {(one.model, one.version): one for one in status.models} if status is not None else {}
    models = []
    for model in manifest.models:
        seen = states.get((model.name, model.version))
        state, reason = (seen.state, seen.reason) if seen is not None else ("UNKNOWN", "")
        models.append(
            {
                "name": model.name,
                "version": model.version,
                "runtime": model.runtime,
                "state": state,
                "reason": reason,
            }
        )
    return {
        "id": service.id,
        "tenant": service.tenant,
        "name": service.name,
        "state": service.state,
        "settled": service.settled,
        "version": service.version,
        "generation": service.generation,
        "deployment": service.deployment,
        "replicas": service.replicas,
        "ready": sum(one.ready for one in snapshot.replicas),
        "priority_class": manifest.priority_class,
        "slo_p99_s": manifest.slo.p99 if manifest.slo else None,
        "rate_limit": manifest.rate_limit,
        "created_at": service.created_at,
        "updated_at": service.updated_at,
        "ended_at": service.ended_at,
        "reason": snapshot.reason.as_json() if snapshot.reason is not None else None,
        "models": models,
        "traffic": _traffic(snapshot),
        "endpoints": _endpoints(snapshot.http, snapshot.grpc),
    }


def service_detail(snapshot: ServiceSnapshot) -> Json:
    return {
        **service_view(snapshot),
        "manifest": orjson.loads(snapshot.record.manifest),
        "members": [_replica(one) for one in snapshot.replicas],
    }


def explanation_view(found: ServiceExplanation) -> Json:
    return {
        "service_id": found.record.id,
        "name": found.record.name,
        "state": found.record.state,
        "summary": found.summary,
        "causes": [
            {"subject": cause.subject, "reason": cause.reason.as_json(), "change": cause.change}
            for cause in found.causes
        ],
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


def _traffic(snapshot: ServiceSnapshot) -> Json | None:
    status = snapshot.status
    if status is None:
        return None
    return {
        "requests": status.requests,
        "rejected": status.rejected,
        "failed": status.failed,
        "rate_per_s": status.rate_per_s,
        "p50_s": status.p50_s,
        "p99_s": status.p99_s,
    }


def _endpoints(http: Address | None, grpc: Address | None) -> Json | None:
    if http is None or grpc is None:
        return None
    return {"http": f"http://{_named(http)}", "grpc": _named(grpc)}


def _named(address: Address) -> str:
    """As a client on this machine reaches it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)  # noqa: S104
    return f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"
