"""A round of many jobs is made beside the server's loop: what is decided is the same, and nothing waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shoal.admission import ClusterIndex, Decision, Pending, Running
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import JobRecord
from shoal.control.jobs.cache import Live
from shoal.control.plane import ControlPlane
from shoal.core import Device, Node, PriorityClass
from shoal.engine.local import LocalEngine
from shoal.engine.local.inventory import Accelerators
from shoal.schedule.live.plan import make
from shoal.schedule.live.scheduler import Scheduler
from shoal.schedule.presets import ScheduleSettings
from shoal.serve.live.extension import Serve
from shoal.store import open_store
from tests.control.simulation import chosen, scheduler_of

NOW = 1_700_000_000.0
SETTINGS = ScheduleSettings("max-min", round_s=60.0, restart_cost_s=1.0)


class Server:
    """Two nodes with two accelerators each, and jobs that want one of any type."""

    def __init__(self, jobs: int, *, many: int) -> None:
        self.index = ClusterIndex()
        self.index.set_nodes([
            Node(kind, tuple(Device(f"{kind}-{at}", kind, at) for at in range(2)), 64_000, 1 << 39)
            for kind in ("a100", "k80")
        ])  # fmt: skip
        self.jobs: dict[str, Live] = {}
        for at in range(jobs):
            asked = JobManifest.model_validate(
                {"name": f"job-{at}", "command": ["train"], "resources": {"accelerators": 1}}
            )
            job = JobRecord(
                f"j-{at}", f"t{at % 3}", asked.name, JobState.QUEUED, 1, asked.canonical_json(),
                asked.resources_per_rank(), 1, PriorityClass.BEST_EFFORT, 0, NOW - jobs + at, NOW,
                progress={"hooks": True},
            )  # fmt: skip
            self.jobs[job.id] = Live(job, _manifest=asked)
            self.index.add_pending(Pending(
                job.id, job.tenant, job.priority_class, 0, job.resources, 1, job.submitted_at,
            ))  # fmt: skip
        self.made = threading.Event()
        self.scheduler = Scheduler(SETTINGS, self.jobs.get, many=many, made=self.made.set)

    def decide(self, now: float) -> Decision:
        snapshot = self.index.snapshot(now)
        decision = self.scheduler(snapshot)
        self.index.settle(decision)
        for start in decision.starts:
            job = snapshot.pending.by_id[start.job_id]
            self.index.start(Running(
                job.job_id, job.tenant, job.priority_class, 0, job.resources, start.placement, now,
            ))  # fmt: skip
        return decision

    def until_made(self, now: float, gate: threading.Event) -> list[Decision]:
        """The decision with which a round begins to be made beside, and the one after it was told that it is made."""
        decisions = [self.decide(now)]
        gate.set()
        assert self.made.wait(30.0)
        decisions.append(self.decide(now))
        assert self.scheduler.status()["round"] == 2
        return decisions


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A round that is made in a thread beside is not made before this is set."""
    opened = threading.Event()

    def held(*given: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            assert opened.wait(30.0)
        return make(*given)

    monkeypatch.setattr("shoal.schedule.live.scheduler.make", held)
    return opened


def test_a_round_made_beside_decides_what_one_made_at_once_does(gate: threading.Event) -> None:
    at_once, beside = Server(12, many=1000), Server(12, many=1)
    first = [server.decide(NOW) for server in (at_once, beside)]
    assert first[0].starts == first[1].starts
    plain = at_once.decide(NOW + 60.0)
    made = beside.until_made(NOW + 60.0, gate)
    assert plain.preemptions
    assert made[-1].preemptions == plain.preemptions
    assert not any(each.preemptions for each in made[:-1])


def test_nothing_waits_for_a_round_that_is_made_beside(gate: threading.Event) -> None:
    server = Server(12, many=1)
    running = server.decide(NOW).starts
    assert len(running) == 4
    late = NOW + 60.0
    server.decide(late)
    ended = running[0].job_id
    server.index.stop(ended)
    del server.jobs[ended]
    decisions = server.until_made(late + 0.001, gate)
    assert len(decisions[0].starts) == 1
    assert ended not in {each.job_id for each in decisions[-1].preemptions}


def test_what_started_anew_since_is_not_told_that_its_turn_is_over(gate: threading.Event) -> None:
    server = Server(12, many=1)
    server.decide(NOW)
    late = NOW + 60.0
    server.decide(late)
    for job_id, job in server.index.snapshot(late).running.items():
        server.index.stop(job_id)
        server.index.start(replace(job, started_at=late))
    assert not any(each.preemptions for each in server.until_made(late, gate))


def test_a_defect_in_a_round_beside_leaves_the_last_one_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(12, many=1)
    server.decide(NOW)

    def broken(*_: object) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr("shoal.schedule.live.scheduler.make", broken)
    server.decide(NOW + 60.0)
    assert server.made.wait(30.0)
    server.decide(NOW + 60.0)
    assert server.scheduler.trouble == "ZeroDivisionError: no"
    assert server.scheduler.status()["round"] == 1


async def test_the_decider_sleeps_until_a_round_beside_is_made(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks whether it is made: whoever makes it tells."""
    monkeypatch.setattr("tests.control.simulation.Scheduler", partial(Scheduler, many=1))
    engine = LocalEngine(tmp_path, accelerators=lambda: Accelerators((Device("a0", "a100", 0),), "pretended"))
    settings = replace(SETTINGS, round_s=0.5)
    with contextlib.closing(open_store(f"sqlite:///{tmp_path}/shoal.db", tables=[Serve.tables])) as store:
        store.acquire("test")
        plane = ControlPlane(store, engine, tmp_path, extensions=chosen(schedule=settings))
        await plane.open()
        try:
            await plane.put_tenant("ada", actor="admin")
            jobs = []
            for at in range(3):
                asked = {"name": f"j{at}", "command": ["sleep", "60"], "resources": {"accelerators": 1}}
                jobs.append(await plane.submit(JobManifest.model_validate(asked), tenant="ada", actor="ada"))
            assert scheduler_of(plane) is not None
            async with asyncio.timeout(30):
                while not (beside := scheduler_of(plane)._beside):
                    await asyncio.sleep(0.02)
            async with asyncio.timeout(30):
                while not any(plane.job(job.id).state == "RUNNING" for job, _ in jobs):
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)  # what came before it is written down
            before, number = plane.decider.cycles, scheduler_of(plane).status()["round"]
            await asyncio.sleep(0.5)
            assert plane.decider.cycles <= before + 1
            assert not beside.made.done()
            gate.set()
            async with asyncio.timeout(30):
                while scheduler_of(plane).status()["round"] == number:
                    await asyncio.sleep(0.02)
            for job, _ in jobs:
                await plane.cancel(job.id, actor="ada")
            async with asyncio.timeout(30):
                while plane.cache.active():
                    await asyncio.sleep(0.02)
        finally:
            gate.set()
            await plane.close()
