"""The reconciler makes each service what it is wanted to be: the loop around the pure `plan`.

Each turn tells the gateway what to serve, looks at what it serves, and does what the plan says. It keeps nothing that
is not written down: replicas are submitted in the transaction that counts them, their ids follow from that count, and a
turn that was cut short is simply told again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import structlog

from shoal.base.loops import BackgroundLoop, Turns
from shoal.contract.records import Event
from shoal.core import Unavailable, token_digest
from shoal.extension import Server
from shoal.serve.contract import Deployment, ServiceStatus, TenantEntry, connection_name
from shoal.serve.live import steps
from shoal.serve.live.gateway import GatewayDesired, LocalGateway, ObservedGateway
from shoal.serve.live.manager import LETTER, LiveService, ServiceManager
from shoal.serve.live.plan import Cancel, ObservedService, Plan, plan
from shoal.serve.live.records import ServiceChange, ServiceRecord
from shoal.serve.live.replicas import replica_job
from shoal.serve.live.routes import rolling

log = structlog.get_logger("shoal.reconciler")

_RETRY_S = 1.0


class ServiceReconciler(BackgroundLoop):
    """`replica_token` gives the token of a service's generation, the same each time."""

    def __init__(
        self, services: ServiceManager, server: Server, gateway: LocalGateway, *,
        replica_token: Callable[[str, int], str],
        every_s: float = 0.25,
    ) -> None:  # fmt: skip
        self._services = services
        self._server = server
        self._gateway = gateway
        self._replica_token = replica_token
        self._turns = Turns(log, "services held up", server.on_fatal)
        self._every_s = every_s
        self._wake = asyncio.Event()
        self._owners: tuple[tuple[TenantEntry, ...], tuple[str, ...]] | None = None

    def open(self) -> None:
        self._wake.set()
        super().open()

    async def close(self) -> None:
        """Services go on without the server, and so does the gateway as long as there is one."""
        in_control = self._task is not None and not self._task.done()
        await super().close()
        if in_control and not self._services.live():
            with suppress(Unavailable):
                self._gateway.rest()

    def wake(self) -> None:
        self._wake.set()

    def committed(self, events: Iterable[Event]) -> None:
        if any(event.kind.startswith(("tenant.", "token.")) for event in events):
            self._owners = None
            self.wake()

    async def _run(self) -> None:
        busy = True
        while True:
            await self._next(busy)
            self._wake.clear()
            with self._turns.turn() as turn:
                busy = await self.turn()
            if turn.over:
                return
            if turn.held_up:
                busy = True
                await asyncio.sleep(_RETRY_S)

    async def _next(self, busy: bool) -> None:
        """Without services there is nothing to look at until one is deployed."""
        try:
            async with asyncio.timeout(self._every_s if busy else None):
                await self._wake.wait()
        except TimeoutError:
            return

    async def turn(self) -> bool:
        """Look at everything once; whether there is anything to look at again soon."""
        await self._cancel_strays()
        live = self._services.live()
        if not live:
            return not self._gateway.rest() or bool(self._server.owners())
        self._server.fault("before-gateway")
        self._gateway.serve(self._desired(live))
        seen = self._gateway.observe()
        self._services.gateway_seen = seen
        for known in live:
            await self._keep(known, seen)
        return True

    async def _keep(self, known: LiveService, seen: ObservedGateway) -> None:
        known.observed, known.status = observed_service(known.record, seen)
        found: Plan | None = None

        def step(service: ServiceRecord) -> ServiceChange | None:
            nonlocal found
            replicas = self._services.replicas(service.id)
            manifest = known.manifests[service.generation]
            found = plan(service, replicas, known.observed, surge=manifest.rollout == "surge")
            now, first = self._server.clock.now(), service.launched
            jobs = [
                replica_job(service, manifest, index, socket=self._gateway.socket, now=now)
                for index in range(first, first + found.create)
            ]
            return steps.follow(service, found, jobs, now)

        await self._services.change(known.record.id, step)
        known.plan = found
        await self._note_words(known)
        if found is not None:
            await self._cancel(found.cancel)

    async def _note_words(self, known: LiveService) -> None:
        """Write down which models their runtimes see in another state than before. At first, and after a restart of the
        server, only what is not well is news."""
        for model in known.status.models if known.status is not None else ():
            at = model.model, model.version
            before = known.words.get(at)
            if not model.word or model.word == before:
                continue
            if before is not None or not model.well:
                step = partial(steps.model_state, seen=model, before=before or "", now=self._server.clock.now())
                await self._services.change(known.record.id, step)
            known.words[at] = model.word

    async def _cancel(self, wanted: Sequence[Cancel]) -> None:
        for one in wanted:
            self._server.fault("before-cancel")
            await self._server.cancel(one.job_id, actor=steps.RECONCILER, cause=one.cause)

    async def _cancel_strays(self) -> None:
        """Replicas whose service is over: none should be, and none may stay."""
        for service_id in self._server.owners():
            if service_id.startswith(f"{LETTER}-") and self._services.live_service(service_id) is None:
                strays = self._services.replicas(service_id)
                await self._cancel([Cancel(one.job_id, "its service is over") for one in strays if not one.leaving])

    # --- what the gateway is told ---

    def _desired(self, live: Sequence[LiveService]) -> GatewayDesired:
        if self._owners is None:
            self._owners = self._read_owners()
        tenants, admins = self._owners
        return GatewayDesired(tenants, admins, tuple(one for known in live for one in self._deployments(known)))

    def _read_owners(self) -> tuple[tuple[TenantEntry, ...], tuple[str, ...]]:
        store = self._server.store
        valid = [token for token in store.tokens() if token.revoked_at is None]
        tenants = tuple(
            TenantEntry(
                tenant.name, tenant.weight, tuple(token.token_sha256 for token in valid if token.tenant == tenant.name)
            )
            for tenant in store.tenants()
        )
        return tenants, tuple(token.token_sha256 for token in valid if token.tenant is None)

    def _deployments(self, known: LiveService) -> list[Deployment]:
        """The present generation, and older ones of which a replica is left."""
        service = known.record
        replicas = self._services.replicas(service.id)
        left = {replica.generation for replica in replicas} | {service.generation}
        ready = Counter(replica.generation for replica in replicas if replica.name in known.observed.ready)
        specs = {
            generation: manifest.spec(service.tenant, service.replicas)
            for generation, manifest in sorted(known.manifests.items())
            if generation in left
        }
        specs[service.generation] = rolling(specs, ready)
        return [
            Deployment(service.id, generation, spec, token_digest(self._replica_token(service.id, generation)))
            for generation, spec in specs.items()
        ]


def observed_service(service: ServiceRecord, seen: ObservedGateway) -> tuple[ObservedService, ServiceStatus | None]:
    """What the gateway says of a service, as the plan takes it."""
    if seen.status is None:
        return ObservedService(False, seen.why, failing=seen.failing), None
    status = next((one for one in seen.status.services if one.id == service.id), None)
    if status is None:
        return ObservedService(True), None
    prefix = connection_name(service.tenant, "")
    named = [(one.name.removeprefix(prefix), one) for one in status.replicas]
    return ObservedService(
        True,
        ready=frozenset(name for name, one in named if one.ready),
        loading={name: one.reason for name, one in named if not one.ready and not one.failed},
        broken={name: one.reason for name, one in named if not one.ready and one.failed},
    ), status
