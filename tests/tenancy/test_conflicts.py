"""The two sides disagree: each case has its end. In virtual time."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shoal.contract.lifecycle import JobState
from shoal.contract.records import JobFilter, NewEvent
from shoal.engine.simulated import Script
from shoal.store import copy_database, database_files
from shoal.tenancy.live.shared_engine import SharedEngine

from .world import World, play

RUNNING, SUCCEEDED, FAILED = JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED


def put_back(copy: Path, database: Path) -> None:
    """As if an old backup were restored by hand: the database, without its log and position."""
    for part in database_files(database):
        part.unlink()
    copy.replace(database)


@pytest.mark.parametrize("when", ["queued", "running"])
def test_what_is_cancelled_in_the_shared_server_fails_in_the_plane_and_is_not_tried_again(
    tmp_path: Path, when: str
) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        await world.make("blue")
        if when == "queued":
            await world.submit("blue", 4, ranks=2)
        job = await world.submit("red", 4, restart={"limits": {"platform": 5, "infrastructure": 5}})
        await world.until("red", job, JobState.STARTING if when == "queued" else RUNNING)
        (above,) = [live.job for live in world.planes.handed_over(world.planes.find("red"))]
        await world.plane.cancel(above.id, actor="admin", cause="the machines are needed")
        await world.until("red", job, FAILED)
        await asyncio.sleep(600.0)
        plane = (await world.awake("red")).plane
        assert plane.job(job).message == (
            "the process was killed: cancelled in the shared server: the machines are needed"
        )
        assert len(plane.store.attempts(job)) == 1
        assert len([one for one in world.store.jobs(JobFilter(owned=True)) if one.tenant == "red"]) == 1

    play(tmp_path, scene)


def test_a_plane_restored_from_an_old_backup_runs_nothing_twice_and_leaves_nothing_behind(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"

    async def scene(world: World) -> None:
        await world.make("red")
        database = world.planes.home(world.planes.find("red")) / "shoal.db"
        short = await world.submit("red", name="short")
        await world.until("red", short, RUNNING)
        copy_database(database, copy)
        await world.until("red", short, SUCCEEDED)
        forgotten = await world.submit("red", name="long")
        await world.until("red", forgotten, RUNNING)
        await world.kill()
        put_back(copy, database)
        with closing(sqlite3.connect(database)) as connection:
            assert connection.execute("SELECT id, state FROM job").fetchall() == [(short, "RUNNING")]
        await world.start()
        await world.until("red", short, SUCCEEDED, within_s=60)
        plane = (await world.awake("red")).plane
        assert plane.store.job(forgotten) is None
        await asyncio.sleep(60.0)
        assert world.cluster.alive() == ()
        assert sorted(job.state for job in world.store.jobs(JobFilter(owned=True))) == ["CANCELLED", "SUCCEEDED"]
        assert set(world.cluster.starts.values()) == {1}

    lengths = {"short": Script(run_s=100.0), "long": Script(run_s=9000.0)}
    play(tmp_path, scene, lambda gang: lengths[gang.env["SHOAL_JOB_NAME"]])


def test_what_a_plane_decides_again_after_an_old_backup_is_not_run_again(tmp_path: Path) -> None:
    """The backup is older than the job's place, so that the plane starts it as one that was never handed over."""

    async def scene(world: World) -> None:
        await world.make("red")
        world.cluster.lose_node("n0")
        world.cluster.lose_node("n1")
        await asyncio.sleep(1.0)
        done, running = await world.submit("red", name="short"), await world.submit("red", name="long")
        kept = await world.planes.backup("red")
        for name in ("n0", "n1"):
            world.cluster.restore_node(name)
        await world.until("red", done, SUCCEEDED)
        await world.until("red", running, RUNNING)
        await world.planes.restore("red", kept, actor="admin")
        assert await world.state("red", done) is not SUCCEEDED
        await world.until("red", done, SUCCEEDED, within_s=60)
        await world.until("red", running, RUNNING, within_s=60)
        await world.until("red", running, SUCCEEDED, within_s=9000)
        assert set(world.cluster.starts.values()) == {1}
        assert len(world.store.jobs(JobFilter(owned=True))) == 2

    lengths = {"short": Script(run_s=100.0), "long": Script(run_s=5000.0)}
    play(tmp_path, scene, lambda gang: lengths[gang.env["SHOAL_JOB_NAME"]])


def test_a_server_that_is_killed_before_a_gang_is_written_down_above_is_given_it_again(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        await world.make("blue")
        await world.until("blue", await world.submit("blue", 4, ranks=2), RUNNING)
        job = await world.submit("red", 4)
        while not (handed := world.planes.handed_over(world.planes.find("red"))):
            await asyncio.sleep(0.001)
        assert world.store.job(handed[0].job.id) is None
        await world.restart()
        await world.until("red", job, SUCCEEDED, within_s=3 * 3600)
        assert set(world.cluster.starts.values()) == {1}
        assert len((await world.awake("red")).plane.store.attempts(job)) == 1

    play(tmp_path, scene)


def test_a_job_that_starts_at_once_is_written_twice_above(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        job = await world.submit("red")
        await world.until("red", job, SUCCEEDED)
        (above,) = world.store.jobs(JobFilter(owned=True))
        told = [event for event in world.store.events(0, limit=1000) if event.job_id == above.id]
        assert [event.new_state for event in told] == [
            "QUEUED", "ADMITTED", "PLACED", "STARTING", "RUNNING", "SUCCEEDED",
        ]  # fmt: skip
        assert above.owner_id == told[0].owner_id == told[-1].owner_id
        assert above.submitted_at == told[0].at

    play(tmp_path, scene, lambda _: Script(run_s=0.0))


def test_a_shared_server_restored_from_an_old_backup_is_given_the_work_again(tmp_path: Path) -> None:
    database, copy = tmp_path / "shared.db", tmp_path / "copy.db"

    async def scene(world: World) -> None:
        await world.make("red")
        copy_database(database, copy)
        job = await world.submit("red", restart={"limits": {"infrastructure": 3}})
        await world.until("red", job, RUNNING)
        await world.kill()
        put_back(copy, database)
        await world.start()
        await world.until("red", job, SUCCEEDED, within_s=2 * 3600)
        attempts = (await world.awake("red")).plane.store.attempts(job)
        assert [attempt.message for attempt in attempts][1:] == ["done"]
        assert world.cluster.alive() == ()
        (above,) = world.store.jobs(JobFilter(owned=True))
        assert above.state is SUCCEEDED

    play(tmp_path, scene)


def test_news_that_never_came_are_found_by_comparing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        monkeypatch.setattr(SharedEngine, "moved", lambda *_: None)
        done = await world.submit("red")
        await world.until("red", done, RUNNING, within_s=30)
        await world.until("red", done, SUCCEEDED, within_s=1000)

    play(tmp_path, scene)


def test_a_job_that_the_shared_server_has_lost_meanwhile_is_tried_again(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        job = await world.submit("red", restart={"limits": {"infrastructure": 3}})
        await world.until("red", job, RUNNING)
        (above,) = world.store.jobs(JobFilter(owned=True))
        await world.planes.suspend("red", actor="admin")
        await asyncio.sleep(1800)
        told = NewEvent(world.clock.now(), "test", "retention", "it was old")
        assert await world.store.remove_jobs([above.id], told)
        await world.planes.resume("red", actor="admin")
        await world.until("red", job, SUCCEEDED, within_s=3 * 3600)
        attempts = (await world.awake("red")).plane.store.attempts(job)
        assert len(attempts) == 2
        assert "no trace" in attempts[0].message

    play(tmp_path, scene)
