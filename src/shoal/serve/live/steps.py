"""Each way a service can move, as a pure function from its row to a `ServiceChange`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from shoal.contract.lifecycle import JobState
from shoal.contract.records import JobRecord, NewEvent
from shoal.core import Conflict
from shoal.serve.contract import VersionStatus
from shoal.serve.lifecycle import ServiceEvent, ServiceState, check_step
from shoal.serve.live.plan import Plan
from shoal.serve.live.records import DeploymentRecord, ServiceChange, ServiceRecord
from shoal.serve.manifest import ServiceManifest

RECONCILER = "reconciler"
DEFAULT_REPLICAS = 1


def _event(service: ServiceRecord, now: float, kind: str, actor: str, cause: str, **data: Any) -> NewEvent:
    return NewEvent(now, kind, actor, cause, service.tenant, data=data, owner_id=service.id)


def _state_event(service: ServiceRecord, new: ServiceState, now: float, actor: str, cause: str) -> NewEvent:
    check_step(service.state, new, service_id=service.id)
    return NewEvent(
        now, ServiceEvent.STATE, actor, cause, service.tenant, old_state=service.state, new_state=new,
        data={"name": service.name}, owner_id=service.id,
    )  # fmt: skip


def _moved(service: ServiceRecord, now: float, **columns: Any) -> ServiceRecord:
    return replace(service, version=service.version + 1, updated_at=now, **columns)


def _deployment(service: ServiceRecord, manifest: ServiceManifest, now: float, key: str | None) -> DeploymentRecord:
    return DeploymentRecord(
        service.id, service.deployment, service.generation, service.tenant, now, manifest.canonical_json(),
        manifest.fingerprint(), key,
    )  # fmt: skip


def create(
    service_id: str, manifest: ServiceManifest, *, tenant: str, actor: str, now: float, key: str | None
) -> ServiceChange:
    replicas = DEFAULT_REPLICAS if manifest.replicas is None else manifest.replicas
    service = ServiceRecord(
        id=service_id, tenant=tenant, name=manifest.name, state=ServiceState.DEPLOYING, version=1,
        manifest=manifest.canonical_json(), replicas=replicas, created_at=now, updated_at=now,
        fingerprint=manifest.fingerprint(),
    )  # fmt: skip
    event = _event(
        service, now, ServiceEvent.DEPLOYED, actor, f"service {service.name} was deployed", generation=1, deployment=1,
        replicas=replicas,
    )  # fmt: skip
    made = event._replace(new_state=ServiceState.DEPLOYING)
    return ServiceChange(None, service, (made,), _deployment(service, manifest, now, key))


def update(
    service: ServiceRecord, old: ServiceManifest, new: ServiceManifest, *, actor: str, now: float, key: str | None
) -> ServiceChange:
    """Another manifest for the service. Its replicas are replaced only if it changes what they run; routes, objectives
    and limits reach the gateway without that. Raises Conflict when it is stopping."""
    _not_stopping(service)
    replaces = old.replica_fingerprint() != new.replica_fingerprint()
    after = _moved(
        service, now, manifest=new.canonical_json(), fingerprint=new.fingerprint(),
        deployment=service.deployment + 1, generation=service.generation + replaces,
        replicas=service.replicas if new.replicas is None else new.replicas,
    )  # fmt: skip
    what = f"its replicas are replaced by generation {after.generation}" if replaces else "its replicas stay"
    event = _event(
        service, now, ServiceEvent.DEPLOYED, actor, f"service {service.name} was updated: {what}",
        generation=after.generation, deployment=after.deployment, replicas=after.replicas,
    )  # fmt: skip
    events = [event]
    grows = replaces or after.replicas > service.replicas
    if grows and service.state is not ServiceState.DEPLOYING:
        events.append(_state_event(service, ServiceState.DEPLOYING, now, actor, "an update is to be rolled out"))
        after = replace(after, state=ServiceState.DEPLOYING)
    return ServiceChange(service, after, tuple(events), _deployment(after, new, now, key))


def scale(service: ServiceRecord, replicas: int, *, actor: str, now: float, cause: str = "") -> ServiceChange | None:
    """None when that number is wanted already. Raises Conflict when it is stopping."""
    _not_stopping(service)
    if replicas == service.replicas:
        return None
    cause = cause or f"from {service.replicas} to {replicas} replicas"
    events = [_event(service, now, ServiceEvent.SCALED, actor, cause, before=service.replicas, replicas=replicas)]
    after = _moved(service, now, replicas=replicas)
    if replicas > service.replicas and service.state is not ServiceState.DEPLOYING:
        events.append(_state_event(service, ServiceState.DEPLOYING, now, actor, cause))
        after = replace(after, state=ServiceState.DEPLOYING)
    return ServiceChange(service, after, tuple(events))


def stop(service: ServiceRecord, *, actor: str, now: float, cause: str = "") -> ServiceChange | None:
    """None when it was asked to already."""
    if service.state in (ServiceState.STOPPING, ServiceState.STOPPED):
        return None
    cause = cause or f"undeployed by {actor}"
    event = _state_event(service, ServiceState.STOPPING, now, actor, cause)
    return ServiceChange(service, _moved(service, now, state=ServiceState.STOPPING, reason=None), (event,))


def model_state(service: ServiceRecord, *, seen: VersionStatus, before: str, now: float) -> ServiceChange:
    """A model's runtime gives it another state; the service itself is as before."""
    cause = f"model {seen.model} version {seen.version} is {seen.word}" + (f": {seen.said}" if seen.said else "")
    about = {"model": seen.model, "version": seen.version, "before": before, "state": seen.word}
    event = _event(service, now, ServiceEvent.MODEL, RECONCILER, cause, **about)
    return ServiceChange(service, _moved(service, now), (event,))


def follow(service: ServiceRecord, plan: Plan, jobs: Sequence[JobRecord], now: float) -> ServiceChange | None:
    """Write down what the plan found, together with the replicas that it starts; None when nothing is new.

    A reason is written when its code changes; its current counts are given only to a client that asks.
    """
    code = plan.reason.code if plan.reason is not None else None
    known = service.reason.code if service.reason is not None else None
    if not jobs and (plan.state, code, plan.serves) == (service.state, known, service.serves):
        return None
    said = plan.reason.text if plan.reason is not None else "every wanted replica is ready"
    events: list[NewEvent] = []
    if plan.state is not service.state:
        cause = "its replicas have ended" if plan.state is ServiceState.STOPPED else said
        events.append(_state_event(service, plan.state, now, RECONCILER, cause))
    elif plan.reason is not None and code != known:
        events.append(_event(service, now, ServiceEvent.WAITING, RECONCILER, said, reason=plan.reason.as_json()))
    for job in jobs:
        cause = f"replica {job.name} of service {service.name} was submitted"
        events.append(NewEvent(now, "job.submitted", RECONCILER, cause, job.tenant, job.id, new_state=JobState.QUEUED))
    after = _moved(
        service, now, state=plan.state, serves=plan.serves, launched=service.launched + len(jobs),
        reason=plan.reason,
        ended_at=now if plan.state is ServiceState.STOPPED else None,
    )  # fmt: skip
    return ServiceChange(service, after, tuple(events), jobs=tuple(jobs))


def _not_stopping(service: ServiceRecord) -> None:
    if service.state in (ServiceState.STOPPING, ServiceState.STOPPED):
        raise Conflict(
            f"service {service.name} is {service.state}", where=service.id,
            hint="wait until it is STOPPED, then deploy it again",
        )  # fmt: skip
