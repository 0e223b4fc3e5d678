"""A service's replica as a job: the whole of admission, attempt runner and engine takes it like any other."""

from __future__ import annotations

import hashlib

from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import JobRecord
from shoal.serve.contract import connection_name, replica_name
from shoal.serve.live.records import ServiceRecord
from shoal.serve.manifest import ServiceManifest
from shoal.serve.replica.life import Patience

PRIORITY = 100
"""A replica's, among its tenant's own jobs: one that fell over gets its place back before a new job starts."""

_COMMAND = ("python", "-m", "shoal.serve.replica")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def replica_id(service_id: str, index: int) -> str:
    """The job's id. It follows from the service and the index, so that no replica can be made twice."""
    return f"{service_id}-{index}"


def replica_manifest(service: ServiceRecord, manifest: ServiceManifest, index: int, *, socket: str) -> JobManifest:
    """What the job runs: it never ends by itself, and is started again at once, then with growing waits."""
    name = replica_name(service.name, index, service.generation)
    threads = dict.fromkeys(_THREAD_VARIABLES, str(manifest.threads))
    fetched = [model.fetched for model in manifest.models if model.fetched]
    resources = manifest.resources_per_replica()
    accelerators = dict(resources.accelerators)
    connect = ("--connect", socket, "--name", connection_name(service.tenant, name))
    kind, count = next(iter(accelerators.items()), ("any", 0))
    return JobManifest.model_validate(
        {
            "name": name,
            "tenant": service.tenant,
            "description": f"replica {index} of service {service.name}, generation {service.generation}",
            "labels": {"service": service.name},
            "command": (*_COMMAND, *connect, *_leave(manifest)),
            "env": {**threads, **manifest.env},
            "secrets": manifest.secrets,
            "bundle": manifest.bundle,
            "inputs": tuple({"from": source, "to": target} for source, target in fetched),
            "resources": {
                "accelerators": {
                    "type": kind,
                    "count": count,
                    "share": resources.share,
                    "memory": resources.device_memory_bytes or None,
                },
                "cpus": resources.cpu_milli / 1000,
                "memory": resources.memory_bytes or None,
            },
            "nodes": manifest.nodes,
            "priority_class": manifest.priority_class,
            "priority": PRIORITY,
            "restart": {"on": "always"},
            "grace": manifest.grace,
        }
    )


def _leave(manifest: ServiceManifest) -> tuple[str, ...]:
    """A longer grace is for open sequences."""
    return ("--leave-within", f"{manifest.grace:g}") if manifest.grace > Patience().leave_s else ()


def replica_job(service: ServiceRecord, manifest: ServiceManifest, index: int, *, socket: str, now: float) -> JobRecord:
    """The row of a new replica of the service's present generation."""
    job = replica_manifest(service, manifest, index, socket=socket)
    text = job.canonical_json()
    return JobRecord(
        id=replica_id(service.id, index), tenant=service.tenant, name=job.name, state=JobState.QUEUED, version=1,
        manifest=text, resources=job.resources_per_rank(), ranks=1, priority_class=job.priority_class,
        priority=job.priority, submitted_at=now, updated_at=now, queued_at=now,
        fingerprint=hashlib.sha256(text.encode()).hexdigest(), owner_id=service.id,
    )  # fmt: skip
