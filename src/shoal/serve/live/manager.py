"""The live services in memory, and all operations that create, change or read one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shoal.contract.lifecycle import Desired, JobState
from shoal.contract.records import JobRecord
from shoal.core import Conflict, NotFound, Reason
from shoal.extension import Extension, LiveJob, Server
from shoal.serve.contract import GatewayStatus, ServiceStatus, parse_replica_name
from shoal.serve.lifecycle import ServiceState
from shoal.serve.live import steps
from shoal.serve.live.gateway import LocalGateway, ObservedGateway
from shoal.serve.live.history import ServiceHistories
from shoal.serve.live.plan import UNSEEN, ObservedService, Plan, PlannedReplica
from shoal.serve.live.records import ServiceChange, ServiceFilter, ServiceRecord
from shoal.serve.live.replicas import replica_job
from shoal.serve.live.repository import ServiceRepository
from shoal.serve.manifest import ServiceManifest, check_runtimes, parse_service

LETTER = "s"
"""Ids of services begin with it."""

Step = Callable[[ServiceRecord], ServiceChange | None]


@dataclass(slots=True)
class LiveService:
    """Its row, what it and older generations were deployed as, and how it was seen last."""

    record: ServiceRecord
    manifests: dict[int, ServiceManifest]
    plan: Plan | None = None
    observed: ObservedService = UNSEEN
    status: ServiceStatus | None = None
    words: dict[tuple[str, str], str] = field(default_factory=dict)
    """By model and version, the state that the runtime gave it when it was seen last."""

    @property
    def manifest(self) -> ServiceManifest:
        return self.manifests[self.record.generation]

    @property
    def reason(self) -> Reason | None:
        """Why it is not ready, as of now."""
        return self.plan.reason if self.plan is not None else self.record.reason


@dataclass(frozen=True, slots=True)
class ReplicaSnapshot:
    """A replica's job; whether the gateway sends it requests, and if not what it is at."""

    job: JobRecord
    replica: PlannedReplica
    ready: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    """Everything that can be shown of a service. `gateway` is what its gateway says of itself."""

    record: ServiceRecord
    manifest: ServiceManifest
    reason: Reason | None
    replicas: tuple[ReplicaSnapshot, ...] = ()
    status: ServiceStatus | None = None
    gateway: GatewayStatus | None = None


@dataclass(frozen=True, slots=True)
class ServiceCause:
    """One thing that keeps a service from being ready; `subject` says of what it is, `change` what would mend it."""

    subject: str
    reason: Reason
    change: str = ""


@dataclass(frozen=True, slots=True)
class ServiceExplanation:
    """As the API answers."""

    service_id: str
    name: str
    state: ServiceState
    summary: str
    causes: tuple[ServiceCause, ...]


class ServiceManager:
    """`wake` is called after every change."""

    def __init__(self, server: Server, gateway: LocalGateway, *, wake: Callable[[], None]) -> None:
        self._server = server
        self._repository = ServiceRepository(server.store)
        self._gateway = gateway
        self._wake = wake
        self._live: dict[str, LiveService] = {}
        self._deploying = asyncio.Lock()
        self.gateway_seen = ObservedGateway(None, UNSEEN.why)

    def open(self) -> None:
        """Read the live services back, as after a restart."""
        for record in self._repository.live_services():
            self._recall(record)

    def _recall(self, record: ServiceRecord) -> None:
        deployments = self._repository.deployments(record.id)
        manifests = {one.generation: parse_service(one.manifest, source=record.id) for one in deployments}
        self._live[record.id] = LiveService(record, manifests)

    def live(self) -> list[LiveService]:
        return list(self._live.values())

    def live_service(self, service_id: str) -> LiveService | None:
        return self._live.get(service_id)

    def service(self, service_id: str) -> ServiceRecord:
        """Raises NotFound."""
        known = self._live.get(service_id)
        record = known.record if known is not None else self._repository.service(service_id)
        if record is None:
            raise NotFound(f"no service {service_id}", where=service_id, hint="`shoal services` lists them")
        return record

    async def stored(self, asked: ServiceFilter) -> list[ServiceRecord]:
        """As the database has them, those that are over among them."""
        return await asyncio.to_thread(self._repository.services, asked)

    def named(self, name: str, tenant: str | None) -> list[ServiceRecord]:
        """The live services of this name; one at most where a tenant is given."""
        return [
            known.record
            for known in self._live.values()
            if known.record.name == name and tenant in (None, known.record.tenant)
        ]

    # --- what a tenant may do ---

    async def deploy(
        self, manifest: ServiceManifest, *, tenant: str, actor: str, idempotency_key: str | None = None
    ) -> tuple[ServiceRecord, bool]:
        """Make the service, or update the live one of this name: durable when this returns. The flag is False when it
        was there before.

        A used key gives the service that it made or updated, as it is now. Raises Conflict for a key that was used for
        another manifest, or while the service is stopping.
        """
        manifest = self._server.complete(manifest.with_cores(), tenant=tenant)
        async with self._deploying:
            if idempotency_key is not None:
                earlier = self._repository.deployment_by_key(tenant, idempotency_key)
                if earlier is not None:
                    if earlier.fingerprint != manifest.fingerprint():
                        raise Conflict(
                            f"the idempotency key {idempotency_key!r} was used for another service",
                            where=earlier.service_id, hint="give a new key, or repeat the very same deployment",
                        )  # fmt: skip
                    record = self.service(earlier.service_id)
                    if record.id not in self._live and not record.state.terminal:
                        self._recall(record)  # the database kept it, but could not say so then
                        self._wake()
                    return record, False
            self._check(manifest, tenant)
            self._server.check_files(tenant, manifest.bundle, manifest.uploads(), "shoal deploy")
            found = self.named(manifest.name, tenant)
            if not found:
                change = steps.create(
                    self._server.new_id(LETTER),
                    manifest,
                    tenant=tenant,
                    actor=actor,
                    now=self._server.clock.now(),
                    key=idempotency_key,
                )
                self._server.fault("before-commit")
                await self._repository.apply(change)
                self._live[change.after.id] = LiveService(change.after, {change.after.generation: manifest})
                self._wake()
                self._server.fault("after-commit")
                return change.after, True
            return await self._update(found[0].id, manifest, actor, idempotency_key), False

    async def _update(self, service_id: str, new: ServiceManifest, actor: str, key: str | None) -> ServiceRecord:
        known = self._live[service_id]

        def step(service: ServiceRecord) -> ServiceChange | None:
            if service.fingerprint == new.fingerprint() and new.replicas in (None, service.replicas) and key is None:
                return None
            return steps.update(service, known.manifest, new, actor=actor, now=self._server.clock.now(), key=key)

        change = await self._change(service_id, step)
        if change is not None:
            known.manifests[change.after.generation] = new
        return known.record

    async def scale(self, service_id: str, replicas: int, *, actor: str, cause: str = "") -> ServiceRecord:
        self._must_live(service_id)
        await self._change(
            service_id,
            lambda service: steps.scale(service, replicas, actor=actor, now=self._server.clock.now(), cause=cause),
        )
        return self.service(service_id)

    async def undeploy(self, service_id: str, *, actor: str, cause: str = "") -> ServiceRecord:
        """Asks for the end of a service; it is STOPPED when all its replicas have ended."""
        if service_id in self._live:
            await self._change(
                service_id, lambda service: steps.stop(service, actor=actor, now=self._server.clock.now(), cause=cause)
            )
        return self.service(service_id)

    async def check(self, manifest: ServiceManifest, *, tenant: str) -> Sequence[Reason]:
        """What would keep a replica from starting, without deploying anything; raises as `deploy` does, files taken for
        uploaded."""
        self._check(manifest, tenant)
        self._server.check_files(tenant, manifest.bundle, (), "shoal deploy")
        manifest, now = self._server.complete(manifest.with_cores(), tenant=tenant), self._server.clock.now()
        service = steps.create("s-check", manifest, tenant=tenant, actor="", now=now, key=None).after
        replica = replica_job(service, manifest, 0, socket=self._gateway.socket, now=now)
        return await self._server.remarks(replica, manifest.secrets)

    def _check(self, manifest: ServiceManifest, tenant: str) -> None:
        self._server.check_class(tenant, manifest.priority_class, "services")
        self._gateway.require()
        check_runtimes(manifest)
        names = {model.name: position for position, model in enumerate(manifest.models)}
        for other in self._live.values():
            if other.record.tenant != tenant or other.record.name == manifest.name:
                continue
            for model in other.manifest.models:
                if model.name in names:
                    raise Conflict(
                        f"service {other.record.name} of tenant {tenant} has a model {model.name} already",
                        where=f"models[{names[model.name]}].name", hint="give the model another name",
                    )  # fmt: skip

    def _must_live(self, service_id: str) -> None:
        if service_id not in self._live:
            raise Conflict(
                f"the service is over: {self.service(service_id).state}", where=service_id, hint="deploy it again"
            )

    # --- changes ---

    async def change(self, service_id: str, step: Step) -> ServiceChange | None:
        """Change the service by `step`; None when the service is not live any more or the step found nothing to do."""
        return await self._change(service_id, step) if service_id in self._live else None

    async def _change(self, service_id: str, step: Step) -> ServiceChange | None:
        """Apply a step to the newest row, again when another change came first."""
        while True:
            known = self._live[service_id]
            change = step(known.record)
            if change is None:
                return None
            self._server.fault("before-commit")
            if await self._repository.apply(change):
                self._applied(known, change)
                self._server.fault("after-commit")
                return change
            if known.record is change.before:  # changed behind our back: read it
                known.record = self._repository.service(service_id) or known.record

    def _applied(self, known: LiveService, change: ServiceChange) -> None:
        known.record = change.after
        for job in change.jobs:
            self._server.submitted(job)
        if change.after.state.terminal:
            self._live.pop(change.after.id, None)
        self._wake()

    # --- what is to be seen ---

    def replicas(self, service_id: str) -> list[PlannedReplica]:
        """Those that are not over, oldest first."""
        found = [_replica(live) for live in self._server.owned(service_id)]
        return sorted(found, key=lambda replica: replica.index)

    def snapshot(self, service_id: str) -> ServiceSnapshot:
        """Raises NotFound."""
        return self.snapshot_of(self.service(service_id))

    def snapshot_of(self, record: ServiceRecord) -> ServiceSnapshot:
        """As it is now, if it is live."""
        known = self._live.get(record.id)
        if known is None:
            return ServiceSnapshot(record, parse_service(record.manifest, source=record.id), None)
        texts = {**known.observed.loading, **known.observed.broken}
        jobs = {live.job.id: live.job for live in self._server.owned(record.id)}
        replicas = tuple(
            ReplicaSnapshot(
                jobs[one.job_id], one, one.name in known.observed.ready, texts.get(one.name) or one.why or one.last
            )
            for one in self.replicas(record.id)
        )
        gateway = self.gateway_seen.status
        return ServiceSnapshot(known.record, known.manifest, known.reason, replicas, known.status, gateway)

    async def explain(self, service_id: str) -> ServiceExplanation:
        """Why a service is not ready: the gateway's reasons, and those of each replica. Of its waiting replicas of one
        generation the oldest is explained: they are alike, and the others wait behind it."""
        snapshot = self.snapshot(service_id)
        record = snapshot.record
        known = self._live.get(service_id)
        causes: list[ServiceCause] = []
        if known is not None and not known.observed.alive:
            seen = Reason("gateway", known.observed.why)
            causes.append(ServiceCause("gateway", seen, "see HOME/serve/gateway.log"))
        if snapshot.status is not None and snapshot.status.reason is not None:
            causes.append(ServiceCause("gateway", snapshot.status.reason))
        if snapshot.reason is not None and not snapshot.replicas:
            causes.append(ServiceCause("service", snapshot.reason, "deploy it again once that is mended"))
        waiting: set[int] = set()
        for one in snapshot.replicas:
            if one.ready:
                continue
            if one.replica.state is JobState.QUEUED and not one.replica.leaving:
                if one.replica.generation in waiting:
                    why = one.replica.why or "waits like the replica before it"
                    causes.append(ServiceCause(f"replica {one.replica.name}", Reason("waiting", why)))
                    continue
                waiting.add(one.replica.generation)
            causes += await self._replica_causes(one)
        for model in snapshot.status.models if snapshot.status is not None else ():
            if model.state != "READY" and model.reason:
                seen = Reason("model", model.reason, {"state": model.state})
                causes.append(ServiceCause(f"model {model.model}:{model.version}", seen))
            if not model.well:
                seen = Reason("runtime-state", f"it is {model.word}: {model.said}", {"state": model.word})
                causes.append(ServiceCause(f"model {model.model}:{model.version}", seen))
        return ServiceExplanation(record.id, record.name, record.state, summary_of(snapshot), tuple(causes))

    async def _replica_causes(self, snapshot: ReplicaSnapshot) -> list[ServiceCause]:
        subject = f"replica {snapshot.replica.name}"
        if snapshot.replica.leaving:
            return [ServiceCause(subject, Reason("leaving", "it was asked to end"))]
        if snapshot.replica.state is not JobState.QUEUED:
            text = snapshot.text or f"it is {snapshot.replica.state}, and not ready in the gateway yet"
            return [ServiceCause(subject, Reason("starting", text), f"see `shoal logs {snapshot.replica.name}`")]
        found = await self._server.explain(snapshot.replica.job_id)
        blocking = [cause for cause in found.causes if cause.blocking]
        if not blocking:
            return [ServiceCause(subject, Reason("waiting", found.summary))]
        return [ServiceCause(subject, cause.reason, cause.change) for cause in blocking]


def summary_of(snapshot: ServiceSnapshot) -> str:
    """In what state a service is, and why."""
    state = snapshot.record.state
    return f"{state}: {snapshot.reason.text}" if snapshot.reason is not None else str(state)


def _replica(live: LiveJob) -> PlannedReplica:
    job = live.job
    _, index, generation = parse_replica_name(job.name)
    waits = live.wait.text if live.wait is not None else str((job.reason or {}).get("text", ""))
    queued = job.state is JobState.QUEUED
    return PlannedReplica(
        job_id=job.id, name=job.name, index=index, generation=generation, state=job.state,
        leaving=job.desired is Desired.CANCEL,
        failures=sum(job.retries.values()),
        last=job.message,
        why=waits if queued else "",
    )  # fmt: skip


class Serving(Extension):
    """The extension that has the services, as its routes know it."""

    services: ServiceManager
    histories: ServiceHistories
