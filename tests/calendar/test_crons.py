"""Cron jobs end to end in virtual time: exactly one job for each time, whatever is killed when."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from shoal.calendar import Missed, Overlap
from shoal.contract.lifecycle import JobState
from shoal.contract.records import BundleRecord
from shoal.core import Conflict, Invalid, NotFound, Overloaded, PriorityClass, Quota
from shoal.engine.simulated import Script
from tests.control.simulation import Crash

from .kit import START, Planned, play

FIRST = START + 400  # 22:20:00
HOUR = 3600.0


async def pass_time(world: Planned, seconds: float) -> None:
    """A server that died meanwhile is started again."""
    until = world.clock.now() + seconds
    while world.clock.now() < until:
        await asyncio.sleep(5.0)
        if world.dead.is_set():
            await world.restart()


def due_times(world: Planned) -> list[float]:
    assert world.store is not None
    events = world.store.events(limit=100_000)
    return [float(one.data["due_at"]) for one in events if one.kind == "cron.fired"]


def test_each_time_gets_one_job_of_its_tenant(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        record = await world.cron(labels={"team": "speech"})
        await pass_time(world, HOUR)
        jobs = world.jobs()
        assert due_times(world) == [FIRST + 600 * n for n in range(6)]
        assert [job.state for job in jobs] == [JobState.SUCCEEDED] * 6
        assert {job.tenant for job in jobs} == {"ada"}
        assert [job.submitted_at - FIRST - 600 * n for n, job in enumerate(jobs)] == pytest.approx([0] * 6, abs=1.0)
        assert all('"cron":"nightly"' in job.manifest and '"team":"speech"' in job.manifest for job in jobs)
        shown = world.crons.find("nightly", "ada")
        assert (shown.last_job, world.crons.next_at(shown)) == (jobs[-1].id, FIRST + HOUR)
        assert [one.job for one in world.crons.history(record)] == [None, *(job.id for job in jobs)]

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("point", "overlap"),
    [("before-cron", Overlap.SKIP), ("after-cron", Overlap.QUEUE), ("after-cron", Overlap.REPLACE)],
)
def test_a_server_that_dies_around_the_submission_neither_loses_nor_doubles_a_job(
    tmp_path: Path, point: str, overlap: Overlap
) -> None:
    async def scene(world: Planned) -> None:
        await world.cron(overlap=overlap)
        seen = 0

        def fault(at: str) -> None:
            nonlocal seen
            if at == point:
                seen += 1
                if seen % 2:
                    raise Crash(at)

        world.fault = fault
        await pass_time(world, HOUR)
        assert world.crashes >= 3
        assert due_times(world) == [FIRST + 600 * n for n in range(6)]
        assert len(world.jobs()) == 6

    play(tmp_path, scene)


def test_an_array_is_submitted_whole(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        await world.cron(array="0-2", overlap=Overlap.QUEUE)
        await pass_time(world, 1300)
        jobs = world.jobs()
        assert len(jobs) == 6
        assert len({job.array_id for job in jobs}) == 2
        assert world.crons.find("nightly", "ada").last_job == jobs[-1].array_id

    play(tmp_path, scene, lambda _: Script(run_s=900.0))


def test_a_time_is_left_out_while_the_job_before_runs(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        await world.cron()
        await pass_time(world, HOUR)
        assert len(world.jobs()) == 2
        assert world.told().count("cron.skipped") == 4

    play(tmp_path, scene, lambda _: Script(run_s=1900.0))


def test_a_job_waits_for_the_one_before(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        await world.cron(overlap=Overlap.QUEUE)
        await pass_time(world, HOUR)
        jobs = world.jobs()
        assert len(jobs) == 6
        assert sum(job.state is JobState.RUNNING for job in jobs) == 1
        await pass_time(world, HOUR)
        spans = [(job.started_at or 0.0, job.ended_at or 0.0) for job in world.jobs() if job.ended_at]
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))

    play(tmp_path, scene, lambda _: Script(run_s=900.0))


def test_a_job_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        await world.cron(overlap=Overlap.REPLACE)
        await pass_time(world, HOUR)
        jobs = world.jobs()
        assert [job.state for job in jobs] == [JobState.CANCELLED] * 5 + [JobState.RUNNING]
        assert "replaced by the next job of cron nightly" in jobs[0].message

    play(tmp_path, scene, lambda _: Script(run_s=9000.0))


@pytest.mark.parametrize(("missed", "jobs"), [(Missed.RUN_ONCE, 1), (Missed.SKIP, 0)])
def test_what_passed_while_no_server_ran(tmp_path: Path, missed: Missed, jobs: int) -> None:
    async def scene(world: Planned) -> None:
        await world.cron(at="20 * * * *", missed=missed)
        await world.kill()
        await asyncio.sleep(5 * HOUR)
        await world.start()
        await pass_time(world, 60)
        assert len(world.jobs()) == jobs
        shown = world.crons.find("nightly", "ada")
        assert world.told()[1:] == ["cron.fired" if jobs else "cron.missed"]
        assert ("4 times" if jobs else "5 times") in world.crons.history(shown)[-1].text
        await pass_time(world, HOUR)
        assert len(world.jobs()) == jobs + 1

    play(tmp_path, scene)


def test_the_rights_are_those_that_its_tenant_has_when_it_is_due(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        await world.cron(priority_class="guaranteed")
        assert world.plane is not None
        await world.plane.put_tenant("ada", actor="admin", max_priority_class=PriorityClass.BEST_EFFORT)
        await pass_time(world, 500)
        assert world.jobs() == []
        shown = world.crons.find("nightly", "ada")
        assert "may not have guaranteed jobs" in world.crons.trouble(shown)
        await world.plane.put_tenant("ada", actor="admin", max_priority_class=PriorityClass.GUARANTEED)
        await pass_time(world, 600)
        assert len(world.jobs()) == 1
        assert world.crons.trouble(world.crons.find("nightly", "ada")) == ""

    play(tmp_path, scene)


def test_a_full_queue_delays_a_job_and_does_not_lose_it(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        await world.cron(at="0 23 * * *")
        assert world.plane is not None
        await world.plane.put_tenant("ada", actor="admin", quota=Quota(queued_jobs=0))
        await pass_time(world, HOUR)
        assert world.jobs() == []
        assert "jobs queued already" in world.crons.trouble(world.crons.find("nightly", "ada"))
        await world.plane.put_tenant("ada", actor="admin", quota=Quota())
        await pass_time(world, 60)
        assert len(world.jobs()) == 1

    play(tmp_path, scene)


def test_suspend_resume_run_now_and_remove(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        record = await world.crons.set_suspended(await world.cron(), True, actor="tenant:ada")
        await pass_time(world, HOUR)
        assert world.jobs() == []
        assert world.crons.next_at(record) is None
        first, created = await world.crons.run_now(record, "key", actor="tenant:ada")
        again, more = await world.crons.run_now(world.crons.find("nightly", "ada"), "key", actor="tenant:ada")
        assert (first, created, more) == (again, True, False)
        await world.restart()
        await world.crons.set_suspended(world.crons.find("nightly", "ada"), False, actor="tenant:ada")
        await pass_time(world, 1200)
        assert len(world.jobs()) == 3
        await world.crons.remove(world.crons.find("nightly", "ada"), actor="tenant:ada")
        with pytest.raises(NotFound, match="no cron job 'nightly'"):
            world.crons.find("nightly", "ada")
        await world.restart()
        await pass_time(world, 1200)
        assert len(world.jobs()) == 3

    play(tmp_path, scene)


def test_the_same_again_changes_nothing_and_another_needs_replace(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        first = await world.cron()
        assert await world.cron() == first
        with pytest.raises(Conflict, match="there is a cron job nightly already"):
            await world.cron(at="0 * * * *")
        changed = await world.cron(at="0 * * * *", again=True)
        assert changed.id == first.id
        await pass_time(world, HOUR)
        assert len(world.jobs()) == 1
        with pytest.raises(NotFound):
            world.crons.find("nightly", "bob")

    play(tmp_path, scene)


def test_what_is_wrong_is_refused_when_it_is_made(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        with pytest.raises(Invalid, match="is no cron expression"):
            await world.cron(at="61 * * * *")
        with pytest.raises(Invalid, match="no extension 'nothing'"):
            await world.cron(extensions={"nothing": {}})
        for n in range(100):
            await world.cron(f"c{n}")
        with pytest.raises(Overloaded, match="100 cron jobs already"):
            await world.cron("one-more")

    play(tmp_path, scene)


def test_a_key_that_its_tenant_has_used_by_itself_makes_no_job_and_no_loop(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        record = await world.cron()
        assert world.plane is not None
        other = record.job.model_copy(update={"name": "other"})
        await world.plane.submit(other, tenant="ada", actor="tenant:ada", idempotency_key=f"{record.id}@{FIRST:.0f}")
        await pass_time(world, 1100)
        assert [job.name for job in world.jobs()] == ["other", "nightly"]
        assert world.told() == ["cron.created", "cron.refused", "cron.fired"]

    play(tmp_path, scene)


def test_a_manifest_that_waits_for_too_many_is_told_and_its_next_time_is_tried(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        other = await world.cron("other", at="0 0 1 1 *")
        first, _ = await world.crons.run_now(other, "first", actor="admin")
        waits = [{"job": first, "when": "end"}] * 256
        await world.cron(overlap=Overlap.QUEUE, after=waits)
        await pass_time(world, 1100)
        assert world.told().count("cron.fired") == 2
        assert "it cannot wait for the one before" in world.crons.trouble(world.crons.find("nightly", "ada"))

    play(tmp_path, scene, lambda _: Script(run_s=9000.0))


def test_the_working_files_of_a_cron_job_are_kept(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        assert world.plane is not None
        assert world.store is not None
        digest = "sha256:" + "0" * 64
        await world.store.put_bundle(BundleRecord("ada", digest, 1, 1, START, START))
        await world.cron(bundle=digest)
        assert list(world.plane.extensions.bundles()) == [("ada", digest)]

    play(tmp_path, scene)
