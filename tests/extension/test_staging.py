"""What an extension brings before a job's launch, and inputs that it takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from shoal.contract.gangs import DOWNLOAD, Move, parse_gang_name
from shoal.contract.lifecycle import JobState
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.core import Fault, Unavailable
from shoal.engine import LaunchFailed
from shoal.engine.simulated import Script
from shoal.extension import Extension, LiveJob, NoSection, Server
from tests.control import simulation
from tests.control.simulation import World, manifest, nodes

pytestmark = pytest.mark.virtual_time


class Data(Extension):
    """Takes `seconds` to bring what a job needs; raises each of `errors` once before."""

    name: ClassVar[str] = "data"
    seconds: ClassVar[float] = 300.0
    errors: ClassVar[list[Exception]] = []
    seen: ClassVar[list[str]] = []
    moves: ClassVar[Sequence[Move] | Exception | None] = None

    def __init__(self, server: Server, settings: Any) -> None:
        self._server = server

    async def stage(self, job: LiveJob, show: Any) -> None:
        self.seen.append("begins")
        try:
            await asyncio.sleep(self.seconds / 2)
            if self.errors:
                raise self.errors.pop(0)
            show("copies 2 of 4 GiB", 0.5)
            await asyncio.sleep(self.seconds / 2)
            self.seen.append("done")
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise

    def inputs(self, job: LiveJob, moves: Sequence[Move]) -> Sequence[Move]:
        if isinstance(self.moves, Exception):
            raise self.moves
        return moves if self.moves is None else self.moves


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(simulation, "chosen", lambda **_: [Chosen(Data, NoSection())])
    for name, value in {"seconds": 300.0, "errors": [], "seen": [], "moves": None}.items():
        monkeypatch.setattr(Data, name, value)
    made = World.make(tmp_path, nodes(1, 1), lambda _: Script(run_s=10.0))
    yield made
    await made.kill()


async def submit(plane: ControlPlane, **fields: object) -> str:
    if "team" not in plane.tenants.records:
        await plane.put_tenant("team", actor="test")
    job, _ = await plane.submit(manifest(**fields), tenant="team", actor="test")
    return job.id


async def begun(world: World, plane: ControlPlane) -> None:
    await world.until(lambda: bool(Data.seen))


def launched(world: World, job_id: str) -> list[str]:
    named = (parse_gang_name(name) for name in world.cluster.launch_calls)
    return sorted(one.phase for one in named if one is not None and one.job_id == job_id)


async def test_a_job_starts_when_all_is_there_and_says_meanwhile_what_is_missing(world: World) -> None:
    plane = await world.start()
    job = await submit(plane)
    await asyncio.sleep(200.0)
    assert plane.job(job).state is JobState.STARTING
    assert launched(world, job) == []
    told = await plane.explain(job)
    assert told.summary == "data: copies 2 of 4 GiB, 50%"
    assert [cause.reason.code for cause in told.causes if cause.blocking] == ["staging"]
    assert plane.job(job).reason == {
        "code": "staging", "text": told.summary, "facts": {"extension": "data", "part": 0.5},
    }  # fmt: skip
    await asyncio.sleep(105.0)
    assert plane.job(job).state is JobState.RUNNING
    assert (plane.job(job).reason or {}).get("code") != "staging"
    await world.until(lambda: plane.job(job).state is JobState.SUCCEEDED)
    assert Data.seen == ["begins", "done"]


async def test_a_cancelled_job_ends_at_once(world: World) -> None:
    plane = await world.start()
    job = await submit(plane)
    await begun(world, plane)
    await plane.cancel(job, actor="test", cause="changed my mind")
    await asyncio.sleep(3.0)
    assert plane.job(job).state is JobState.CANCELLED
    assert Data.seen == ["begins", "cancelled"]
    assert launched(world, job) == []


async def test_a_deadline_ends_it_too(world: World) -> None:
    plane = await world.start()
    job = await submit(plane, deadline=60)
    await world.until(lambda: plane.job(job).state.terminal, within_s=100.0)
    assert plane.job(job).state is not JobState.SUCCEEDED
    assert Data.seen == ["begins", "cancelled"]


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("the store of data is away"),
        ZeroDivisionError("a defect of an extension"),
        LaunchFailed("no room on its node", fault=Fault.PLATFORM),
    ],
)
async def test_what_fails_is_tried_again(world: World, error: Exception) -> None:
    Data.errors.append(error)
    plane = await world.start()
    job = await submit(plane)
    await world.until(lambda: plane.job(job).state.terminal)
    found = plane.job(job)
    assert (found.state, found.attempt) == (JobState.SUCCEEDED, 2)
    first = plane.store.attempts(job)[0]
    assert str(error.args[0] if error.args else error) in first.message
    assert Data.seen == ["begins", "begins", "done"]


async def test_a_fault_of_the_user_is_not_tried_for_ever(world: World) -> None:
    Data.errors.extend(LaunchFailed("there is no such data set", fault=Fault.USER) for _ in range(50))
    plane = await world.start()
    job = await submit(plane)
    await world.until(lambda: plane.job(job).state.terminal, within_s=100_000.0)
    assert plane.job(job).state is JobState.FAILED
    assert "there is no such data set" in plane.job(job).message


async def test_a_server_that_comes_back_stages_again_and_runs_the_job_once(world: World) -> None:
    plane = await world.start()
    job = await submit(plane)
    await begun(world, plane)
    plane = await world.restart()
    await world.until(lambda: plane.job(job).state is JobState.RUNNING)
    plane = await world.restart()
    await world.until(lambda: plane.job(job).state is JobState.SUCCEEDED)
    assert Data.seen.count("done") == 1
    assert plane.job(job).attempt == 1


INPUTS = [{"from": "/data/a", "to": "a"}, {"from": "/data/b", "to": "b"}]


@pytest.mark.parametrize(
    ("moves", "phases"),
    [
        (None, ["download", "run"]),
        ([], ["run"]),
        ([Move("/near/b", "b")], ["download", "run"]),
        (ZeroDivisionError("a defect of an extension"), ["download", "run"]),
    ],
)
async def test_inputs_that_an_extension_brings_are_not_copied(world: World, moves: Any, phases: list[str]) -> None:
    Data.moves = moves
    Data.seconds = 1.0
    plane = await world.start()
    job = await submit(plane, inputs=INPUTS)
    await world.until(lambda: plane.job(job).state.terminal or "download" in launched(world, job))
    if "download" in phases:
        text = world.cluster._gangs[f"{job}.1.{DOWNLOAD}"].spec.argv[-1]
        assert ("/near/b" in text, "/data/a" in text) == ((True, False) if isinstance(moves, list) else (False, True))
    await world.until(lambda: plane.job(job).state.terminal)
    assert plane.job(job).state is JobState.SUCCEEDED
