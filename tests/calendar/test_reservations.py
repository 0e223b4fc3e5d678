"""Reservations and maintenance end to end in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shoal.calendar.keeping import Amount
from shoal.calendar.live.enforcement import capacities
from shoal.calendar.live.extension import CalendarSection
from shoal.calendar.windows import Plan, Repeat
from shoal.contract.lifecycle import JobState
from shoal.core import Conflict, Invalid, NotFound
from shoal.engine import Gang
from shoal.engine.simulated import Script
from tests.control.simulation import manifest, nodes

from .kit import START, Planned, play

HOUR = 3600.0


def has(world: Planned) -> dict[str, Amount]:
    assert world.plane is not None
    return capacities(world.plane.snapshot())


async def plan(world: Planned, name: str = "course", begin: float = HOUR, end: float = 2 * HOUR, **more: Any) -> Plan:
    """Times behind the start of the test."""
    given = {"tenant": "ada", "accelerators": 2, **more}
    made = Plan(f"w-{name}", name, begin=START + begin, end=START + end, **given)
    found, _ = await world.calendar.plans.add(made, has(world), actor="admin")
    return found


async def submit(world: Planned, tenant: str, devices: int, hours: float | None, name: str = "job", **more: Any) -> str:
    assert world.plane is not None
    await asyncio.sleep(0.01)  # who came first goes first
    limit = {} if hours is None else {"max_runtime": hours * HOUR}
    asked = manifest(name, resources={"accelerators": devices}, **limit, **more)
    record, _ = await world.plane.submit(asked, tenant=tenant, actor=f"tenant:{tenant}")
    return record.id


def state(world: Planned, job: str) -> JobState:
    assert world.plane is not None
    return world.plane.job(job).state


async def why(world: Planned, job: str) -> tuple[str, float | None]:
    assert world.plane is not None
    found = await world.plane.explain(job)
    return found.summary, found.estimated_start


def long(_: Gang) -> Script:
    return Script(run_s=10 * HOUR, checkpoint_s=1.0)


def test_a_job_that_would_still_run_waits_and_says_until_when(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        await plan(world)
        short, small, wide = [
            await submit(world, "bob", devices, hours, name)
            for devices, hours, name in ((1, 0.5, "short"), (2, 3, "small"), (1, 3, "wide"))
        ]
        await asyncio.sleep(5)
        assert [state(world, job) for job in (short, small, wide)] == [
            JobState.RUNNING, JobState.RUNNING, JobState.QUEUED,
        ]  # fmt: skip
        summary, starts = await why(world, wide)
        span = "from 2023-11-14 23:13 UTC to 2023-11-15 00:13 UTC"
        assert summary == f"node n0 is reserved {span}, and it may run for 3.0 h"
        assert starts == START + 2 * HOUR
        own = await submit(world, "ada", 1, None, "own")
        await asyncio.sleep(5)
        assert state(world, own) is JobState.RUNNING
        await asyncio.sleep(2 * HOUR)
        assert state(world, wide) is JobState.RUNNING

    play(tmp_path, scene, long)


def test_the_tenant_of_a_reservation_finds_its_devices_free(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        await plan(world)
        fillers = [await submit(world, "bob", 1, None, f"filler-{n}") for n in range(4)]
        await asyncio.sleep(HOUR - 125)
        assert [state(world, job) for job in fillers] == [JobState.RUNNING] * 4
        await asyncio.sleep(60)  # within the notice
        assert sorted(state(world, job) for job in fillers) == [JobState.QUEUED] * 2 + [JobState.RUNNING] * 2
        await asyncio.sleep(70)
        course = await submit(world, "ada", 2, 0.5, "course")
        await asyncio.sleep(5)
        assert state(world, course) is JobState.RUNNING
        waiting = next(job for job in fillers if state(world, job) is JobState.QUEUED)
        assert "and it has no time limit" in (await why(world, waiting))[0]
        await asyncio.sleep(HOUR)
        assert [state(world, job) for job in fillers] == [JobState.RUNNING] * 4

    play(tmp_path, scene, long)


def test_jobs_without_a_limit_can_be_kept_off_instead(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        await plan(world)
        jobs = [await submit(world, "bob", 1, None, f"j{n}") for n in range(4)]
        await asyncio.sleep(5)
        assert sorted(state(world, job) for job in jobs) == [JobState.QUEUED] * 2 + [JobState.RUNNING] * 2

    play(tmp_path, scene, long, CalendarSection(without_limit="keep-off"))


def test_a_job_goes_to_the_other_node(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        await plan(world, tenant=None, accelerators=None, nodes=("n0",))
        jobs = [await submit(world, "bob", 2, 5, f"j{n}") for n in range(3)]
        await asyncio.sleep(5)
        assert sorted(state(world, job) for job in jobs) == [JobState.QUEUED] + [JobState.RUNNING] * 2
        assert world.plane is not None
        waits = next(job for job in jobs if state(world, job) is JobState.QUEUED)
        told = await world.plane.explain(waits)
        assert [(one.cause, one.blocking) for one in told.causes if one.cause == "calendar"] == [("calendar", False)]
        assert "node n0 is in maintenance" in "".join(one.reason.text for one in told.causes)
        await asyncio.sleep(2 * HOUR)
        assert state(world, waits) is JobState.RUNNING

    play(tmp_path, scene, long, machines=nodes(2, 4))


def test_nothing_runs_during_maintenance_and_all_goes_on_after_it(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        jobs = [await submit(world, "bob", 2, hours, f"j{n}") for n, hours in enumerate((None, 20))]
        await asyncio.sleep(5)
        await plan(world, tenant=None, accelerators=None)
        assert world.plane is not None
        told = await world.plane.explain(jobs[0])
        assert "it is asked to leave before" in told.causes[-1].reason.text
        await asyncio.sleep(HOUR - 60)
        assert world.cluster.alive() == ()
        await world.restart()
        await asyncio.sleep(HOUR)
        assert world.cluster.alive() == ()
        await asyncio.sleep(90)
        assert [state(world, job) for job in jobs] == [JobState.RUNNING] * 2

    play(tmp_path, scene, long)


def test_it_repeats_every_week_and_can_be_removed(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        await plan(world, "weekly", repeat=Repeat.WEEKLY)
        await world.kill()
        await asyncio.sleep(7 * 24 * HOUR)
        await world.start()
        job = await submit(world, "bob", 4, 2)
        await asyncio.sleep(5)
        assert state(world, job) is JobState.QUEUED
        await world.calendar.plans.remove(world.calendar.plans.find("weekly"), actor="admin")
        await asyncio.sleep(5)
        assert state(world, job) is JobState.RUNNING
        with pytest.raises(NotFound, match="no plan 'weekly'"):
            world.calendar.plans.find("weekly")

    play(tmp_path, scene, lambda _: Script(run_s=60.0))


def test_a_job_that_cannot_start_takes_nothing_from_others_for_ever(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        await plan(world)
        gang = await submit(world, "bob", 2, 3, "gang", nodes={"require": {"never": "there"}})
        other = await submit(world, "bob", 2, 3, "other")
        await asyncio.sleep(30)
        assert (state(world, gang), state(world, other)) == (JobState.QUEUED, JobState.RUNNING)

    play(tmp_path, scene, long)


def test_what_cannot_be_kept_is_refused_when_it_is_made(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        first = await plan(world)
        assert await plan(world) == first
        with pytest.raises(Conflict, match="there is a plan course already"):
            await plan(world, accelerators=1)
        with pytest.raises(Conflict, match="there are 4 accelerators to reserve, not 5"):
            await plan(world, "too-much", accelerators=5)
        with pytest.raises(Conflict, match="node n0 is planned for something else"):
            await plan(world, "whole", tenant="bob", accelerators=None, nodes=("n0",))
        with pytest.raises(Invalid, match="no node 'n9'"):
            await plan(world, "nowhere", nodes=("n9",))
        with pytest.raises(Invalid, match="ends before it begins"):
            await plan(world, "backwards", begin=2 * HOUR, end=HOUR)
        with pytest.raises(Invalid, match="over already"):
            await plan(world, "past", begin=-HOUR, end=-1.0)
        with pytest.raises(Invalid, match="longer than the time after which it repeats"):
            await plan(world, "long", end=50 * HOUR, repeat=Repeat.DAILY)
        await plan(world, "after", begin=2 * HOUR, end=3 * HOUR, accelerators=4)

    play(tmp_path, scene)
