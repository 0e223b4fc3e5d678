"""The control plane end to end in virtual time, then with everything killed at random."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.contract.events import EventKind
from shoal.contract.lifecycle import ErrorCode, JobState, Outcome
from shoal.core import Conflict, Fault, NotFound, Overloaded, Quota, Unavailable
from shoal.engine import Gang, GangStatus, RankSpec
from shoal.engine.simulated import Line, Script, SimulatedEngine, run

from .simulation import World, check_history, manifest, nodes, simulate


def play(folder: Path, scene: Callable[[World], object], behaviour: Callable[[Gang], Script] | None = None) -> None:
    """Run a scene in virtual time on one node with 4 accelerators, then check the history of it."""

    async def main() -> None:
        world = World.make(folder, nodes(1, 4), behaviour or (lambda _: Script(run_s=10.0)))
        plane = await world.start()
        await plane.put_tenant("ada", actor="admin")
        await scene(world)  # type: ignore[misc]
        assert world.store is not None
        check_history(world.store, world.cluster)
        await world.kill()

    run(main(), start=1_700_000_000)


def states(world: World, job_id: str) -> list[str]:
    assert world.store is not None
    return [event.new_state or "" for event in world.store.events(job_id=job_id) if event.kind == "job.state"]


async def submit(world: World, name: str = "job", **fields: object) -> str:
    assert world.plane is not None
    record, created = await world.plane.submit(manifest(name, **fields), tenant="ada", actor="tenant:ada")
    assert created
    return record.id


async def ended(world: World, job_id: str) -> None:
    plane = world.plane
    assert plane is not None
    await world.until(lambda: plane.job(job_id).state.terminal)


def test_a_job_goes_through_every_state_in_order(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        job = await submit(world, inputs=[{"from": "/a", "to": "b"}], outputs=[{"from": "c", "to": "/d"}])
        await ended(world, job)
        assert states(world, job) == [
            "ADMITTED", "PLACED", "STARTING", "DOWNLOADING", "RUNNING", "STORING", "SUCCEEDED",
        ]  # fmt: skip
        assert world.plane is not None
        assert world.plane.job(job).ran_s == pytest.approx(20, abs=1)  # the run and the storing of its outputs

    play(tmp_path, scene)


@pytest.mark.parametrize(("more", "written"), [({}, 1), ({"outputs": [{"from": "c", "to": "/d"}]}, 3)])
def test_what_ended_before_it_was_seen_to_begin_is_written_down_once(
    tmp_path: Path, more: dict[str, object], written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = SimulatedEngine.launch

    async def late(engine: SimulatedEngine, gang: Gang) -> GangStatus:
        status = await launch(engine, gang)
        await asyncio.sleep(20.0)
        return status

    async def scene(world: World) -> None:
        assert world.store is not None
        monkeypatch.setattr(SimulatedEngine, "launch", late)
        commits: list[list[str]] = []
        world.store.subscribe(lambda events: commits.append([event.new_state or "" for event in events]))
        await ended(world, await submit(world, **more))
        since = next(at for at, states in enumerate(commits) if "RUNNING" in states)
        assert len(commits[since:]) == written

    play(tmp_path, scene)


def test_what_jobs_ask_of_deciding_is_read_once_for_all_alike_after_a_restart(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        jobs = [await submit(world, name) for name in ("one", "one", "other")]
        jobs.append(await submit(world, "spread", placement="spread"))
        await world.restart()
        assert world.plane is not None
        first, same, other, spread = (world.plane.cache[job] for job in jobs)
        assert first.asked is same.asked is other.asked
        assert first.asked is not spread.asked
        assert (first.asked.placement, spread.asked.placement) == ("pack", "spread")
        assert [one.manifest.name for one in (first, same, other)] == ["one", "one", "other"]
        for job in jobs:
            await ended(world, job)

    play(tmp_path, scene)


def test_a_guaranteed_job_preempts_and_the_victim_resumes(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        victim = await submit(world, "victim", resources={"accelerators": 4})
        await world.until(lambda: "RUNNING" in states(world, victim))
        urgent = await submit(world, "urgent", resources={"accelerators": 2}, priority_class="guaranteed")
        await ended(world, urgent)
        await ended(world, victim)
        assert states(world, victim)[4:] == [
            "CHECKPOINTING", "QUEUED", "ADMITTED", "PLACED", "STARTING", "RUNNING", "SUCCEEDED",
        ]  # fmt: skip
        assert world.store is not None
        outcomes = [attempt.outcome for attempt in world.store.attempts(victim)]
        assert outcomes == [Outcome.PREEMPTED, Outcome.SUCCEEDED]

    play(tmp_path, scene, lambda gang: Script(run_s=30.0, checkpoint_s=1.0))


def test_suspend_and_resume(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        job = await submit(world)
        await world.until(lambda: "RUNNING" in states(world, job))
        with pytest.raises(Conflict, match="only a suspended job"):
            await plane.resume(job, actor="ada")
        await plane.suspend(job, actor="ada")
        await world.until(lambda: plane.job(job).state is JobState.SUSPENDED)
        await plane.suspend(job, actor="ada")
        await plane.resume(job, actor="ada")
        await ended(world, job)
        assert plane.job(job).state is JobState.SUCCEEDED
        with pytest.raises(Conflict, match="over: SUCCEEDED"):
            await plane.suspend(job, actor="ada")

    play(tmp_path, scene)


def test_cancel_waiting_and_running(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        first = await submit(world, resources={"accelerators": 4})
        second = await submit(world, resources={"accelerators": 4})
        await world.until(lambda: "RUNNING" in states(world, first))
        assert (await plane.cancel(second, actor="ada")).state is JobState.CANCELLED
        assert (await plane.cancel(second, actor="ada")).state is JobState.CANCELLED
        await plane.cancel(first, actor="ada")
        await ended(world, first)
        assert plane.job(first).state is JobState.CANCELLED
        assert world.cluster.alive() == ()

    play(tmp_path, scene, lambda _: Script(run_s=1000.0, term_s=None))


def test_decisions_do_not_grow_with_the_jobs_that_wait_behind_equal_ones(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        whole = {"accelerators": 4}
        running, first = [await submit(world, resources=whole) for _ in range(2)]
        await world.until(lambda: "RUNNING" in states(world, running))
        before, others = plane.decider.cycles, []
        for _ in range(100):
            others.append(await submit(world, resources=whole))
            await asyncio.sleep(0.01)
        assert plane.decider.cycles <= before + 2
        small = await submit(world, resources={"accelerators": 1})  # of another size: it is looked at
        await world.until(lambda: plane.decider.cycles > before + 2)
        await plane.cancel(running, actor="ada")  # and when a place is free, the first that came has it
        await world.until(lambda: plane.job(first).state.active)
        for job in (*others, first, small):
            await plane.cancel(job, actor="ada")
        await world.until(lambda: not len(plane.cache))

    play(tmp_path, scene, lambda _: Script(run_s=1000.0))


def test_a_change_that_meets_the_jobs_end_says_how_it_ended(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        await submit(world, resources={"accelerators": 4})
        for _ in range(3):
            job = await submit(world, resources={"accelerators": 4})
            found = await asyncio.gather(
                *(plane.cancel(job, actor="ada") for _ in range(3)), plane.suspend(job, actor="ada"),
                return_exceptions=True,
            )  # fmt: skip
            assert [one.state for one in found[:3]] == [JobState.CANCELLED] * 3  # type: ignore[union-attr]
            assert isinstance(found[3], Conflict)
            assert found[3].what == "the job is over: CANCELLED"
        with pytest.raises(NotFound, match="no job j-never"):
            await plane.cancel("j-never", actor="ada")

    play(tmp_path, scene, lambda _: Script(run_s=1000.0))


def test_failures_are_retried_by_whose_fault_they_were(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        once = await submit(world, "once", restart={"limits": {"user": 0}})
        thrice = await submit(world, "thrice", restart={"limits": {"user": 2}})
        await ended(world, once)
        await ended(world, thrice)
        assert plane.job(once).attempt == 1
        assert plane.job(thrice).attempt == 3
        assert plane.job(thrice).error_code is ErrorCode.EXIT
        assert plane.job(thrice).error_code.fault is Fault.USER
        assert plane.job(once).message == "the process left with exit code 3"  # what it printed is in its log

    play(tmp_path, scene, lambda _: Script(run_s=1.0, code=3, lines=(Line(0.5, "a line of its own"),)))


def test_a_lost_supervisor_is_the_infrastructures_fault(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        job = await submit(world)
        await world.until(lambda: "RUNNING" in states(world, job))
        world.cluster.kill_supervisor(f"{job}.1.run")
        await ended(world, job)
        assert plane.job(job).state is JobState.SUCCEEDED
        assert world.store is not None
        assert [one.outcome for one in world.store.attempts(job)] == [Outcome.LOST, Outcome.SUCCEEDED]

    play(tmp_path, scene)


def test_limits_of_time(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        long = await submit(world, max_runtime="20s", resources={"accelerators": 4})
        late = await submit(world, deadline="10s", resources={"accelerators": 4})
        await ended(world, late)
        await ended(world, long)
        assert plane.job(long).error_code is ErrorCode.MAX_RUNTIME
        assert plane.job(late).error_code is ErrorCode.DEADLINE
        assert plane.job(late).attempt == 0

    play(tmp_path, scene, lambda _: Script(run_s=1000.0))


def test_nothing_is_launched_after_its_deadline(tmp_path: Path) -> None:
    launched: list[str] = []

    def behaviour(gang: Gang) -> Script:
        launched.append(gang.name)
        return Script(run_s=20.0)

    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        whole = {"accelerators": 4}
        fetching = await submit(world, deadline="10s", inputs=[{"from": "/x", "to": "x"}], resources=whole)
        paused = await submit(world, name="paused", deadline="10s", resources=whole)
        await plane.suspend(paused, actor="alice")
        await ended(world, fetching)
        await plane.resume(paused, actor="alice")
        await ended(world, paused)
        for job, why in ((fetching, "before it was launched"), (paused, "while it waited")):
            assert plane.job(job).error_code is ErrorCode.DEADLINE
            assert why in plane.job(job).message
        assert launched == [f"{fetching}.1.download"]
        after = await submit(world, name="after", resources=whole)
        await world.until(lambda: plane.job(after).state is JobState.RUNNING)

    play(tmp_path, scene, behaviour)


def test_a_write_that_failed_is_told_until_one_does_not(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        assert world.store is not None
        submit_for_real = world.store.submit

        async def full(*_: object) -> None:
            raise Unavailable("the disk is full", hint="free some space")

        world.store.submit = full  # type: ignore[assignment,method-assign]
        with pytest.raises(Unavailable):
            await submit(world)
        assert "the disk is full" in plane.status()["last_write_failed"]
        world.store.submit = submit_for_real  # type: ignore[method-assign]
        await ended(world, await submit(world))
        assert "last_write_failed" not in plane.status()

    play(tmp_path, scene)


def test_quotas_and_idempotency(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        await plane.put_tenant("bob", quota=Quota(accelerators=1, queued_jobs=1), actor="admin")
        job = manifest("one", resources={"accelerators": 1})

        async def again(key: str) -> tuple[str, bool]:
            record, created = await plane.submit(job, tenant="bob", actor="bob", idempotency_key=key)
            return record.id, created

        first, _ = await again("a")
        await world.until(lambda: plane.job(first).state is JobState.RUNNING)
        second, created = await again("b")
        assert created
        await world.until(lambda: (plane.job(second).reason or {}).get("code") == "quota")
        assert "quota" in (await plane.explain(second)).summary
        with pytest.raises(Overloaded, match="queued already"):
            await again("c")
        assert await again("a") == (first, False)
        assert await again("b") == (second, False)
        with pytest.raises(NotFound, match="no tenant"):
            await plane.submit(job, tenant="eve", actor="eve")
        await ended(world, second)
        with pytest.raises(Conflict, match="idempotency key"):
            await plane.submit(manifest("other"), tenant="bob", actor="bob", idempotency_key="a")

    play(tmp_path, scene)


def test_a_missing_secret_fails_the_job_and_a_present_one_reaches_only_the_rank(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        missing = await submit(world, secrets={"TOKEN": "hub"})
        await ended(world, missing)
        assert plane.job(missing).error_code is ErrorCode.SECRET
        await plane.secrets.set("ada", "hub", "s3cr3t-value", actor="ada")
        present = await submit(world, secrets={"TOKEN": "hub"})
        await ended(world, present)
        assert plane.job(present).state is JobState.SUCCEEDED
        assert b"s3cr3t-value" not in (tmp_path / "shoal.db").read_bytes()

    play(tmp_path, scene)


def test_reports_become_progress_and_metrics(tmp_path: Path) -> None:
    report = '{{"at": {0}, "step": {0}, "total": 4, "eta_s": 1, "metrics": {{"loss": 0.5}}}}'
    lines = (*(Line(n, report.format(n), "metrics") for n in range(1, 5)), Line(5, "accuracy=0.75", "log"))

    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        job = await submit(world, metrics={"regex": {"accuracy": r"accuracy=([\d.]+)"}})
        await ended(world, job)
        progress = plane.job(job).progress
        assert (progress["step"], progress["total"]) == (4, 4)
        assert progress["metrics"] == {"loss": 0.5, "accuracy": 0.75}
        assert world.store is not None
        assert [point.step for point in world.store.metrics(job, name="loss")] == [1, 2, 3, 4]

    play(tmp_path, scene, lambda _: Script(run_s=10.0, lines=lines))


def test_an_odd_report_takes_no_other_with_it(tmp_path: Path) -> None:
    odd = (
        '{"at": 1, "step": 1' + "0" * 400 + ', "metrics": {"loss": 0.5}}', '{"step": 1e300, "metrics": {"loss": 0.25}}',
        '{"step": 2, "metrics": {"loss": 1' + "0" * 400 + "}}", r'{"step": 3, "metrics": {"lo\ud800ss": 1}}',
        r'{"checkpoint": "/a\ud800", "step": 3}', '{"step": 4, "metrics": {"loss": 0.125}}',
    )  # fmt: skip
    lines = tuple(Line(1, text, "metrics") for text in odd)

    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        job = await submit(world)
        await ended(world, job)
        progress = plane.job(job).progress
        assert (progress["step"], progress["checkpoint"]) == (4, "/a?")
        assert progress["metrics"] == {"loss": 0.125, "lo?ss": 1.0}
        assert world.store is not None
        points = world.store.metrics(job, name="loss")
        assert [(point.step, point.value) for point in points] == [(None, 0.5), (None, 0.25), (4, 0.125)]

    play(tmp_path, scene, lambda _: Script(run_s=10.0, lines=lines))


def test_what_runs_survives_the_server_and_is_adopted(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        running = await submit(world, "running", resources={"accelerators": 4})
        waiting = await submit(world, "waiting", resources={"accelerators": 4})
        await world.until(lambda: "RUNNING" in states(world, running))
        plane = await world.restart()
        assert plane.job(running).state is JobState.RUNNING
        assert plane.job(waiting).state is JobState.QUEUED
        await ended(world, running)
        await ended(world, waiting)
        assert plane.job(running).attempt == 1
        assert plane.job(waiting).state is JobState.SUCCEEDED

    play(tmp_path, scene)


def test_an_orphan_of_the_engine_is_removed(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        assert world.engine is not None
        await world.engine.launch(Gang("j-unknown.1.run", ("train",), (RankSpec(0, "n0"),), tmp_path))
        began = asyncio.get_running_loop().time()
        await world.until(lambda: world.cluster.alive() == ())
        assert asyncio.get_running_loop().time() - began < 8, "the first of two looks is soon after the start"
        assert world.store is not None
        assert EventKind.RECONCILE_ORPHAN_REMOVED in {event.kind for event in world.store.events()}

    play(tmp_path, scene, lambda _: Script(run_s=10_000.0))


def test_a_server_without_jobs_rests(tmp_path: Path) -> None:
    """Counted in its first two hours, and again after a job: nobody looks every second at what is not there."""

    async def scene(world: World) -> None:
        assert world.engine is not None
        assert world.plane is not None
        looks = Counter[str]()
        engine, cache = world.engine, world.plane.cache
        gangs, active = engine.gangs, cache.active

        def count_gangs() -> Any:
            looks["engine"] += 1
            return gangs()

        def count_active() -> Any:
            looks["memory"] += 1
            return active()

        engine.gangs, cache.active = count_gangs, count_active  # type: ignore[method-assign]
        for _ in range(2):
            await asyncio.sleep(20.0)
            looks.clear()
            await asyncio.sleep(3600.0)
            assert looks["engine"] <= 2 * 60, "a comparison a minute, which asks twice"
            assert looks["memory"] <= 4 * 60, "no one's reports are collected"
            await ended(world, await submit(world))

    play(tmp_path, scene)


def test_what_a_resting_server_is_given_is_watched_at_once(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        await asyncio.sleep(1000.0)
        held = await submit(world, resources={"accelerators": 4})
        await asyncio.sleep(1000.0)
        late = await submit(world, deadline="10s", resources={"accelerators": 4})
        began = asyncio.get_running_loop().time()
        await ended(world, late)
        assert asyncio.get_running_loop().time() - began < 12.0
        await plane.cancel(held, actor="ada")
        await ended(world, held)
        await asyncio.sleep(1000.0)
        assert world.engine is not None
        await world.engine.launch(Gang("j-unknown.1.run", ("train",), (RankSpec(0, "n0"),), tmp_path))
        began = asyncio.get_running_loop().time()
        await world.until(lambda: world.cluster.alive() == ())
        assert asyncio.get_running_loop().time() - began < 70.0

    play(tmp_path, scene, lambda _: Script(run_s=10_000.0))


@pytest.mark.few(count=2)
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_or_doubled_whatever_dies(seed: int, tmp_path: Path) -> None:
    world = run(simulate(seed, tmp_path), start=1_700_000_000)
    assert world.crashes > 0


@pytest.mark.few
@pytest.mark.parametrize("seed", [20, 21])
def test_every_state_can_be_explained_and_what_is_said_to_help_does(seed: int, tmp_path: Path) -> None:
    run(simulate(seed, tmp_path, jobs=25, questions=True), start=1_700_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_every_state_can_be_explained_many_seeds(seed: int, tmp_path: Path) -> None:
    run(simulate(seed, tmp_path, jobs=60, crash_rate=0.05, questions=True), start=1_700_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_nothing_is_lost_or_doubled_many_seeds(seed: int, tmp_path: Path) -> None:
    run(simulate(seed, tmp_path, jobs=60, crash_rate=0.05), start=1_700_000_000)
