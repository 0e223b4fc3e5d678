"""Jobs that rent beside a scheduling policy that decides: what the market holds back stays so, and starts where it is
rented."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.contract.lifecycle import JobState
from shoal.control.extensions.loaded import Chosen
from shoal.schedule.live.extension import Schedule, ScheduleSection
from tests.market.live.test_market import OWN, World, play

POLICIES = ["none", "max-min", "elastic"]


def beside(policy: str) -> tuple[Chosen, ...]:
    return (Chosen(Schedule, ScheduleSection(policy=policy, round_s=10.0)),)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_rents_runs_on_no_machine_of_ones_own(tmp_path: Path, policy: str) -> None:
    async def scene(world: World) -> None:
        job = await world.submit()
        await asyncio.sleep(30)
        assert world.state(job) is JobState.QUEUED
        assert world.wait(job) == "renting"
        told = await world.plane.explain(job)
        assert [cause.cause for cause in told.causes if cause.blocking] == ["market"]
        await world.until(job, JobState.RUNNING)
        assert world.placed(job) == [f"{job}-1-0"]

    play(tmp_path, scene, nodes=(OWN,), beside=beside(policy), run_s=120)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_rented_is_used_and_paid_once(tmp_path: Path, policy: str) -> None:
    async def scene(world: World) -> None:
        job = await world.submit()
        await world.until(job, JobState.RUNNING, within_s=300.0)
        await world.until(job, JobState.SUCCEEDED)
        await asyncio.sleep(20)
        assert world.held() == []
        assert len(world.offers(job)) == 1

    play(tmp_path, scene, beside=beside(policy), run_s=120)


@pytest.mark.parametrize("policy", POLICIES)
def test_other_jobs_run_on_the_own_machine_meanwhile_and_never_on_what_is_rented(tmp_path: Path, policy: str) -> None:
    async def scene(world: World) -> None:
        job = await world.submit()
        others = [await world.submit(rents=False) for _ in range(2)]
        await world.until(job, JobState.SUCCEEDED)
        for other in others:
            await world.until(other, JobState.SUCCEEDED)
            assert {rank.node for one in world.store.attempts(other) for rank in one.placement} == {"own"}

    play(tmp_path, scene, nodes=(OWN,), beside=beside(policy), run_s=120)
