"""The whole server is killed at every step of a job that a plane hands over. In virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import JobFilter
from shoal.engine.simulated import Script

from .world import World, play

RUNNING, SUCCEEDED, FAILED = JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED
KEY = "once"
JOB = JobManifest.model_validate(
    {"name": "job", "command": ["train"], "resources": {"accelerators": "a100:1"}, "max_runtime": "2h"}
)


class Killed(BaseException):
    """The server dies here."""


class Killer:
    """Kills at the step of this number, of those of the shared server and its planes together; after it nothing of the
    server is written any more."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.place = ""
        self.active = False
        self.dead = asyncio.Event()

    def __call__(self, place: str) -> None:
        if not self.active:
            return
        self.left -= 1
        if self.left <= 0:
            self.place = self.place or place
            self.dead.set()
            raise Killed(place)


async def submit(world: World) -> str:
    """As a client would: again with the same key until it is acknowledged."""
    plane = (await world.awake("red")).plane
    job, _ = await plane.submit(JOB, tenant="default", actor="tenant:default", idempotency_key=KEY)
    return job.id


def run(folder: Path, at: int, length_s: float) -> str:
    """A job of which the server is killed at that step; returns where that was, nothing where it was over before."""
    killer = Killer(at)

    async def scene(world: World) -> None:
        await world.make("red")
        killer.active = True
        acknowledged = None
        with contextlib.suppress(Killed):
            acknowledged = await submit(world)
        while not killer.dead.is_set() and not (acknowledged and await world.state("red", acknowledged) is SUCCEEDED):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        killed = killer.dead.is_set()
        await world.kill()
        killer.active = False
        await world.start()
        job = await submit(world)
        assert acknowledged in (None, job)
        await world.until("red", job, SUCCEEDED, within_s=3 * 3600)
        await asyncio.sleep(60.0)
        assert list(world.cluster.starts.values()) == [1], killer.place
        assert world.cluster.alive() == ()
        plane = (await world.awake("red")).plane
        assert [one.id for one in plane.store.jobs(JobFilter())] == [job]
        assert len(plane.store.attempts(job)) == 1
        (above,) = world.store.jobs(JobFilter(owned=True))
        assert above.state is SUCCEEDED
        (attempt,) = world.store.attempts(above.id)
        assert attempt.running_at is not None
        assert not killed or killer.place

    play(folder, scene, lambda _: Script(run_s=length_s), machines=1, fault=killer)
    return killer.place


@pytest.mark.parametrize("length_s", [pytest.param(0.0, marks=pytest.mark.slow), 100.0])
def test_a_job_is_neither_lost_nor_doubled_by_a_kill_at_any_step(tmp_path: Path, length_s: float) -> None:
    places: list[str] = []
    while not places or places[-1]:
        folder = tmp_path / str(len(places))
        folder.mkdir()
        places.append(run(folder, len(places) + 1, length_s))
    assert {"before-commit", "after-commit", "before-launch", "after-launch", "before-conclude"} <= set(places)
    assert len(places) > 10


@pytest.mark.parametrize("again", [0, 3])
def test_what_began_and_left_no_trace_is_tried_anew_by_the_planes_word_alone(tmp_path: Path, again: int) -> None:
    """That it began is not written above before its end."""

    async def scene(world: World) -> None:
        await world.make("red")
        job = await world.submit("red", restart={"limits": {"infrastructure": again}})
        await world.until("red", job, RUNNING)
        (above,) = world.store.jobs(JobFilter(owned=True))
        assert above.state is JobState.STARTING
        await world.kill()
        (gang,) = world.cluster.alive()
        world.cluster.lose_gang(gang)
        await world.start()
        await world.until("red", job, SUCCEEDED if again else FAILED, within_s=3 * 3600)
        attempts = (await world.awake("red")).plane.store.attempts(job)
        assert len(attempts) == (2 if again else 1)
        assert "no trace" in attempts[0].message or "does not know it" in attempts[0].message
        assert len(world.cluster.starts) == len(attempts)
        assert world.cluster.overlaps() == ()

    play(tmp_path, scene)


def test_what_runs_of_a_suspended_plane_goes_on_through_a_kill(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        job = await world.submit("red")
        await world.until("red", job, RUNNING)
        running = world.cluster.alive()
        await world.planes.suspend("red", actor="admin")
        await world.restart()
        await asyncio.sleep(60.0)
        assert world.cluster.alive() == running
        await asyncio.sleep(900.0)
        await world.planes.resume("red", actor="admin")
        await world.until("red", job, SUCCEEDED, within_s=60)
        assert list(world.cluster.starts.values()) == [1]

    play(tmp_path, scene)


def test_what_was_put_off_is_written_with_what_comes_next(tmp_path: Path) -> None:
    """Here its end is asked for."""

    async def scene(world: World) -> None:
        await world.make("red")
        job = await world.submit("red")
        await world.until("red", job, RUNNING)
        (live,) = world.planes.handed_over(world.planes.find("red"))
        assert live.job.state is RUNNING
        assert world.store.jobs(JobFilter(owned=True))[0].state is JobState.STARTING
        await (await world.awake("red")).plane.cancel(job, actor="tenant:default")
        await world.until("red", job, JobState.CANCELLED, within_s=60)
        told = [event.new_state for event in world.store.events(0, limit=1000) if event.job_id == live.job.id]
        assert [state for state in told if state] == [
            "QUEUED", "ADMITTED", "PLACED", "STARTING", "RUNNING", "CANCELLED",
        ]  # fmt: skip

    play(tmp_path, scene)


def test_what_was_handed_over_and_not_written_in_the_plane_is_taken_up(tmp_path: Path) -> None:
    """A plane writes a start with what comes next: here it is killed before, once with its machines at work."""

    async def scene(world: World) -> None:
        await world.make("red")
        long = await world.submit("red")
        await world.until("red", long, RUNNING)
        jobs = [await world.submit("red", count) for count in (1, 2)]
        store = (await world.awake("red")).plane.store
        assert [one.state for job in jobs if (one := store.job(job))] == [JobState.QUEUED] * 2
        above = {job.idempotency_key: job for job in world.store.jobs(JobFilter(owned=True))}
        assert len(above) == 3
        await world.restart()
        plane = (await world.awake("red")).plane
        for job in jobs:
            (attempt,) = plane.store.attempts(job)
            (key,) = [key for key in above if key is not None and job in key]
            assert attempt.created_at == above[key].submitted_at
            await world.until("red", job, SUCCEEDED)
        taken = [device for job in (long, *jobs) for device in plane.store.attempts(job)[0].placement[0].devices]
        assert len(set(taken)) == len(taken) == 4
        assert set(world.cluster.starts.values()) == {1}
        assert len(world.store.jobs(JobFilter(owned=True))) == 3

    play(tmp_path, scene)


def test_a_start_without_news_is_written_after_half_a_minute(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        job = await world.submit("red")
        plane = (await world.awake("red")).plane

        def written() -> JobState:
            return plane.store.jobs_by_id([job])[job].state

        assert (await world.state("red", job), written()) == (JobState.STARTING, JobState.QUEUED)
        await asyncio.sleep(25.0)
        assert written() is JobState.QUEUED
        await asyncio.sleep(10.0)
        assert (await world.state("red", job), written()) == (JobState.STARTING, JobState.STARTING)
        assert [one.number for one in plane.store.attempts(job)] == [1]
        await world.until("red", job, SUCCEEDED)

    play(tmp_path, scene, lambda _: Script(launch_s=50.0, run_s=900.0))


def test_what_began_and_ended_above_while_its_plane_was_away_has_its_own_times(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        job = await world.submit("red")
        await world.planes.suspend("red", actor="admin")
        await asyncio.sleep(1000.0)
        (above,) = world.store.jobs(JobFilter(owned=True))
        assert above.state is SUCCEEDED
        await world.planes.resume("red", actor="admin")
        await world.until("red", job, SUCCEEDED, within_s=60)
        found = (await world.awake("red")).plane.job(job)
        assert (found.message, found.started_at, found.ended_at) == ("done", above.started_at, above.ended_at)
        assert found.ran_s == pytest.approx(900.0, abs=1.0)
        assert list(world.cluster.starts.values()) == [1]

    play(tmp_path, scene)
