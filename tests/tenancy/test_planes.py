"""Virtual control planes over one pool, in virtual time."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from shoal.contract.lifecycle import ErrorCode, JobState
from shoal.contract.records import JobFilter
from shoal.core import Conflict, Fault, Invalid, NotFound, Quota, Unavailable
from shoal.engine import Gang
from shoal.engine.simulated import Line, Script
from shoal.tenancy.records import PlaneState

from .world import QUARTER, World, play

RUNNING, QUEUED, STARTING = JobState.RUNNING, JobState.QUEUED, JobState.STARTING


def test_two_planes_have_the_same_names_and_see_nothing_of_each_other(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        for name in ("red", "blue"):
            await world.make(name)
            job = await world.submit(name, 2)
            await world.until(name, job, RUNNING)
        for name in ("red", "blue"):
            plane = (await world.awake(name)).plane
            (job_,) = plane.store.jobs(JobFilter())
            assert (job_.name, job_.tenant) == ("job", "default")
            assert [node.node.name for node in plane.nodes()] == ["shared"]
        shared = world.store.jobs(JobFilter(owned=True))
        assert sorted(one.tenant for one in shared) == ["blue", "red"]
        assert world.store.jobs(JobFilter()) == []

    play(tmp_path, scene)


def test_a_job_ends_in_its_plane_as_it_ended_in_the_pool(tmp_path: Path) -> None:
    codes = {"good": Script(run_s=5.0, lines=(Line(0, "hello"),)), "bad": Script(run_s=5.0, code=3),
             "big": Script(run_s=5.0, oom=True), "missing": Script(launch_error="no such command")}  # fmt: skip

    async def scene(world: World) -> None:
        await world.make("red")
        ends = {}
        for name in codes:
            job = await world.submit("red", name=name)
            await world.until("red", job, JobState.SUCCEEDED if name == "good" else JobState.FAILED)
            ends[name] = job
        plane = (await world.awake("red")).plane
        assert {name: plane.job(job).error_code for name, job in ends.items()} == {
            "good": None, "bad": ErrorCode.EXIT, "big": ErrorCode.OUT_OF_MEMORY, "missing": ErrorCode.COMMAND_NOT_FOUND,
        }  # fmt: skip
        assert plane.job(ends["bad"]).message == "the process left with exit code 3"
        assert plane.job(ends["good"]).ran_s == pytest.approx(5.0, abs=0.1)
        assert (await plane.logs(ends["good"])).data == b"hello\n"

    play(tmp_path, scene, lambda gang: codes[gang.env["SHOAL_JOB_NAME"]])


def test_a_secret_reaches_the_job_and_stays_out_of_the_shared_server(tmp_path: Path) -> None:
    given: list[Gang] = []

    def behaviour(gang: Gang) -> Script:
        given.append(gang)
        return Script(run_s=5.0)

    async def scene(world: World) -> None:
        await world.make("red")
        plane = (await world.awake("red")).plane
        await plane.secrets.set("default", "key", "hunter2", actor="admin")
        job = await world.submit("red", secrets={"KEY": "key"}, env={"SIZE": "large"})
        await world.until("red", job, JobState.SUCCEEDED)
        (gang,) = given
        assert gang.secrets == {"KEY": "hunter2"}
        assert gang.argv == ("train",)
        assert gang.env["SIZE"] == "large"
        assert gang.env["SHOAL_JOB_ID"] == job
        (above,) = world.store.jobs(JobFilter(owned=True))
        assert "hunter2" not in above.manifest
        assert "large" not in above.manifest
        assert b"hunter2" not in (tmp_path / "shared.db").read_bytes()

    play(tmp_path, scene, behaviour)


def test_a_tenant_is_told_why_the_shared_side_does_not_start_it(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red", Quota(accelerators=8))
        await world.make("blue")
        first = await world.submit("blue", 4, ranks=2)
        await world.until("blue", first, RUNNING)
        waits = await world.submit("red", 2)
        await world.until("red", waits, STARTING)
        await asyncio.sleep(2.0)
        told = (await (await world.awake("red")).plane.explain(waits)).summary
        assert told.startswith("admitted, and waits in the cluster's queue: waits: needs 2 a100 on one node, 0 free")
        assert "j-" not in told.partition(":")[2]
        assert "blue" not in told
        large = await world.submit("red", 8)
        own = (await (await world.awake("red")).plane.explain(large)).summary
        assert own.startswith("waits: needs 8 a100")

    play(tmp_path, scene)


def test_a_tenant_is_told_what_its_quota_of_the_shared_pool_leaves(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red", Quota(by_type=(("a100", 4),)))
        first = await world.submit("red", 4, max_runtime="2h")
        await world.until("red", first, RUNNING)
        waits = await world.submit("red", 1)
        plane = (await world.awake("red")).plane
        found = await plane.explain(waits)
        due = datetime.fromtimestamp(world.clock.now() + 7200)
        assert found.causes[-1].reason.text in {
            f"quota of the shared pool: 4 of 4 a100; next free about {due + timedelta(minutes=off):%H:%M}"
            for off in (-1, 0)
        }
        assert found.summary.endswith(found.causes[-1].reason.text)

    play(tmp_path, scene)


def test_a_planes_pool_is_what_its_tenant_may_use(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red", Quota(by_type=(("a100", 3),), cpu_milli=8000))
        plane = (await world.awake("red")).plane
        (pool,) = plane.nodes()
        assert pool.node.capacity().accelerators == {"a100": 3}
        assert pool.node.cpu_milli == 8000
        await world.plane.put_tenant("red", quota=Quota(), actor="admin")
        await asyncio.sleep(1.0)
        assert plane.nodes()[0].node.capacity().accelerators == {"a100": 8}
        world.cluster.lose_node("n0")
        await asyncio.sleep(1.0)
        assert plane.nodes()[0].node.capacity().accelerators == {"a100": 4}

    play(tmp_path, scene)


def test_machines_have_other_names_and_the_same_one_the_same(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        job = await world.submit("red", 2, ranks=3)
        await world.until("red", job, RUNNING)
        (attempt,) = (await world.awake("red")).plane.store.attempts(job)
        names = [rank["node"] for rank in attempt.ranks]
        assert names[0] == names[1] != names[2]
        assert not {"n0", "n1"} & set(names)

    play(tmp_path, scene)


def test_what_went_wrong_in_the_pool_is_told_without_names_of_machines_and_folders(tmp_path: Path) -> None:
    full = f"cannot write {tmp_path}/gangs/x on n0: no space left"
    scripts = {"full": Script(launch_error=full, launch_fault=Fault.INFRASTRUCTURE)}

    async def scene(world: World) -> None:
        await world.make("red")
        once = {"limits": {"user": 0, "platform": 0, "infrastructure": 0}}
        lost = await world.submit("red", 2, ranks=2, name="lost", restart=once)
        await world.until("red", lost, RUNNING)
        world.cluster.lose_node("n0")
        await world.until("red", lost, JobState.FAILED)
        world.cluster.restore_node("n0")
        ended = await world.submit("red", 4, name="ended", restart=once)
        await world.until("red", ended, RUNNING)
        plane = (await world.awake("red")).plane
        (live,) = world.planes.handed_over(world.planes.find("red"))
        (placed,) = live.attempt.placement
        await world.plane.cancel(live.job.id, actor="admin", cause=f"{placed.node} is broken, see {tmp_path}/notes")
        await world.until("red", ended, JobState.FAILED)
        refused = await world.submit("red", name="full", restart=once)
        await world.until("red", refused, JobState.FAILED, within_s=4 * 3600)  # the pool tries a hundred times
        assert "no space left" in plane.job(refused).message
        assert plane.job(lost).error_code is ErrorCode.NODE_LOST
        told = [plane.job(job).message for job in (lost, ended, refused)]
        told += [f"{event.cause} {event.data}" for event in plane.store.events(0, limit=1000)]
        told += [
            f"{attempt.message} {attempt.ranks}"
            for job in (lost, ended, refused)
            for attempt in plane.store.attempts(job)
        ]
        assert any("node-" in text and "lost" in text for text in told)
        for text in told:
            assert not re.search(r"\bn[01]\b", text), text
            assert str(tmp_path) not in text, text

    play(tmp_path, scene, lambda gang: scripts.get(gang.env["SHOAL_JOB_NAME"], QUARTER))


@pytest.mark.parametrize("when", ["queued", "running"])
def test_cancelling_in_the_plane_ends_it_in_the_pool(tmp_path: Path, when: str) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        await world.make("blue")
        if when == "queued":
            await world.submit("blue", 4, ranks=2)
        job = await world.submit("red", 4)
        await world.until("red", job, STARTING if when == "queued" else RUNNING)
        await (await world.awake("red")).plane.cancel(job, actor="tenant:default")
        await world.until("red", job, JobState.CANCELLED)
        await asyncio.sleep(5.0)
        assert len(world.cluster.alive()) == (1 if when == "queued" else 0)

    play(tmp_path, scene)


def test_what_the_pool_takes_back_starts_anew_by_the_planes_word(tmp_path: Path) -> None:
    """Guaranteed work of another plane needs the places. The job is never run twice at once."""

    async def scene(world: World) -> None:
        await world.make("red")
        await world.make("blue")
        job = await world.submit("red", 4, ranks=2)
        await world.until("red", job, RUNNING)
        urgent = await world.submit("blue", 4, priority_class="guaranteed")
        await world.until("blue", urgent, RUNNING)
        await world.until("red", job, JobState.SUCCEEDED, within_s=4 * 3600)
        attempts = (await world.awake("red")).plane.store.attempts(job)
        assert len(attempts) == 2
        assert "the shared pool needed its place" in attempts[0].message
        assert world.cluster.overlaps() == ()

    play(tmp_path, scene)


def test_a_killed_server_loses_and_doubles_nothing_of_any_plane(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        jobs = []
        for name in ("red", "blue"):
            await world.make(name)
            jobs += [(name, await world.submit(name, 2)) for _ in range(4)]
        await asyncio.sleep(5.0)
        for _ in range(3):
            await world.restart()
            await asyncio.sleep(7.0)
        for name, job in jobs:
            await world.until(name, job, JobState.SUCCEEDED, within_s=5 * 3600)
            assert len((await world.awake(name)).plane.store.attempts(job)) == 1
        assert set(world.cluster.starts.values()) == {1}
        assert len(world.cluster.starts) == len(jobs)

    play(tmp_path, scene)


def test_a_job_that_ends_while_the_plane_is_away_is_known_when_it_is_back(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        job = await world.submit("red")
        await world.until("red", job, RUNNING)
        await world.planes.suspend("red", actor="admin")
        with pytest.raises(Unavailable, match="suspended"):
            await world.awake("red")
        await asyncio.sleep(3600)
        await world.planes.resume("red", actor="admin")
        await world.until("red", job, JobState.SUCCEEDED, within_s=60)
        assert (await world.awake("red")).plane.job(job).ran_s == pytest.approx(900.0, abs=1.0)

    play(tmp_path, lambda world: scene(world))


def test_nothing_new_of_a_suspended_plane_starts(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        await world.make("blue")
        await world.submit("blue", 4, ranks=2)
        queued = await world.submit("red", 4)
        await world.until("red", queued, STARTING)
        await world.planes.suspend("red", actor="admin")
        await asyncio.sleep(1800)
        assert world.cluster.alive() == ()
        await world.planes.resume("red", actor="admin")
        await world.until("red", queued, RUNNING, within_s=120)

    play(tmp_path, scene)


def test_an_idle_plane_sleeps_and_wakes_at_a_request(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        job = await world.submit("red")
        await world.until("red", job, JobState.SUCCEEDED, within_s=2 * 3600)
        await asyncio.sleep(50.0)
        assert world.planes.is_awake("red")
        await asyncio.sleep(60.0)
        assert not world.planes.is_awake("red")
        assert not world.planes.find("red").busy
        await world.restart()
        assert not world.planes.is_awake("red")
        assert await world.state("red", job) is JobState.SUCCEEDED
        assert world.planes.is_awake("red")

    play(tmp_path, scene, sleep_after_s=100.0)


def test_a_plane_with_work_never_sleeps(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        await world.submit("red")
        await asyncio.sleep(600.0)
        assert world.planes.is_awake("red")

    play(tmp_path, scene, sleep_after_s=10.0)


def test_a_plane_with_work_is_deleted_only_if_that_is_said(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        job = await world.submit("red")
        await world.until("red", job, RUNNING)
        with pytest.raises(Conflict, match=r"1 jobs in the shared pool that are not over: job \(RUNNING\)"):
            await world.planes.delete("red", actor="admin")
        assert await world.state("red", job) is RUNNING
        await world.planes.delete("red", actor="admin", force=True)
        await asyncio.sleep(30.0)
        assert world.cluster.alive() == ()
        assert [path.name for path in (tmp_path / "planes").iterdir()] == [".by-id"]
        with pytest.raises(NotFound):
            world.planes.find("red")
        await world.make("red")
        assert (await world.awake("red")).plane.store.jobs(JobFilter()) == []

    play(tmp_path, scene)


def test_a_plane_is_made_once_and_for_a_tenant_that_there_is(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.make("red")
        with pytest.raises(Conflict, match="there is a plane 'red'"):
            await world.planes.create("red", "red", actor="admin")
        with pytest.raises(Invalid, match="there is no tenant 'nobody'"):
            await world.planes.create("blue", "nobody", actor="admin")
        assert [(plane.name, plane.state) for plane in world.planes.all()] == [("red", PlaneState.ACTIVE)]

    play(tmp_path, scene)
