"""Sweeps end to end in virtual time, whatever is killed when."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from shoal.contract.lifecycle import JobState
from shoal.contract.records import JobRecord
from shoal.core import Invalid
from shoal.engine import Gang
from shoal.engine.simulated import Line, Script
from shoal.sweep.live.api import find
from shoal.sweep.live.extension import Sweeps
from shoal.sweep.models import SweepView
from tests.calendar.kit import Planned, play
from tests.control.simulation import manifest

STEPS = 9


def trains(gang: Gang) -> Script:
    """A loss that is the trial's learning rate and falls with each step, which takes ten seconds."""
    rate = float(gang.argv[1])
    lines = tuple(
        Line(10.0 * step, json.dumps({"step": step, "metrics": {"loss": rate + 1 / step}}), "metrics")
        for step in range(1, STEPS + 1)
    )
    return Script(run_s=10.0 * STEPS + 5, lines=lines, checkpoint_s=0.5)


async def sweep(world: Planned, rates: list[float], limit: str = "", **more: Any) -> str:
    assert world.plane is not None
    section = {"parameters": {"lr": rates}, "metric": "loss", **more}
    asked = manifest(
        "tune", command=["train", "${sweep.lr}"], env={"RATE": "lr-${sweep.lr}"}, resources={"accelerators": 1},
        array=f"0-{len(rates) - 1}{limit}", extensions={"sweep": section},
    )  # fmt: skip
    job, _ = await world.plane.submit(asked, tenant="ada", actor="tenant:ada")
    assert job.array_id is not None
    return job.array_id


def tasks(world: Planned) -> list[JobRecord]:
    return [job for job in world.jobs() if job.array_id is not None]


def shown(world: Planned, ref: str) -> SweepView:
    assert world.plane is not None
    assert world.store is not None
    extension = world.plane.extensions.get(Sweeps)
    assert extension is not None
    return find(extension, world.store.find_arrays(ref, "ada")[0], None)


async def until_over(world: Planned) -> None:
    async with asyncio.timeout(7200):
        while not all(job.state.terminal for job in tasks(world)):
            await asyncio.sleep(5)


def test_each_trial_has_its_values_and_the_best_comes_first(tmp_path: Path) -> None:
    seen: dict[str, Gang] = {}

    def behaviour(gang: Gang) -> Script:
        seen[gang.name] = gang
        return trains(gang)

    async def scene(world: Planned) -> None:
        array = await sweep(world, [0.3, 0.1, 0.2])
        await until_over(world)
        assert sorted((gang.argv[1], gang.env["RATE"], gang.env["SHOAL_SWEEP"]) for gang in seen.values()) == [
            ("0.1", "lr-0.1", '{"lr": 0.1}'), ("0.2", "lr-0.2", '{"lr": 0.2}'), ("0.3", "lr-0.3", '{"lr": 0.3}'),
        ]  # fmt: skip
        found = shown(world, "tune")
        assert (found.array, [one.title for one in found.trials]) == (array, ["lr=0.1", "lr=0.2", "lr=0.3"])
        assert [one.best for one in found.trials] == pytest.approx([rate + 1 / STEPS for rate in (0.1, 0.2, 0.3)])
        assert {one.state for one in found.trials} == {JobState.SUCCEEDED}

    play(tmp_path, scene, behaviour, others=(Sweeps,))


@pytest.mark.parametrize("killed_every_s", [None, 17.0])
def test_hopeless_trials_end_early_and_the_best_goes_to_its_end(tmp_path: Path, killed_every_s: float | None) -> None:
    async def scene(world: Planned) -> None:
        rates = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
        await sweep(world, rates, limit="%2", stop={"eta": 3, "first": 1})
        while not all(job.state.terminal for job in tasks(world)):
            await asyncio.sleep(killed_every_s or 5.0)
            if killed_every_s:
                await world.restart()
        found = shown(world, "tune")
        assert found.trials[0].title == "lr=0.1"
        assert found.trials[0].state is JobState.SUCCEEDED
        early = [one for one in found.trials if one.stopped_early]
        assert len(early) >= 3
        assert {one.state for one in early} == {JobState.CANCELLED}
        assert all("hopeless at rung" in job.message for job in tasks(world) if job.state is JobState.CANCELLED)
        assert world.store is not None
        told = [one for one in world.store.events(limit=100_000) if one.kind == "sweep.rung"]
        assert len({(one.job_id, one.data["rung"]) for one in told}) == len(told)

    play(tmp_path, scene, trains, others=(Sweeps,))


def test_trials_that_are_worse_than_the_median_end_early(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        await sweep(world, [0.1, 0.2, 0.3, 0.4, 0.05], limit="%1", stop={"rule": "median", "least": 2, "first": 2})
        await until_over(world)
        early = {one.title: one.stopped_early for one in shown(world, "tune").trials}
        assert early == {"lr=0.05": False, "lr=0.1": False, "lr=0.2": False, "lr=0.3": True, "lr=0.4": True}

    play(tmp_path, scene, trains, others=(Sweeps,))


@pytest.mark.parametrize("array", [None, "0-2", "1-2"])
def test_a_job_whose_array_does_not_fit_is_refused_in_words(tmp_path: Path, array: str | None) -> None:
    async def scene(world: Planned) -> None:
        assert world.plane is not None
        more = {} if array is None else {"array": array}
        asked = manifest("one", extensions={"sweep": {"parameters": {"lr": [1, 2]}}}, **more)
        with pytest.raises(Invalid, match="its array must be 0-1") as caught:
            await world.plane.submit(asked, tenant="ada", actor="tenant:ada")
        assert caught.value.where == "extensions.sweep"

    play(tmp_path, scene, others=(Sweeps,))


def test_a_name_that_is_not_swept_over_fails_the_trial_in_words(tmp_path: Path) -> None:
    async def scene(world: Planned) -> None:
        assert world.plane is not None
        section = {"sweep": {"parameters": {"lr": [1]}}}
        asked = manifest("one", command=["train", "${sweep.x}"], array="0", extensions=section)
        job, _ = await world.plane.submit(asked, tenant="ada", actor="tenant:ada")
        plane = world.plane
        await world.until(lambda: plane.job(job.id).state.terminal)
        assert "the sweep has no parameter 'x'" in plane.job(job.id).message

    play(tmp_path, scene, others=(Sweeps,))
