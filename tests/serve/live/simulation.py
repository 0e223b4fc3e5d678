"""Services in virtual time: a gateway that outlives servers and sees replicas come and go, and a day of changes."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from shoal.contract.records import JobFilter
from shoal.core import ShoalError, token_digest
from shoal.engine import Gang
from shoal.engine.simulated import Script
from shoal.serve.contract import (
    TOKEN_VARIABLE,
    Address,
    GatewayStatus,
    ModelState,
    ReplicaStatus,
    ServiceStatus,
    VersionStatus,
)
from shoal.serve.lifecycle import ServiceState
from shoal.serve.live.gateway import GatewayDesired, ObservedGateway
from shoal.serve.live.records import ServiceFilter
from shoal.serve.live.repository import ServiceRepository
from shoal.serve.manifest import ServiceManifest
from tests.control.simulation import (
    Crash,
    World,
    break_something,
    check_history,
    crash_at,
    nodes,
    reopen,
    services_of,
    tenants,
)

LOAD_S = 2.0


@dataclass
class SimulatedGateway:
    """Knows of a replica what its launch said: its name, and the token that says of which deployment it is."""

    world: World | None = None
    desired: GatewayDesired | None = None
    dead_until: float = 0.0
    started: float = 0.0
    changes: int = 0
    launched: dict[str, tuple[str, str]] = field(default_factory=dict)
    word: str = ""
    """The state that its runtime gives every model."""

    socket = "/simulated/replicas.sock"
    sandboxed = Path("/simulated/replicas/gateway.sock")

    def require(self) -> None:
        return

    def serve(self, desired: GatewayDesired) -> None:
        self.changes += desired != self.desired
        self.desired = desired

    def rest(self) -> bool:
        self.desired = None
        return True

    def die(self, for_s: float) -> None:
        """It is back after a while, and has to hear of every replica again."""
        assert self.world is not None
        self.dead_until = self.started = self.world.clock.now() + for_s

    def replica_started(self, gang: Gang) -> None:
        name = gang.argv[gang.argv.index("--name") + 1]
        self.launched[gang.name] = (name, token_digest(gang.secrets[TOKEN_VARIABLE]))

    def killed(self, name: str, since: float) -> str | None:
        return None

    def observe(self) -> ObservedGateway:
        assert self.world is not None
        now = self.world.clock.now()
        if self.desired is None or now < self.dead_until:
            return ObservedGateway(None, "the gateway does not run")
        seen = {gang: self.launched[gang] for gang in self.world.cluster.alive() if gang in self.launched}
        services: dict[str, list[ReplicaStatus]] = {one.id: [] for one in self.desired.services}
        for gang, (name, digest) in seen.items():
            deployment = next((one for one in self.desired.services if one.replica_token_hash == digest), None)
            status = self.world.cluster.status(gang)
            if deployment is None or status is None or status.ranks[0].started_at is None:
                continue
            broken = any("broken" in model.source for model in deployment.spec.models)
            since = max(self.started, status.ranks[0].started_at)
            ready = not broken and now - since >= LOAD_S
            services[deployment.id].append(ReplicaStatus(name, ready, "" if ready else "loading", broken))
        found = tuple(ServiceStatus(one, tuple(replicas), self._models(one)) for one, replicas in services.items())
        return ObservedGateway(GatewayStatus(1, 1, now, 1, Address(port=1), Address(port=2), found))

    def _models(self, service_id: str) -> tuple[VersionStatus, ...]:
        assert self.desired is not None
        models = next(one.spec.models for one in self.desired.services if one.id == service_id)
        ready, said = ModelState.READY, "new rows" if self.word == "DRIFTED" else ""
        well = self.word != "DRIFTED"
        return tuple(
            VersionStatus(one.name, one.version, ready, "", self.word, said, well, {"hits": 3.0}) for one in models
        )


def service(name: str = "ocr", **fields: object) -> ServiceManifest:
    given = {"name": name, "models": [{"name": f"{name}-model", "source": "/models/m.onnx"}], **fields}
    return ServiceManifest.model_validate(given)


def make_world(folder: Path, draw: random.Random | None = None, *, machines: int = 1, devices: int = 4) -> World:
    """Replicas run until they are asked to end; with `draw`, some fall over by themselves."""
    gateway = SimulatedGateway()

    def behaviour(gang: Gang) -> Script:
        if "--name" not in gang.argv:
            return Script(run_s=5.0)
        gateway.replica_started(gang)
        own = random.Random(f"{gang.name}-{draw.random()}") if draw else None
        if own is None or own.random() < 0.6:
            return Script(run_s=inf, launch_s=0.1, term_s=0.2)
        return Script(run_s=own.choice((0.0, 1.0, 20.0, 100.0)), code=own.choice((0, 1)), term_s=None)

    world = World.make(folder, nodes(machines, devices), behaviour)
    world.gateway = gateway
    gateway.world = world
    return world


async def simulate(seed: int, folder: Path, *, changes: int = 40, crash_rate: float = 0.03) -> World:
    """Services deployed, updated, scaled and undeployed while servers, replicas and the gateway die; then calm."""
    draw = random.Random(seed)
    world = make_world(folder, draw, machines=3)
    gateway = world.gateway
    assert isinstance(gateway, SimulatedGateway)
    world.fault = lambda point: crash_at(draw, crash_rate, point)
    await reopen(world)
    await tenants(world)
    for number in range(changes):
        await _wish(world, draw, number)
        await _sleep(world, draw.choice((0.1, 1.0, 5.0, 20.0)))
        if draw.random() < 0.15:
            break_something(world.cluster, draw)
        if draw.random() < 0.1:
            gateway.die(draw.choice((0.5, 5.0)))
        if world.dead.is_set():
            await reopen(world)
    world.fault = lambda _: None
    await reopen(world)
    await _settle(world)
    await _end(world)
    assert world.store is not None
    check_history(world.store, world.cluster)
    return world


async def _sleep(world: World, seconds: float) -> None:
    await asyncio.sleep(seconds)
    if world.store is not None and not world.dead.is_set():
        check_counts(world)


def check_counts(world: World) -> None:
    """At no moment does a service have two replicas of one index, or more than were counted."""
    assert world.plane is not None
    for known in services_of(world.plane).live():
        indexes = [one.index for one in services_of(world.plane).replicas(known.record.id)]
        assert len(set(indexes)) == len(indexes)
        assert max(indexes, default=-1) < known.record.launched


async def _wish(world: World, draw: random.Random, number: int) -> None:
    plane = world.plane
    assert plane is not None
    tenant, name = draw.choice(("ada", "bob", "cyd")), draw.choice(("ocr", "asr"))
    live = services_of(plane).named(name, tenant)
    what = draw.choice(("deploy", "deploy", "scale", "undeploy", "cancel")) if live else "deploy"
    try:
        if what == "deploy":
            await _deploy(world, draw, tenant, name, number)
        elif what == "scale":
            await services_of(plane).scale(live[0].id, draw.randrange(4), actor="ada")
        elif what == "undeploy" and draw.random() < 0.5:
            await services_of(plane).undeploy(live[0].id, actor="ada")
        elif what == "cancel":
            for replica in services_of(plane).replicas(live[0].id)[:1]:
                await plane.cancel(replica.job_id, actor="ada")
    except (ShoalError, Crash):
        return


async def _deploy(world: World, draw: random.Random, tenant: str, name: str, number: int) -> None:
    """As a client would: again with the same key until it is acknowledged."""
    manifest = service(
        name,
        models=[{"name": f"{name}-model", "source": draw.choice(("/models/a.onnx", "/models/b.onnx"))}],
        replicas=draw.choice((None, 0, 1, 2, 3)),
        resources={"accelerators": draw.choice((0, 1, 2)), "cpus": 1.0},
        priority_class=draw.choice(("best-effort", "guaranteed")),
        rollout=draw.choice(("surge", "replace")),
        env={"VARIANT": str(draw.randrange(3))},
        grace="2s",
    )
    while True:
        assert world.plane is not None
        try:
            await services_of(world.plane).deploy(
                manifest, tenant=tenant, actor=tenant, idempotency_key=f"key-{number}"
            )
        except Crash:
            await reopen(world)
        except ShoalError:
            if not world.dead.is_set():
                return  # it is stopping
            await reopen(world)
        else:
            return


async def _settle(world: World) -> None:
    """Nothing dies by itself any more: every service comes to what is wanted of it."""
    plane, store = world.plane, world.store
    assert plane is not None
    assert store is not None
    for known in services_of(plane).live():
        if known.record.state is not ServiceState.STOPPING:
            await services_of(plane).scale(known.record.id, 1, actor="admin")

    def settled() -> bool:
        return all(known.record.state is ServiceState.READY for known in services_of(plane).live())

    await world.until(settled, within_s=36_000)
    for known in services_of(plane).live():
        replicas = services_of(plane).replicas(known.record.id)
        assert [one.generation for one in replicas if not one.leaving] == [known.record.generation]


async def _end(world: World) -> None:
    plane, store = world.plane, world.store
    assert plane is not None
    assert store is not None
    for known in services_of(plane).live():
        await services_of(plane).undeploy(known.record.id, actor="admin")
    await world.until(lambda: services_of(plane).live() == [], within_s=3600)
    assert world.cluster.alive() == ()
    assert {one.state for one in ServiceRepository(store).services(ServiceFilter(limit=1000))} <= {ServiceState.STOPPED}
    assert all(job.state.terminal for job in store.jobs(JobFilter(limit=100_000, owned=True)))
