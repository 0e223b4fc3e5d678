"""Jobs on rented instances in virtual time: the real control plane, store, simulated engine and simulated provider."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.core import Device, Estimate, Invalid, ManualClock, Node, PriorityClass, Quota, Speeds, Unavailable
from shoal.engine import Joinable
from shoal.engine.simulated import Line, Script, SimulatedCluster, SimulatedEngine, VirtualClock, run
from shoal.extension import Extension, Section
from shoal.market.live.extension import Market
from shoal.market.live.providers import make_provider
from shoal.market.live.settings import MarketSection, read_file
from shoal.market.live.simulated import SimulatedProvider
from shoal.store import Store, open_store

START = 1_700_000_000.0
OFFERS = [
    {"region": "us-east-1", "zone": "us-east-1a", "instance": "p3.2xlarge", "accelerator": "v100", "spot": True,
     "usd_per_hour": 1.5, "cpus": 8, "memory": "60G"},
    {"region": "us-east-1", "instance": "p3.2xlarge", "accelerator": "v100", "usd_per_hour": 3.0, "cpus": 8,
     "memory": "60G"},
]  # fmt: skip


def trace(folder: Path, counts: list[int]) -> Path:
    """Instances to be had of the spot offer, by minute of the day before `START` and the next one."""
    path = folder / "availability_1-node_aws-11-14-2023_us-east-1a_v100_1.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 60}, "data": counts}))
    return path


def prices(path: Path, changes: dict[float, float]) -> Path:
    from datetime import UTC, datetime

    rows = [
        {"AvailabilityZone": "us-east-1a", "InstanceType": "p3.2xlarge", "SpotPrice": str(usd),
         "Timestamp": datetime.fromtimestamp(START + at, UTC).isoformat()}
        for at, usd in changes.items()
    ]  # fmt: skip
    path.write_text(json.dumps({"SpotPriceHistory": rows}))
    return path


@dataclass
class World:
    folder: Path
    cluster: SimulatedCluster
    clock: VirtualClock
    file: dict[str, Any]
    connect: type[SimulatedEngine] = SimulatedEngine
    kind: type[Market] = Market
    beside: tuple[Chosen, ...] = ()
    plane: ControlPlane = field(init=False)
    store: Store = field(init=False)
    engine: SimulatedEngine = field(init=False)

    async def start(self) -> None:
        path = self.folder / "market.yaml"
        path.write_text(yaml.safe_dump(self.file))
        self.store = open_store(
            f"sqlite:///{self.folder / 'shoal.db'}", clock=self.clock, inline=True, sync=False,
            tables=[found for kind in (self.kind, *(one.kind for one in self.beside)) if (found := kind.tables)],
        )  # fmt: skip
        self.store.acquire("test")
        self.engine = self.connect(self.cluster)
        section = MarketSection(enabled=True, file=str(path))
        self.plane = ControlPlane(
            self.store, self.engine, self.folder, clock=self.clock,
            extensions=[Chosen(self.kind, section), *self.beside],
        )  # fmt: skip
        await self.plane.open()

    async def kill(self) -> None:
        self.engine.drop()
        await self.plane.close()
        self.store.release()
        self.store.close()

    @property
    def market(self) -> Market:
        found = self.plane.extensions.get(self.kind)
        assert found is not None
        return found

    @property
    def truth(self) -> SimulatedProvider:
        provider = self.market.provider
        assert isinstance(provider, SimulatedProvider)
        return provider

    async def submit(self, *, rents: bool = True, ranks: int = 1, **work: str) -> str:
        asked = JobManifest.model_validate({
            "name": "job", "command": ["train"], "ranks": ranks, "grace": "60s",
            "resources": {"accelerators": {"type": "v100", "count": 1}},
            "extensions": {"market": {"work": "1h", "deadline": "4h", "launch": "60s", **work}} if rents else {},
        })  # fmt: skip
        job, _ = await self.plane.submit(asked, tenant="default", actor="tenant:default")
        return job.id

    def state(self, job_id: str) -> JobState:
        return self.plane.job(job_id).state

    async def until(self, job_id: str, state: JobState, within_s: float = 7200.0) -> None:
        async with asyncio.timeout(within_s):
            while self.state(job_id) is not state:
                await asyncio.sleep(1)

    def held(self) -> list[str]:
        """The offers of what runs in truth."""
        return [one.token for one, _ in self.truth.everything() if one.ended_at is None]

    def offers(self, job_id: str) -> list[tuple[str, bool]]:
        """What was rented for the job: the offer, and whether it was there."""
        found = sorted(self.market.ledger.of(None), key=lambda one: one.id)
        return [(one.offer, bool(one.instance_id)) for one in found if one.job_id == job_id]

    def placed(self, job_id: str) -> list[str]:
        """The nodes of the job's ranks."""
        live = self.plane.cache.get(job_id)
        return [] if live is None or live.attempt is None else [rank.node for rank in live.attempt.placement]

    def wait(self, job_id: str) -> str:
        live = self.plane.cache.get(job_id)
        return "" if live is None or live.wait is None else live.wait.code


def play(
    folder: Path, scene: Callable[[World], Awaitable[None]], *, run_s: float = 600.0, nodes: tuple[Node, ...] = (),
    checkpoint_s: float | None = 5.0, connect: type[SimulatedEngine] = SimulatedEngine,
    beside: tuple[Chosen, ...] = (), kind: type[Market] = Market, lines: tuple[Line, ...] = (), **file: Any,
) -> None:  # fmt: skip
    async def whole() -> None:
        clock = VirtualClock()
        cluster = SimulatedCluster(
            list(nodes), clock=clock, behaviour=lambda _: Script(run_s=run_s, checkpoint_s=checkpoint_s, lines=lines)
        )
        simulated = {"launch": "60s", "notice": "120s", **file.pop("simulated", {})}
        values = {"provider": "simulated", "offers": OFFERS, "caps": {"default": 50}, "policy": "cheapest",
                  "every": "5s", "tick": "60s", "lease": "20m", "notice": "60s", "simulated": simulated,
                  **file}  # fmt: skip
        world = World(folder, cluster, clock, values, connect, kind, beside)
        await world.start()
        await world.plane.put_tenant(
            "default", quota=Quota(), max_priority_class=PriorityClass.GUARANTEED, actor="admin"
        )
        await scene(world)
        await world.kill()

    run(whole(), start=START)


OWN = Node("own", (Device("g0", "v100", 0),), 8000, 64 << 30)
"""A machine that nobody rents."""
SPOT, DEMAND = "aws/us-east-1a/p3.2xlarge", "aws/us-east-1/p3.2xlarge/on-demand"


def test_a_job_waits_for_its_instance_runs_there_and_gives_it_back(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        job = await world.submit()
        await asyncio.sleep(20)
        assert world.state(job) is JobState.QUEUED
        assert world.wait(job) == "renting"
        await world.until(job, JobState.RUNNING)
        assert world.held() == [f"{job}-1-0"]
        assert [rank.node for rank in world.plane.cache[job].attempt.placement] == [f"{job}-1-0"]  # type: ignore[union-attr]
        await world.until(job, JobState.SUCCEEDED)
        await asyncio.sleep(10)
        assert world.held() == []
        assert world.offers(job) == [(SPOT, True)]
        (account,) = world.market.ledger.accounts()
        assert account.held == 0
        assert account.spent / 1e6 == pytest.approx(world.truth.bills()["default"], abs=1e-5)
        assert [node.name for node in (await world.engine.inventory()).nodes] == []

    play(tmp_path, scene)


def test_no_other_job_gets_a_rented_node(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        rents, own = [world.plane.job(await world.submit(rents=rents)) for rents in (True, False)]
        assert world.plane.obstacles(rents) == []  # what it needs comes
        assert "would never fit" in world.plane.obstacles(own)[0].text
        for job in (rents, own):
            await world.plane.cancel(job.id, actor="admin")
        other = await world.submit(rents=False)
        job = await world.submit()
        await world.until(job, JobState.SUCCEEDED)
        assert world.state(other) is JobState.QUEUED

    play(tmp_path, scene)


def test_a_gang_starts_when_all_of_its_instances_are_there(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        job = await world.submit(ranks=3)
        await world.until(job, JobState.RUNNING)
        assert len(world.held()) == 3
        await world.until(job, JobState.SUCCEEDED)
        await asyncio.sleep(10)
        assert world.held() == []

    play(tmp_path, scene)


def test_a_gang_that_is_not_had_whole_costs_no_more_than_a_minute_of_its_parts(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        job = await world.submit(ranks=3)
        await world.until(job, JobState.RUNNING)
        assert {offer for offer, there in world.offers(job)[-3:] if there} == {DEMAND}
        assert len(world.held()) == 3
        await world.until(job, JobState.SUCCEEDED)

    history = [str(trace(tmp_path, [2] * 3000))]
    play(
        tmp_path, scene, simulated={"history": history, "start": START},
        offers=[{**OFFERS[0], "instance": "v100-x1"}, OFFERS[1]],
    )  # fmt: skip


def test_a_job_checkpoints_on_notice_and_goes_on_elsewhere(tmp_path: Path) -> None:
    """The price passes the most that is paid after ten minutes: two minutes later the instance is gone."""

    async def scene(world: World) -> None:
        job = await world.submit()
        await world.until(job, JobState.RUNNING)
        await asyncio.sleep(720)
        await world.until(job, JobState.RUNNING)
        assert world.offers(job) == [(SPOT, True), (DEMAND, True)]
        attempts = world.store.attempts(job)
        assert attempts[0].stop == "preempt"
        assert "taken away" in attempts[0].stop_cause
        assert attempts[0].ended_at is not None
        taken = next(one.ended_at for one, _ in world.truth.everything() if one.token == f"{job}-1-0")
        assert taken is not None
        assert attempts[0].ended_at <= taken  # it left in time
        assert attempts[0].outcome == "preempted"
        assert [one.placement[0].node for one in attempts] == [f"{job}-1-0", f"{job}-2-0"]
        assert attempts[1].running_at is not None
        assert attempts[1].running_at < START + 720  # it did not wait for the end of the first
        await world.until(job, JobState.SUCCEEDED)
        await asyncio.sleep(10)
        assert world.held() == []

    history = [str(prices(tmp_path / "aws.json", {-60: 1.0, 600: 2.0}))]
    play(tmp_path, scene, run_s=1800, simulated={"history": history, "start": START}, tick="30m")


def test_a_cap_ends_what_runs_in_time_and_is_told(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        job = await world.submit()
        await world.until(job, JobState.RUNNING)
        await asyncio.sleep(3600)
        assert world.held() == []
        assert world.state(job) is JobState.QUEUED
        assert world.wait(job) == "cap"
        assert 0.4 < world.truth.bills()["default"] <= 0.6
        assert "cap" in world.store.attempts(job)[0].stop_cause
        (account,) = world.market.ledger.accounts()
        assert account.spent + account.held <= account.cap
        events = [event.kind for event in world.store.events()]
        assert "market.refused" in events

    play(tmp_path, scene, run_s=7200, caps={"default": 0.6}, every="20s")


def test_a_lease_is_renewed_while_the_job_runs(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        job = await world.submit()
        await world.until(job, JobState.SUCCEEDED, within_s=3 * 3600)
        assert world.offers(job) == [(SPOT, True)]
        assert len(world.store.attempts(job)) == 1

    play(tmp_path, scene, run_s=2 * 3600, every="60s")


def test_a_cancelled_job_gives_its_instance_back(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        job = await world.submit()
        await asyncio.sleep(7)
        assert world.held()
        await world.plane.cancel(job, actor="test")
        await asyncio.sleep(20)
        assert world.held() == []

    play(tmp_path, scene)


def test_work_goes_on_through_the_death_of_the_server(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        job = await world.submit()
        await world.until(job, JobState.RUNNING)
        await world.kill()
        await asyncio.sleep(120)
        await world.start()
        await asyncio.sleep(10)
        assert world.state(job) is JobState.RUNNING
        assert world.held() == [f"{job}-1-0"]
        await world.until(job, JobState.SUCCEEDED)
        assert world.offers(job) == [(SPOT, True)]
        assert len(world.store.attempts(job)) == 1

    play(tmp_path, scene)


def test_a_job_starts_nowhere_else_while_the_market_opens(tmp_path: Path) -> None:
    class Slow(Market):
        async def open(self) -> None:
            await asyncio.sleep(20)
            await super().open()

    async def scene(world: World) -> None:
        job = await world.submit()
        await world.kill()
        world.kind = Slow
        await world.start()
        assert world.state(job) is JobState.QUEUED
        assert world.store.attempts(job) == []
        await world.until(await world.submit(rents=False), JobState.RUNNING)

    play(tmp_path, scene, nodes=(OWN,), caps={})


def test_a_job_leaves_in_time_when_the_provider_answers_no_more(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async def away() -> None:
            raise Unavailable("nobody answers")

        job = await world.submit()
        await world.until(job, JobState.RUNNING)
        world.truth.instances = away  # type: ignore[method-assign, assignment]
        await asyncio.sleep(1300)
        (attempt,) = world.store.attempts(job)
        assert attempt.stop == "preempt"
        assert attempt.ended_at is not None
        assert attempt.ended_at < START + 1200

    play(tmp_path, scene, run_s=7200)


def test_a_cluster_that_picks_machines_gets_the_job_when_its_instances_run(tmp_path: Path) -> None:
    class Cluster(SimulatedEngine):
        """One to which the server cannot add nodes."""

        join = None  # type: ignore[assignment]
        leave = None  # type: ignore[assignment]

    async def scene(world: World) -> None:
        assert not isinstance(world.engine, Joinable)
        job = await world.submit()
        await asyncio.sleep(50)
        assert world.state(job) is JobState.QUEUED
        await world.until(job, JobState.RUNNING)
        assert world.held() == [f"{job}-1-0"]
        await world.until(job, JobState.SUCCEEDED)
        await asyncio.sleep(10)
        assert world.held() == []
        assert world.offers(job) == [(SPOT, True)]

    play(tmp_path, scene, nodes=(OWN,), connect=Cluster)


@pytest.mark.parametrize("every_s", [23, 61])
@pytest.mark.slow
def test_no_death_of_the_server_doubles_or_forgets_an_instance(tmp_path: Path, every_s: int) -> None:
    """The price rises above the most that is paid in the midst of it: all jobs move."""

    async def scene(world: World) -> None:
        jobs = [await world.submit(ranks=ranks) for ranks in (1, 2, 1)]
        for _ in range(1800 // every_s):
            await asyncio.sleep(every_s)
            await world.kill()
            await world.start()
            for job, ranks in zip(jobs, (1, 2, 1), strict=True):
                held = [token for token in world.held() if token.startswith(job)]
                assert len(held) <= 2 * ranks  # where it is, and where it moves to
            (account,) = world.market.ledger.accounts()
            assert world.truth.bills().get("default", 0.0) * 1e6 <= account.spent + account.held + 10
        for job in jobs:
            await world.until(job, JobState.SUCCEEDED)
        await asyncio.sleep(20)
        assert world.held() == []
        (account,) = world.market.ledger.accounts()
        assert (account.held, account.spent / 1e6) == (0, pytest.approx(world.truth.bills()["default"], abs=1e-4))

    history = [str(prices(tmp_path / "aws.json", {-60: 1.0, 600: 2.0}))]
    play(tmp_path, scene, run_s=1200, simulated={"history": history, "start": START})


def test_why_is_told_with_what_other_prices_would_change(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        job = await world.submit()
        await world.until(job, JobState.RUNNING)
        told = await world.market.demand.told(world.market.demand.clients[job])
        assert told["offer"] == SPOT
        by_price = {one["price"]: one["offer"] for one in told["what_if"]}
        assert by_price == {1.2: SPOT, 1.5: SPOT, 2.0: SPOT}  # half the price of on demand: twice that is the same
        found = await world.plane.explain(job)
        assert found.summary

    play(tmp_path, scene)


def test_a_job_that_no_offer_fits_waits_and_says_so(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        asked = JobManifest.model_validate({
            "name": "job", "command": ["train"], "resources": {"accelerators": {"type": "h100", "count": 1}},
            "extensions": {"market": {"work": "1h", "deadline": "4h"}},
        })  # fmt: skip
        job, _ = await world.plane.submit(asked, tenant="default", actor="tenant:default")
        await asyncio.sleep(30)
        assert world.wait(job.id) == "no-offer"
        assert world.held() == []
        (why,) = world.plane.obstacles(job)
        assert (why.code, "would never run" in why.text) == ("no-offer", True)
        hurried = world.plane.job(await world.submit(work="4h", deadline="1h"))
        (why,) = world.plane.obstacles(hurried)
        assert why.code == "no-offer"
        assert why.text.startswith("4 h of work cannot end within 1 h (with its launch, the fastest offer needs 4.0 h")
        assert world.plane.obstacles(world.plane.job(await world.submit())) == []

    play(tmp_path, scene)


def test_a_tenant_without_a_cap_waits_and_is_told(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        job = await world.submit()
        await asyncio.sleep(30)
        assert world.wait(job) == "cap"
        assert world.truth.bills() == {}

    play(tmp_path, scene, caps={})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"provider": "azure"}, "provider"),
        ({"provider": "aws"}, "needs the section `aws`"),
        ({"policy": "best"}, "must be one of"),
        ({"lease": "1m"}, "twice `notice`"),
        ({"offers": []}, "there is nothing in it"),
        ({"offers": [OFFERS[0], OFFERS[0]]}, "listed twice"),
        (
            {"offers": [one for one in OFFERS if one.get("spot")]},
            "v100 on spot only: a deadline is kept by",
        ),
        ({"caps": {"default": -1}}, "must be at least 0"),
        ({"spend": 3}, "there is no such field"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    values = {"provider": "simulated", "offers": OFFERS, "caps": {}, **change}
    (tmp_path / "market.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(Invalid) as told:
        read_file(tmp_path / "market.yaml")
    assert said in str(told.value)


def test_a_spot_offer_that_the_history_does_not_know_is_told(tmp_path: Path) -> None:
    simulated = {"history": [str(trace(tmp_path, [2]))]}
    (tmp_path / "market.yaml").write_text(
        yaml.safe_dump({"provider": "simulated", "offers": OFFERS, "caps": {}, "simulated": simulated})
    )
    with pytest.raises(Invalid, match="no history of"):
        make_provider(read_file(tmp_path / "market.yaml"), tmp_path, ManualClock(), "fleet")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        read_file(tmp_path / "market.yaml")


class Predicts(Extension):
    """Knows of every kind of job that it makes 4 steps a second on a v100 (3 are sure), and 1 on a k80."""

    name = "predicts"

    def answers(self) -> Mapping[type, object]:
        return {Speeds: self}

    def steps_per_s(self, job: str, kind: str, workers: int = 1) -> Estimate | None:
        median = {"v100": 4.0, "k80": 1.0}.get(kind)
        return None if median is None else Estimate(median, 0.75 * median, 2 * median, 0.9, "test")


@pytest.mark.parametrize(
    ("told", "expected"),
    [({"k80": 1.0}, {"v100": 3.0, "k80": 1.0}), ({"k80": 1.0, "v100": 2.0}, {"v100": 2.0, "k80": 1.0}),
     ({"k80": 0.5}, {"v100": 1.0, "k80": 0.5}), ({"tpu": 1.0}, {"v100": 1.0, "k80": 1.0})],
)  # fmt: skip
def test_speeds_that_the_file_leaves_out_are_those_predicted(
    tmp_path: Path, told: dict[str, float], expected: dict[str, float]
) -> None:
    """Relative to the file's kind of speed 1, if it has one whose speed is known."""
    k80 = {"region": "us-east-1", "instance": "p2.xlarge", "accelerator": "k80", "usd_per_hour": 0.9, "cpus": 4,
           "memory": "60G"}  # fmt: skip

    async def scene(world: World) -> None:
        asked = JobManifest.model_validate({
            "name": "job", "command": ["train"], "resources": {"accelerators": "any"},
            "extensions": {"market": {"work": "1h", "deadline": "8h", "launch": "60s"}},
        })  # fmt: skip
        job, _ = await world.plane.submit(asked, tenant="default", actor="tenant:default")
        async with asyncio.timeout(60):
            while job.id not in world.market.demand.clients:
                await asyncio.sleep(1)
        market = world.market.demand.clients[job.id].market
        assert {one.accelerator: speed for one, speed in zip(market.offers, market.speed, strict=True)} == expected

    play(tmp_path, scene, offers=[*OFFERS, k80], speeds=told, beside=(Chosen(Predicts, Section(enabled=True)),))
