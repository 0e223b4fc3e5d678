"""The whole control plane in virtual time: the real loops, store and admission over a simulated engine.

A `World` can kill its server at any named point and start another one on the same database and cluster. A failing
seed is reproduced by one line: `simulate(Seed)`.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from shoal.admission import Outlook, explain
from shoal.contract.events import EventKind
from shoal.contract.lifecycle import TRANSITIONS, JobState
from shoal.contract.manifest import JobManifest, parse_manifest
from shoal.contract.records import JobFilter, JobRecord
from shoal.control.extensions.loaded import Chosen, Facilities
from shoal.control.plane import ControlPlane
from shoal.core import Device, Fault, Node, PriorityClass, Quota, Unavailable
from shoal.engine import Gang
from shoal.engine.simulated import Script, SimulatedCluster, SimulatedEngine, VirtualClock
from shoal.extension import Server
from shoal.schedule.live.extension import Schedule, ScheduleSection
from shoal.schedule.live.scheduler import Scheduler
from shoal.schedule.presets import ScheduleSettings
from shoal.serve import lifecycle as services
from shoal.serve.lifecycle import ServiceState
from shoal.serve.live.extension import Serve, ServeSection
from shoal.serve.live.gateway import GatewayDesired, LocalGateway, ObservedGateway
from shoal.serve.live.manager import ServiceManager
from shoal.serve.live.records import ServiceFilter
from shoal.serve.live.repository import ServiceRepository
from shoal.store import Store, open_store
from tests.admission.cases import check_explanation


class Crash(BaseException):
    """The server dies here."""


def nodes(count: int, devices: int, kind: str = "a100") -> tuple[Node, ...]:
    return tuple(
        Node(f"n{i}", tuple(Device(f"n{i}-{kind}-{d}", kind, d) for d in range(devices)), devices * 8000, devices << 36)
        for i in range(count)
    )


def two_types(count: int, devices: int) -> tuple[Node, ...]:
    """The first node is of another type than the others, with half as many devices."""
    return (replace(nodes(1, devices // 2, "v100")[0], name="fast"), *nodes(count - 1, devices))


def manifest(name: str = "job", **fields: object) -> JobManifest:
    return JobManifest.model_validate({"name": name, "command": ["train"], **fields})


@dataclass
class World:
    """One cluster, one database, and a server that may be killed and started again."""

    folder: Path
    cluster: SimulatedCluster
    clock: VirtualClock
    fault: Callable[[str], None] = lambda _: None
    plane: ControlPlane | None = None
    store: Store | None = None
    engine: SimulatedEngine | None = None
    crashes: int = 0
    dead: asyncio.Event = field(default_factory=asyncio.Event)
    gateway: LocalGateway | None = None
    schedule: ScheduleSettings | None = None
    questioner: Questioner | None = None

    @classmethod
    def make(
        cls, folder: Path, machines: tuple[Node, ...], behaviour: Callable[[Gang], Script], ahead: float | None = None
    ) -> World:
        clock = VirtualClock()
        return cls(folder, SimulatedCluster(machines, clock=clock, behaviour=behaviour, ahead=ahead), clock)

    async def start(self) -> ControlPlane:
        self.dead = asyncio.Event()
        self.store = open_store(
            f"sqlite:///{self.folder / 'shoal.db'}", clock=self.clock, inline=True, sync=False, tables=[Serve.tables]
        )
        self.store.acquire("simulation")
        self.engine = SimulatedEngine(self.cluster)
        numbers = random.Random(self.store.epoch)
        self.plane = ControlPlane(
            self.store, self.engine, self.folder, clock=self.clock, fault=self._maybe_crash,
            on_fatal=lambda _: self.dead.set(), new_id=lambda letter: f"{letter}-{numbers.getrandbits(40):010x}",
            extensions=chosen(gateway=self.gateway, schedule=self.schedule),
        )  # fmt: skip
        if self.questioner is not None:
            self.questioner.follow(self.store)
        await self.plane.open()
        return self.plane

    def _maybe_crash(self, point: str) -> None:
        if self.dead.is_set():
            raise Crash(point)
        try:
            self.fault(point)
        except Crash:
            # From this very line on, the dead server neither writes nor reaches the engine.
            self.crashes += 1
            self.dead.set()
            if self.engine is not None:
                self.engine.drop()
            if self.store is not None:
                self.store.release()
            raise

    async def kill(self) -> None:
        """What `kill -9` leaves: nothing of the server, all of the database and the cluster."""
        self.dead.set()
        if self.engine is not None:
            self.engine.drop()
        if self.plane is not None:
            for loop in self.plane.loops:
                await loop.close()
        if self.store is not None:
            self.store.release()
            self.store.close()

    async def restart(self) -> ControlPlane:
        await self.kill()
        return await self.start()

    async def until(self, condition: Callable[[], bool], *, within_s: float = 3600.0) -> None:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.5)


class NoGateway:
    """For servers that serve nothing."""

    socket = ""

    def require(self) -> None:
        raise Unavailable("this server has no gateway")

    def serve(self, desired: GatewayDesired) -> None: ...

    def rest(self) -> bool:
        return True

    def observe(self) -> ObservedGateway:
        return ObservedGateway(None, "this server has no gateway")

    def killed(self, name: str, since: float) -> str | None:
        return None


def chosen(*, gateway: LocalGateway | None = None, schedule: ScheduleSettings | None = None) -> list[Chosen]:
    """The server's extensions as simulations use them: services behind this gateway, rounds with these settings."""

    class Behind(Serve):
        def __init__(self, server: Facilities, settings: ServeSection) -> None:
            super().__init__(server, settings, gateway=gateway or NoGateway())

    class Rounds(Schedule):
        def __init__(self, server: Server, settings: ScheduleSection) -> None:
            super().__init__(server, settings)
            if schedule is not None:
                self.scheduler = Scheduler(schedule, server.job, server.home / "schedule.json", made=server.wake)

    return [Chosen(Rounds, ScheduleSection()), Chosen(Behind, ServeSection())]


def services_of(plane: ControlPlane) -> ServiceManager:
    found = plane.extensions.get(Serve)
    assert found is not None
    return found.services


async def snapshot_of(plane: ControlPlane) -> str:
    """The live state as `shoal schedule` reads it."""
    found = plane.extensions.get(Schedule)
    assert found is not None
    return "".join(f"{line}\n" for line in await found.snapshot())


def scheduler_of(plane: ControlPlane | None) -> Scheduler | None:
    found = plane.extensions.get(Schedule) if plane is not None else None
    return found.scheduler if found is not None else None


def check_history(store: Store, cluster: SimulatedCluster) -> None:
    """What must hold of every run, whatever was killed when: the event log and the engine's own record agree."""
    states: dict[str, str] = {}
    served: dict[str, str] = {}
    attempts: Counter[str] = Counter()
    after = 0
    while events := store.events(after, limit=5000):
        for event in events:
            assert event.seq == after + 1 or after == 0 or event.seq > after
            after = event.seq
            assert event.kind in [*EventKind, *services.ServiceEvent]
            if event.kind == "service.deployed" and event.new_state is not None:
                assert event.owner_id not in served
                served[str(event.owner_id)] = ServiceState.DEPLOYING
            elif event.kind == "service.state":
                assert event.old_state == served[str(event.owner_id)]
                assert event.new_state in services.TRANSITIONS[ServiceState(event.old_state)]
                served[str(event.owner_id)] = str(event.new_state)
            if event.job_id is None:
                continue
            if event.kind == "job.submitted":
                assert event.job_id not in states
                states[event.job_id] = JobState.QUEUED
            elif event.kind == "job.state":
                assert event.old_state == states[event.job_id]
                assert event.new_state in TRANSITIONS[JobState(event.old_state)]
                states[event.job_id] = str(event.new_state)
                attempts[event.job_id] += event.new_state == JobState.PLACED
    jobs = store.jobs(JobFilter(limit=100_000, owned=True))
    assert {job.id: job.state for job in jobs} == states
    found = ServiceRepository(store).services(ServiceFilter(limit=100_000))
    assert {service.id: service.state for service in found} == served
    replicas = Counter(job.owner_id for job in jobs if job.owner_id)
    assert {service.id: service.launched for service in found if service.launched} == replicas
    for job in jobs:
        assert len(store.attempts(job.id)) == attempts[job.id]
    check_times(store, cluster)
    assert cluster.overlaps() == ()


def check_times(store: Store, cluster: SimulatedCluster) -> None:
    """Every attempt lasted as long as its processes did by the cluster's own record, whoever was away meanwhile."""
    spans: dict[str, tuple[float, float]] = {}
    for at, name, event in cluster.history:
        if event == "running":
            spans[name] = (at, at)
        elif event == "end" and name in spans:
            spans[name] = (spans[name][0], at)
    for job in store.jobs(JobFilter(limit=100_000, owned=True)):
        ran_s = 0.0
        for attempt in store.attempts(job.id):
            name = f"{job.id}.{attempt.number}"
            mine = [spans[phase] for phase in (f"{name}.run", f"{name}.store") if phase in spans]
            if attempt.outcome is None or not mine:
                continue
            ran_s += sum(end - start for start, end in mine)
            assert attempt.running_at == pytest.approx(mine[0][0], abs=1e-3)
            assert attempt.ended_at == pytest.approx(mine[-1][1], abs=1e-3)
        assert job.ran_s == pytest.approx(ran_s, abs=1e-3)


def check_sizes(world: World) -> None:
    """Every attempt of every job has as many ranks as its manifest allows, and every gang that was launched as many
    as its attempt."""
    assert world.store is not None
    for job in world.store.jobs(JobFilter(limit=100_000)):
        asked = parse_manifest(job.manifest)
        attempts = world.store.attempts(job.id)
        assert (job.min_ranks, job.ranks) == (asked.min_ranks, asked.max_ranks)
        assert job.size in (None, *(len(attempt.placement) for attempt in attempts[-1:]))
        if job.state.active or job.state is JobState.QUEUED:
            assert (job.size is not None) == job.state.active
        for attempt in attempts:
            assert asked.min_ranks <= len(attempt.placement) <= asked.max_ranks
            assert not attempt.ranks or len(attempt.ranks) in (1, len(attempt.placement))  # one: of a helper's phase


class Questioner:
    """Asks of every job that is not over why it waits, each time that something changed, and tries what it is told."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.asked = 0
        self.wrong: list[Exception] = []

    def follow(self, store: Store) -> None:
        """Ask once the plane has followed what was committed."""
        tasks: set[asyncio.Task[None]] = set()

        def committed(_events: object) -> None:
            if not tasks:
                tasks.add(task := asyncio.create_task(self._ask(store)))
                task.add_done_callback(tasks.discard)

        store.subscribe(committed)

    async def _ask(self, store: Store) -> None:
        if self._world.dead.is_set() or self._world.store is not store:
            return
        try:
            await self.ask_all()
        except Exception as error:  # nobody awaits this task
            self.wrong.append(error)

    async def ask_all(self) -> None:
        plane = self._world.plane
        if plane is None or not plane.ready:
            return
        outlook = Outlook(plane.snapshot())
        starting = {start.job_id for start in outlook.decision.starts}
        for live in plane.cache:
            self.asked += 1
            if live.job.state is JobState.QUEUED and scheduler_of(plane) is None:
                check_explanation(outlook.snapshot, explain(outlook.snapshot, live.job.id, outlook), starting)
            else:
                assert (await plane.explain(live.job.id)).summary


async def simulate(
    seed: int,
    folder: Path,
    *,
    jobs: int = 40,
    crash_rate: float = 0.03,
    schedule: ScheduleSettings | None = None,
    ranges: bool = False,
    questions: bool = False,
    ahead: float | None = None,
    linked: bool = False,
) -> World:
    """A day in the life of a cluster, with everything drawn from the seed: jobs, failures, kills and wishes. With
    `schedule`, its nodes have two types of accelerators, and rounds decide. With `ranges`, half of the jobs leave open
    how many ranks they have. With `questions`, every job is asked after every event why it waits. With `ahead`, the
    cluster has a scheduler of its own. With `linked`, jobs wait for others, and some are arrays."""
    draw = random.Random(seed)

    def behaviour(gang: Gang) -> Script:
        own = random.Random(f"{seed}-{gang.name}")
        return Script(
            run_s=own.choice((0.0, 1.0, 5.0, 30.0)),
            code=own.choice((0, 0, 0, 0, 1)),
            launch_s=own.choice((0.0, 0.1, 2.0)),
            launch_error="no such command" if own.random() < 0.03 else None,
            launch_fault=own.choice((Fault.USER, Fault.INFRASTRUCTURE)),
            checkpoint_s=own.choice((None, 0.5)),
            term_s=own.choice((None, 0.0, 1.0)),
        )

    machines = nodes(3, 4) if schedule is None else two_types(3, 4)
    world = World.make(folder, machines, behaviour, ahead)
    world.schedule = schedule
    world.questioner = Questioner(world) if questions else None
    world.fault = lambda point: crash_at(draw, crash_rate, point)
    machinery = Machinery(world.cluster, machines, random.Random(f"{seed}-nodes"))
    await reopen(world)
    await tenants(world)
    wanted: dict[str, JobManifest] = {}
    for number in range(jobs):
        count, ranks = draw.choice(((0, 1), (1, 1), (2, 1), (4, 1), (1, 2), (3, 2), (2, 3), (0, 3)))
        wanted[f"key-{number}"] = manifest(
            f"job-{number}",
            resources={"accelerators": {"type": "any", "count": count}},
            ranks={"min": ranks, "max": ranks + draw.choice((1, 3))} if ranges and draw.random() < 0.5 else ranks,
            priority_class=draw.choice(("best-effort", "best-effort", "guaranteed")),
            restart={"limits": {"user": draw.choice((0, 2))}},
            outputs=[{"from": "a", "to": "/tmp/b"}] if draw.random() < 0.2 else [],
            inputs=[{"from": "/tmp/a", "to": "b"}] if draw.random() < 0.2 else [],
            grace="2s",
        )
    acknowledged: dict[str, str] = {}
    theirs: dict[str, list[str]] = {}
    for key, plain in wanted.items():
        tenant = draw.choice(("ada", "bob", "cyd"))
        job = link(plain, draw, theirs.setdefault(tenant, [])) if linked else plain
        acknowledged[key] = await _submit(world, key, job, tenant=tenant)
        theirs.setdefault(tenant, []).append(acknowledged[key].rpartition("-")[0] if job.array else acknowledged[key])
        if draw.random() < 0.3:
            await asyncio.sleep(draw.choice((0.1, 1.0, 7.0)))
        if draw.random() < 0.2:
            await _wish(world, draw, draw.choice(list(acknowledged.values())))
        if draw.random() < 0.05:
            break_something(world.cluster, draw)
        await machinery.turn(world.plane)
        if world.dead.is_set():
            await reopen(world)
    world.fault = lambda _: None
    await reopen(world)
    await machinery.restore(world.plane)
    await _finish(world, set(acknowledged.values()))
    assert world.store is not None
    stored = {job.id for job in world.store.jobs(JobFilter(limit=100_000))}
    if linked:
        check_links(world.store)
    else:
        assert stored == set(acknowledged.values())
    check_history(world.store, world.cluster)
    check_sizes(world)
    if world.questioner is not None:
        assert world.questioner.wrong == []
        assert world.questioner.asked > jobs
    return world


def link(job: JobManifest, draw: random.Random, earlier: list[str]) -> JobManifest:
    """The job, perhaps as an array, and perhaps waiting for some of the earlier ones."""
    fields: dict[str, object] = {}
    if draw.random() < 0.3:
        fields["array"] = draw.choice(("0-4%2", "3,5,7", "0-3%1"))
    if earlier and draw.random() < 0.6:
        chosen = draw.sample(earlier, min(len(earlier), draw.choice((1, 1, 2))))
        fields["after"] = [{"job": ref, "when": draw.choice(("success", "failure", "end", "end"))} for ref in chosen]
    return JobManifest.model_validate({**job.model_dump(by_alias=True, exclude_none=True), **fields})


def check_links(store: Store) -> None:
    """From the records alone: what each job waited for had come before it started, or could not come any more when it
    was cancelled for that; and no array ever had more tasks in place than its limit."""
    jobs = {job.id: job for job in store.jobs(JobFilter(limit=100_000))}
    arrays: dict[str, list[JobRecord]] = {}
    for job in jobs.values():
        if job.array_id is not None:
            arrays.setdefault(job.array_id, []).append(job)
    for job in jobs.values():
        first = next(iter(store.attempts(job.id)), None)
        verdicts = []
        for one in parse_manifest(job.manifest).after:
            targets = arrays.get(one.job) or [jobs[one.job]]
            over = all(target.state.terminal for target in targets)
            bad = any(target.state.terminal and target.state is not JobState.SUCCEEDED for target in targets)
            verdicts.append({"success": False if bad else over or None, "failure": bad if over else None,
                             "end": over or None}[one.when])  # fmt: skip
            if first is not None:
                assert all((target.ended_at or math.inf) <= first.created_at for target in targets), job.id
        if first is not None:
            assert all(verdicts)
        dropped = any(event.actor == "dependencies" for event in store.events(job_id=job.id))
        assert not dropped or (False in verdicts and first is None)
        if job.state is JobState.QUEUED:
            assert None in verdicts or job.array_id is not None
            assert False not in verdicts
    for tasks in arrays.values():
        assert store.array(tasks[0].array_id or "") is not None
        array = parse_manifest(tasks[0].manifest).tasks
        assert array is not None
        assert sorted(task.array_index or 0 for task in tasks) == list(array.indices)
        spans = [(one.created_at, one.ended_at or math.inf) for task in tasks for one in store.attempts(task.id)]
        most = max((sum(start <= at < end for start, end in spans) for at, _ in spans), default=0)
        assert array.limit is None or most <= array.limit


def crash_at(draw: random.Random, rate: float, point: str) -> None:
    if draw.random() < rate:
        raise Crash(point)


async def reopen(world: World) -> None:
    while True:
        try:
            await world.restart()
        except Crash:
            continue
        else:
            return


async def tenants(world: World) -> None:
    assert world.plane is not None
    for name, weight in (("ada", 2.0), ("bob", 1.0), ("cyd", 1.0)):
        quota = Quota(accelerators=6) if name == "cyd" else Quota()
        await world.plane.put_tenant(
            name, weight=weight, quota=quota, max_priority_class=PriorityClass.GUARANTEED, actor="admin"
        )


async def _submit(world: World, key: str, job: JobManifest, tenant: str) -> str:
    """As a client would: again with the same key until it is acknowledged."""
    while True:
        try:
            assert world.plane is not None
            record, _ = await world.plane.submit(job, tenant=tenant, actor=f"tenant:{tenant}", idempotency_key=key)
        except Exception:
            if not world.dead.is_set():
                raise
        except Crash:
            pass
        else:
            return record.id
        await reopen(world)


async def _wish(world: World, draw: random.Random, job_id: str) -> None:
    from shoal.core import ShoalError

    assert world.plane is not None
    wish = draw.choice((world.plane.cancel, world.plane.suspend, world.plane.resume))
    try:
        await wish(job_id, actor="tenant:ada")
    except (ShoalError, Crash):
        return


def break_something(cluster: SimulatedCluster, draw: random.Random) -> None:
    alive = cluster.alive()
    if not alive:
        return
    what = draw.choice((cluster.kill_rank, cluster.kill_supervisor))
    what(draw.choice(sorted(alive)))


class Machinery:
    """Nodes and devices that go and come back, new ones, and nodes that are closed for a while."""

    def __init__(self, cluster: SimulatedCluster, machines: tuple[Node, ...], draw: random.Random) -> None:
        self._cluster = cluster
        self._draw = draw
        self._nodes = list(machines)
        self._added = 0

    async def drain(self, plane: ControlPlane | None, name: str, *, back: bool) -> None:
        from shoal.core import ShoalError

        assert plane is not None
        try:
            if back:
                await plane.undrain_node(name, actor="admin")
            else:
                await plane.drain_node(name, actor="admin", because="its fan is loud")
        except (ShoalError, Crash):
            return

    async def turn(self, plane: ControlPlane | None) -> None:
        """Now and then, one thing happens to one node."""
        if self._draw.random() >= 0.15:
            return
        node, cluster = self._draw.choice(self._nodes), self._cluster
        what = self._draw.randrange(9)
        if what == 0:
            cluster.lose_node(node.name)
        elif what == 1:
            cluster.lose_device(node.name, self._draw.choice(node.devices).id)
        elif what == 2:
            cluster.close_node(node.name, "its fan is loud")
        elif what == 3:
            cluster.open_node(node.name)
        elif what == 4 and self._added < 2:
            self._added += 1
            self._nodes.append(replace(node, name=f"new{self._added}"))
            cluster.add_node(self._nodes[-1])
        elif what in (5, 6):
            await self.drain(plane, node.name, back=what == 6)
        else:
            cluster.restore_node(node.name)

    async def restore(self, plane: ControlPlane | None) -> None:
        for node in self._nodes:
            self._cluster.restore_node(node.name)
            self._cluster.open_node(node.name)
            await self.drain(plane, node.name, back=True)


async def _finish(world: World, job_ids: set[str]) -> None:
    """Nothing is broken any more: every job comes to its end."""
    from shoal.core import ShoalError

    plane, store = world.plane, world.store
    assert plane is not None
    assert store is not None
    for job_id in sorted(job_ids):
        try:
            await plane.resume(job_id, actor="admin")
        except ShoalError:
            continue

    def over() -> bool:
        return all(
            live.job.state is JobState.SUSPENDED or live.job.id in plane.cache.held
            for live in plane.cache
            if live.job.array_id is not None or live.job.id in job_ids
        )

    await world.until(over, within_s=36_000)
    await asyncio.sleep(30)
    assert world.cluster.alive() == ()
