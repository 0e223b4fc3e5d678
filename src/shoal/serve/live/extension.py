"""Services as an extension of the server: a manifest and a number of replicas, each replica a job like any other."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from shoal.base.history import EVERY_S
from shoal.base.http import Limits
from shoal.base.loops import BackgroundLoop, RunningLoop
from shoal.contract.events import EventKinds
from shoal.contract.pages import Column, Figure, Page, Table, Value
from shoal.contract.records import Event
from shoal.core import KillCauses, Miss, Money, NeededBundles, Objectives, Sandbox, Telemetry
from shoal.engine import Gang, Mount
from shoal.extension import LiveJob, Section, Server
from shoal.extension.history import WRITE_EVERY_S
from shoal.extension.metrics import gauge
from shoal.serve.contract import TOKEN_VARIABLE, Address, GatewayConfig, connection_name, parse_replica_name
from shoal.serve.lifecycle import ServiceEvent
from shoal.serve.live.gateway import LocalGateway
from shoal.serve.live.history import ServiceHistories
from shoal.serve.live.manager import ServiceManager, Serving
from shoal.serve.live.reconciler import ServiceReconciler
from shoal.serve.live.tables import TABLES
from shoal.store import Tables

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.core import Metric

DEFAULT_PORT, DEFAULT_GRPC_PORT = 7071, 7072


class ServeSection(Section):
    """Where the gateway of services listens, and what it shares out."""

    enabled: bool = True
    host: str = Field("127.0.0.1", min_length=1, description="address on which services answer")
    port: int | None = Field(
        None, ge=0, le=65535, description="services answer HTTP on this port; 0: any free one [7071]"
    )
    grpc_port: int | None = Field(None, ge=0, le=65535, description="services answer gRPC on this port [7072]")
    slots: int | None = Field(None, ge=1, le=4096, description="compute slots that services share [usable cores]")
    anonymous: str | None = Field(
        None, min_length=1, description="tenant charged for requests without a token [such requests are refused]"
    )
    price_per_hour: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="dollars that the machine costs, for each tenant's bill"
    )

    body_limit_mib: int = Field(
        64, ge=1, le=256, description="largest inference request, over HTTP also after decompression"
    )

    def gateway(self, *, any_port: bool, limits: Limits) -> GatewayConfig:
        """What the gateway is told, but for its socket, services and tenants. `any_port`: the server listens on any
        free port, and so do its services unless a port is named. `limits` are the server's for its clients."""
        http, grpc = (0, 0) if any_port else (DEFAULT_PORT, DEFAULT_GRPC_PORT)
        return GatewayConfig(
            generation=0,
            socket="",
            slots=self.slots or len(os.sched_getaffinity(0)),
            http=Address(self.host, http if self.port is None else self.port),
            grpc=Address(self.host, grpc if self.grpc_port is None else self.grpc_port),
            price_per_hour=Money.usd(self.price_per_hour),
            anonymous=self.anonymous,
            http_limits=replace(limits, body=self.body_limit_mib << 20),
        )


class Serve(Serving):
    """Deploys services and keeps their replicas running behind one gateway. `gateway` takes the place of this
    machine's in tests."""

    name: ClassVar[str] = "serve"
    paths: ClassVar[Sequence[str]] = ("/v1/services", "/v1/service-manifests")
    not_in_planes: ClassVar[str] = "the gateway and the replicas of services are of the shared server's machines"
    settings: ClassVar[type[Section]] = ServeSection
    tables: ClassVar[Tables | None] = TABLES
    events: ClassVar[type[EventKinds] | None] = ServiceEvent

    def __init__(self, server: Server, settings: ServeSection, *, gateway: LocalGateway | None = None) -> None:
        self._server = server
        given = settings.gateway(any_port=server.any_port, limits=server.http_limits)
        self._gateway = gateway = gateway or LocalGateway(server.home / "serve", given)
        self.histories = ServiceHistories(server.store)
        self.services = ServiceManager(server, gateway, wake=lambda: self.reconciler.wake())
        self.reconciler = ServiceReconciler(self.services, server, gateway, replica_token=self._replica_token)

    async def open(self) -> None:
        self.services.open()
        self.histories.load()

    async def close(self) -> None:
        await self.histories.close()

    def loops(self) -> Sequence[BackgroundLoop]:
        return (self.reconciler, RunningLoop("history", self._sample), RunningLoop("history kept", self._write))

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(WRITE_EVERY_S)
            await self.histories.write()

    async def _sample(self) -> None:
        while True:
            if (status := self.services.gateway_seen.status) is not None:
                live = frozenset(known.record.id for known in self.services.live())
                self.histories.sample(self._server.clock.now(), status.services, live)
            await asyncio.sleep(EVERY_S)

    def committed(self, events: Iterable[Event]) -> None:
        self.reconciler.committed(events)

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        """A replica is given the token by which its gateway knows it, and in a sandbox the way there."""
        if job.job.owner_id is None or self.services.live_service(job.job.owner_id) is None:
            return gang  # it belongs to nothing, or to what another extension has
        _, _, generation = parse_replica_name(job.job.name)
        token = self._replica_token(job.job.owner_id, generation)
        gang = replace(gang, secrets={**gang.secrets, TOKEN_VARIABLE: token})
        if self._server.sandbox(job.job.tenant) is Sandbox.NONE:
            return gang
        socket = self._gateway.sandboxed
        argv = tuple(str(socket) if word == self._gateway.socket else word for word in gang.argv)
        return replace(gang, argv=argv, mounts=(*gang.mounts, Mount(socket.parent, socket.parent)))

    def answers(self) -> Mapping[type, object]:
        return {KillCauses: self, NeededBundles: self, Objectives: self, Telemetry: self}

    def missed(self) -> Iterable[Miss]:
        """Services whose gateway measures more than the latency that is promised, over the last minute."""
        status = self.services.gateway_seen.status
        for seen in status.services if status is not None else ():
            known = self.services.live_service(seen.id)
            slo = None if known is None else known.manifest.slo
            if known is not None and slo is not None and seen.p99_s is not None and seen.p99_s > slo.p99:
                text = f"p99 is {seen.p99_s * 1e3:.0f} ms, {slo.p99 * 1e3:.0f} ms are promised"
                yield Miss(known.record.tenant, known.record.name, text)

    def kill_cause(self, job_id: str) -> str | None:
        """A replica that hangs is killed by its gateway."""
        job = self._server.job(job_id)
        if job is None or job.job.owner_id is None or job.attempt is None:
            return None
        why = self._gateway.killed(connection_name(job.job.tenant, job.job.name), job.attempt.created_at)
        return None if why is None else f"the gateway stopped this replica: {why}"

    def needed_bundles(self) -> Iterable[tuple[str, str]]:
        for known in self.services.live():
            yield from ((known.record.tenant, one.bundle) for one in known.manifests.values() if one.bundle)

    def telemetry(self, job_id: str) -> Mapping[str, Any] | None:
        """A service's requests are counted by its gateway."""
        job = self._server.job(job_id)
        owner = job.job.owner_id if job is not None else None
        known = self.services.live_service(owner) if owner is not None else None
        status = self.services.gateway_seen.status
        if known is None or status is None:
            return None
        return {
            "gateway": f"http://{status.http.reached_at}/metrics",
            "token_file": str(self._server.home / "admin.token"),
            "tenant": known.record.tenant,
            "models": sorted({model.name for model in known.manifest.models}),
        }

    def page(self, tenant: str | None) -> Page | None:
        """A service is shown to its tenant's people."""
        live = [known for known in self.services.live() if tenant in (None, known.record.tenant)]
        rows: list[list[Value]] = [
            [one.record.name, one.record.tenant, one.record.state.value.lower(), len(one.observed.ready)]
            for one in live
        ]
        columns = [Column(name="service"), Column(name="tenant"), Column(name="state"), Column(name="ready replicas")]
        table = Table(title="Services", columns=columns, rows=rows, empty="none; `shoal deploy` makes one")
        return Page(title="Services", figures=[Figure(name="services", value=len(live))], parts=[table])

    def metrics(self) -> Iterable[Metric]:
        states: Counter[tuple[str, ...]] = Counter()
        ready: dict[tuple[str, ...], float] = {}
        objective: dict[tuple[str, ...], float] = {}
        for known in self.services.live():
            service = known.record
            states[service.tenant, service.state.value] += 1
            ready[service.tenant, service.name] = float(len(known.observed.ready))
            if known.manifest.slo is not None and (p99 := known.manifest.slo.p99) is not None:
                objective |= {(service.tenant, service.name, model.name): p99 for model in known.manifest.models}
        return (
            gauge("shoal_services", "Live services by tenant and state.", ("tenant", "state"), states),
            gauge("shoal_service_ready_replicas", "Replicas that take requests.", ("tenant", "service"), ready),
            gauge("shoal_service_objective_seconds", "Its objective for the 99th percentile of latency.",
                  ("tenant", "service", "model"), objective),
        )  # fmt: skip

    def routers(self) -> Sequence[APIRouter]:
        from shoal.serve.live.api import manifests, router

        return (manifests, router)

    def _replica_token(self, service_id: str, generation: int) -> str:
        return self._server.derive_secret(f"replica {service_id} {generation}")
