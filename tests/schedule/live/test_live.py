"""The control plane in virtual time with a policy that decides by rounds, on two types of accelerators."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shoal.contract.lifecycle import JobState, Outcome
from shoal.core import Money, PriorityClass
from shoal.engine import Gang
from shoal.engine.simulated import Line, Script, run
from shoal.schedule.presets import ScheduleSettings
from shoal.schedule.workloads import read_snapshot
from tests.control.simulation import World, check_history, manifest, scheduler_of, simulate, snapshot_of, two_types

START = 1_700_000_000
SPEED = {"v100": 4.0, "a100": 1.0}
MAX_MIN = ScheduleSettings("max-min", round_s=10.0, restart_cost_s=1.0)


def kind_of(gang: Gang) -> str:
    """The accelerator type that a simulated gang was given."""
    return gang.ranks[0].devices[0].split("-")[1]


def train(world: World, gang: Gang, steps: Callable[[str], float]) -> Script:
    """A job that reports its step and a checkpoint each second, as fast as `steps` says for its name and type, and goes
    on from the step that was reported last. Without accelerators it just runs."""
    assert world.plane is not None
    if not gang.ranks[0].devices:
        return Script(run_s=30.0)
    job = world.plane.job(gang.name.split(".")[0])
    total = 60.0
    rate = steps(f"{job.name.split('-')[0]} {kind_of(gang)}")
    done = float(job.progress.get("step") or 0.0)
    began = world.clock.now()
    left_s = max(total - done, 0.0) / rate
    lines = tuple(
        Line(at, json.dumps({"at": began + at, "step": int(done + at * rate)} | what), "metrics")
        for at in range(1, int(left_s) + 1)
        for what in ({"total": total}, {"checkpoint": "c"})
    )
    return Script(run_s=left_s, lines=lines, checkpoint_s=0.5)


def steps_by_type(kind: str) -> float:
    """`wide` jobs gain from the fast type, `flat` ones do not."""
    name, accelerator = kind.split()
    return SPEED[accelerator] if name == "wide" else 1.0


def play(
    folder: Path, scene: Callable[[World], Awaitable[None]], *, schedule: ScheduleSettings = MAX_MIN,
    steps: Callable[[str], float] = steps_by_type,
) -> None:  # fmt: skip
    """Run a scene in virtual time on two nodes, one with a v100 and one with two a100, then check its history."""

    async def main() -> None:
        world = World.make(folder, two_types(2, 2), lambda gang: train(world, gang, steps))
        world.schedule = schedule
        plane = await world.start()
        await plane.put_tenant("ada", actor="admin", max_priority_class=PriorityClass.GUARANTEED)
        await scene(world)
        assert world.store is not None
        check_history(world.store, world.cluster)
        await world.kill()

    run(main(), start=START)


async def submit(world: World, name: str, *, accelerators: object = 1, **fields: object) -> str:
    assert world.plane is not None
    asked = manifest(name, resources={"accelerators": accelerators}, labels={"kind": name.split("-")[0]}, **fields)
    record, _ = await world.plane.submit(asked, tenant="ada", actor="tenant:ada")
    return record.id


async def all_over(world: World, jobs: list[str]) -> None:
    plane = world.plane
    assert plane is not None
    await world.until(lambda: all(plane.job(job).state.terminal for job in jobs))
    assert {plane.job(job).state for job in jobs} == {JobState.SUCCEEDED}


def mean_completion(folder: Path, schedule: ScheduleSettings) -> float:
    """Seconds from submission to end, of eight jobs that gain from the fast type and eight that do not."""
    times: list[float] = []

    async def scene(world: World) -> None:
        jobs = [await submit(world, f"{kind}-{n}") for n in range(8) for kind in ("flat", "wide")]
        await all_over(world, jobs)
        assert world.plane is not None
        for job in map(world.plane.job, jobs):
            assert job.ended_at is not None
            times.append(job.ended_at - job.submitted_at)

    play(folder, scene, schedule=schedule)
    return sum(times) / len(times)


@pytest.mark.slow
def test_a_policy_that_looks_at_types_ends_jobs_sooner_than_one_that_does_not(tmp_path: Path) -> None:
    for name in ("aware", "blind"):
        (tmp_path / name).mkdir()
    aware = mean_completion(tmp_path / "aware", MAX_MIN)
    blind = mean_completion(
        tmp_path / "blind", ScheduleSettings("max-min", agnostic=True, round_s=10.0, restart_cost_s=1.0)
    )
    assert aware < 0.9 * blind


def test_jobs_take_turns_by_checkpoint_and_lose_nothing(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        jobs = [await submit(world, f"flat-{n}", accelerators={"type": "v100", "count": 1}) for n in range(3)]
        await all_over(world, jobs)
        assert world.store is not None
        ends = [attempt.outcome for job in jobs for attempt in world.store.attempts(job)]
        assert ends.count(Outcome.PREEMPTED) >= 3
        assert ends.count(Outcome.SUCCEEDED) == 3
        causes = {attempt.stop_cause for job in jobs for attempt in world.store.attempts(job) if attempt.stop}
        assert causes == {"its time slice is over: others have larger deficits"}

    play(tmp_path, scene)


def test_what_nobody_in_the_plan_uses_is_given_out_between_rounds(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        first = await submit(world, "flat-0")
        await world.until(lambda: plane.job(first).state is JobState.RUNNING)
        began = world.clock.now()
        later = await submit(world, "flat-1")
        await world.until(lambda: plane.job(later).state is JobState.RUNNING)
        assert world.clock.now() - began < 10_000.0 / 2
        assert (plane.job(later).reason or {})["code"] == "spare"
        await all_over(world, [first, later])

    play(tmp_path, scene, schedule=ScheduleSettings("max-min", round_s=10_000.0))


def test_guaranteed_jobs_and_jobs_without_accelerators_stay_admissions(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane, store = world.plane, world.store
        assert plane is not None
        assert store is not None
        victims = [await submit(world, f"flat-{n}") for n in range(4)]
        await world.until(lambda: sum(plane.job(job).state is JobState.RUNNING for job in victims) == 3)
        urgent = await submit(world, "wide-0", accelerators={"type": "a100", "count": 2}, priority_class="guaranteed")
        await world.until(lambda: plane.job(urgent).state is JobState.RUNNING)
        assert world.clock.now() - START < 60.0
        lone = await plane.submit(manifest("lone"), tenant="ada", actor="ada")
        await world.until(lambda: plane.job(lone[0].id).state is JobState.RUNNING, within_s=5.0)
        assert store.attempts(urgent)[0].stop is None
        await all_over(world, [*victims, urgent])
        assert len(store.attempts(urgent)) == 1

    play(tmp_path, scene)


def test_a_wait_names_the_price_and_what_the_speeds_came_from(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        jobs = [await submit(world, f"wide-{n}") for n in range(8)]
        await world.until(lambda: any(plane.job(job).state is JobState.RUNNING for job in jobs))
        await world.until(lambda: world.clock.now() > START + 25.0)
        waiting = next(job for job in jobs if plane.job(job).state is JobState.QUEUED)
        found = await plane.explain(waiting)
        causes = {cause.cause: cause for cause in found.causes}
        assert causes["schedule"].blocking
        assert causes["schedule"].reason.facts["prices"]["v100"] > 0.0
        assert "prices: " in found.summary
        assert {cause.reason.code for cause in found.causes if cause.cause == "throughput"} <= {"kind", "columns"}
        running = next(job for job in jobs if plane.job(job).state is JobState.RUNNING)
        sources = [cause.reason.code for cause in (await plane.explain(running)).causes if cause.cause == "throughput"]
        assert "measured" in sources
        assert scheduler_of(plane).status()["policy"] == "max-min"
        await all_over(world, jobs)

    play(tmp_path, scene)


def test_the_live_state_can_be_played_with_another_policy(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        jobs = [await submit(world, f"wide-{n}") for n in range(6)]
        await world.until(lambda: world.clock.now() > START + 30.0)
        (tmp_path / "live.jsonl").write_text(await snapshot_of(plane))
        found = read_snapshot(tmp_path / "live.jsonl")
        assert {job.id for job in found.jobs} == {job for job in jobs if not plane.job(job).state.terminal}
        assert {pool.type: (pool.count, pool.price_per_hour) for pool in found.pools} == {
            "a100": (2, Money()), "v100": (1, Money.usd(2)),
        }  # fmt: skip
        assert all(job.work_left is not None and job.work_left <= 60.0 for job in found.jobs)
        assert found.problem().jobs == len(found.jobs)
        await all_over(world, jobs)

    play(tmp_path, scene, schedule=ScheduleSettings("max-min", round_s=10.0, prices=(("v100", Money.usd(2)),)))


def test_what_was_measured_and_owed_outlives_the_server(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        jobs = [await submit(world, f"wide-{n}") for n in range(8)]
        await world.until(lambda: world.clock.now() > START + 25.0)
        plane = await world.restart()
        scheduler = scheduler_of(plane)
        assert scheduler is not None
        assert scheduler.oracle.estimate("ada/wide x1", "v100").throughput.per_s == pytest.approx(4.0, rel=0.1)
        await world.until(lambda: world.clock.now() > START + 26.0)
        number = scheduler_of(plane).status()["round"]
        assert number >= 3
        (tmp_path / "schedule.json").write_text('{"version": 1, "rounds": {"version": 99}, "oracle": {}}')
        plane = await world.restart()
        await world.until(lambda: scheduler_of(plane).status()["round"] == 1)
        await all_over(world, jobs)

    play(tmp_path, scene)


@pytest.mark.few
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_or_doubled_under_rounds_whatever_dies(seed: int, tmp_path: Path) -> None:
    settings = ScheduleSettings(("max-min", "blend", "fifo", "hierarchical")[seed % 4], round_s=5.0, restart_cost_s=0.5)
    world = run(simulate(seed, tmp_path, schedule=settings), start=START)
    assert world.crashes > 0
    assert world.plane is not None
    scheduler = scheduler_of(world.plane)
    assert scheduler is not None
    assert not scheduler.trouble


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_nothing_is_lost_or_doubled_under_rounds_many_seeds(seed: int, tmp_path: Path) -> None:
    names = ("max-min", "blend", "fifo", "hierarchical", "max-throughput", "allox", "gandiva", "finish-time",
             "makespan", "min-cost", "isolated", "strategy-proof")  # fmt: skip
    settings = ScheduleSettings(names[seed % len(names)], round_s=5.0, restart_cost_s=0.5)
    run(simulate(seed, tmp_path, jobs=60, crash_rate=0.05, schedule=settings), start=START)
