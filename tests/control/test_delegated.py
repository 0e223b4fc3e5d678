"""Work on a cluster with its own scheduler: Shoal admits, the cluster picks machines, and both say why it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shoal.contract.events import EventKind
from shoal.contract.lifecycle import ErrorCode, JobState, Outcome
from shoal.core import Quota
from shoal.engine import Gang, Phase
from shoal.engine.simulated import POOL, Script, run

from .simulation import World, check_history, manifest, nodes, simulate, tenants

Scene = Callable[[World], Awaitable[None]]
HOUR = Script(run_s=3600.0)


def play(folder: Path, scene: Scene, behaviour: Callable[[Gang], Script] = lambda _: HOUR, ahead: float = 0.5) -> None:
    async def whole() -> None:
        world = World.make(folder, nodes(2, 4), behaviour, ahead)
        await world.start()
        await tenants(world)
        await scene(world)
        assert world.store is not None
        check_history(world.store, world.cluster)
        await world.kill()

    run(whole(), start=1_700_000_000)


async def submit(world: World, count: int, ranks: int = 1, tenant: str = "ada", **fields: object) -> str:
    asked = manifest(resources={"accelerators": {"type": "a100", "count": count}}, ranks=ranks, **fields)
    assert world.plane is not None
    job, _ = await world.plane.submit(asked, tenant=tenant, actor=f"tenant:{tenant}")
    await asyncio.sleep(0.01)  # jobs of one moment go in the order of their ids
    return job.id


def state(world: World, job_id: str) -> JobState:
    assert world.plane is not None
    return world.plane.job(job_id).state


def test_the_machines_are_picked_by_the_cluster_and_written_down(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        gang = await submit(world, 2, ranks=3)
        await world.until(lambda: state(world, gang) is JobState.RUNNING)
        assert world.store is not None
        (attempt,) = world.store.attempts(gang)
        assert {rank.node for rank in attempt.placement} == {POOL}
        assert [rank["node"] for rank in attempt.ranks] == ["n0", "n0", "n1"]

    play(tmp_path, scene)


def test_only_so_much_is_handed_over_ahead_and_the_rest_waits_in_our_order(tmp_path: Path) -> None:
    """Eight devices, and places for half as many more: of 16 jobs 8 run, 4 wait there and 4 here."""

    async def scene(world: World) -> None:
        jobs = [await submit(world, 1) for _ in range(16)]
        await world.until(lambda: [state(world, job) for job in jobs].count(JobState.RUNNING) == 8)
        assert world.plane is not None
        states = [state(world, job) for job in jobs]
        assert states == [JobState.RUNNING] * 8 + [JobState.STARTING] * 4 + [JobState.QUEUED] * 4

    play(tmp_path, scene)


def test_a_queued_gang_tells_both_levels(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await submit(world, 4, ranks=2)
        queued = await submit(world, 4)
        behind = await submit(world, 4)
        await world.until(lambda: world.cluster.status(f"{queued}.1.run") is not None)
        await world.until(lambda: world.plane is not None and world.plane.cache[queued].queue is not None)
        assert world.plane is not None
        told = await world.plane.explain(queued)
        assert [(cause.cause, cause.blocking) for cause in told.causes] == [("admission", False), ("cluster", True)]
        assert told.summary == "admitted, and waits in the cluster's queue: needs 1 x 4 a100, 0 of 8 a100 free"
        assert (await world.plane.explain(behind)).summary.startswith("waits: needs 4 a100")
        assert world.store is not None
        waits = [event for event in world.store.events() if event.kind == EventKind.JOB_WAITING]
        assert [event.actor for event in waits if event.job_id == queued] == ["engine:simulated"]

    play(tmp_path, scene)


def test_guaranteed_work_takes_back_what_is_queued_before_what_runs(tmp_path: Path) -> None:
    """The last one to be handed over has run for nothing: it makes way, and its attempt loses no work."""

    async def scene(world: World) -> None:
        running = await submit(world, 8 // 2, ranks=2)
        await world.until(lambda: state(world, running) is JobState.RUNNING)
        queued = await submit(world, 4)
        await world.until(lambda: state(world, queued) is JobState.STARTING)
        urgent = await submit(world, 4, tenant="bob", priority_class="guaranteed")
        await world.until(lambda: state(world, urgent) is JobState.STARTING)
        assert state(world, running) is JobState.RUNNING
        assert state(world, queued) is JobState.QUEUED
        assert world.store is not None
        (attempt,) = world.store.attempts(queued)
        assert (attempt.outcome, attempt.running_at) == (Outcome.PREEMPTED, None)

    play(tmp_path, scene)


@pytest.mark.parametrize("wish", ["cancel", "suspend"])
def test_what_is_queued_there_can_be_taken_back(tmp_path: Path, wish: str) -> None:
    async def scene(world: World) -> None:
        await submit(world, 4, ranks=2)
        queued = await submit(world, 4)
        await world.until(lambda: state(world, queued) is JobState.STARTING)
        assert world.plane is not None
        await getattr(world.plane, wish)(queued, actor="tenant:ada")
        end = JobState.CANCELLED if wish == "cancel" else JobState.SUSPENDED
        await world.until(lambda: state(world, queued) is end)
        assert world.cluster.starts[f"{queued}.1.run"] == 0

    play(tmp_path, scene)


def test_a_restarted_server_finds_what_is_queued_and_hands_nothing_over_twice(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        first = await submit(world, 4, ranks=2)
        queued = await submit(world, 4)
        await world.until(lambda: state(world, queued) is JobState.STARTING)
        await world.restart()
        await world.until(lambda: state(world, queued) is JobState.SUCCEEDED, within_s=3 * 3600)
        assert state(world, first) is JobState.SUCCEEDED
        assert world.cluster.starts == {f"{first}.1.run": 1, f"{queued}.1.run": 1}
        assert world.store is not None
        (attempt,) = world.store.attempts(queued)
        assert attempt.running_at is not None
        assert attempt.running_at - attempt.created_at > 3500
        assert world.store.job(queued).ran_s == pytest.approx(3600.0, abs=1.0)

    play(tmp_path, scene)


def test_what_the_cluster_would_never_run_is_refused_with_its_words(tmp_path: Path) -> None:
    """The pool has eight, and no machine more than four."""

    async def scene(world: World) -> None:
        job = await submit(world, 6)
        await world.until(lambda: state(world, job) is JobState.FAILED)
        assert world.plane is not None
        record = world.plane.job(job)
        assert record.error_code == ErrorCode.REFUSED
        assert "do not have 1 x 6 a100" in record.message

    play(tmp_path, scene)


def test_what_runs_on_a_lost_machine_ends_as_lost_and_starts_elsewhere(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        job = await submit(world, 4, restart={"limits": {"infrastructure": 2}})
        await world.until(lambda: state(world, job) is JobState.RUNNING)
        world.cluster.lose_node("n0")
        await world.until(lambda: world.cluster.starts[f"{job}.2.run"] == 1)
        assert world.store is not None
        first, second = world.store.attempts(job)
        assert first.outcome is Outcome.LOST
        status = world.cluster.status(f"{job}.2.run")
        assert status is not None
        assert [rank.node for rank in status.ranks] == ["n1"]
        assert second.running_at is not None

    play(tmp_path, scene)


def test_a_gang_that_vanished_from_the_queue_is_handed_over_again(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await submit(world, 4, ranks=2)
        queued = await submit(world, 4, restart={"limits": {"infrastructure": 2}})
        await world.until(lambda: state(world, queued) is JobState.STARTING)
        world.cluster.lose_gang(f"{queued}.1.run")
        await world.until(lambda: world.cluster.status(f"{queued}.2.run") is not None)
        status = world.cluster.status(f"{queued}.2.run")
        assert status is not None
        assert status.phase is Phase.QUEUED

    play(tmp_path, scene)


def test_quotas_count_what_is_queued_there(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        assert world.plane is not None
        await world.plane.put_tenant("bob", quota=Quota(accelerators=4), actor="admin")
        jobs = [await submit(world, 2, tenant="bob") for _ in range(3)]
        await world.until(lambda: state(world, jobs[1]) is JobState.RUNNING)
        assert state(world, jobs[2]) is JobState.QUEUED
        assert "quota of bob" in (await world.plane.explain(jobs[2])).summary

    play(tmp_path, scene)


@pytest.mark.few(count=2)
@pytest.mark.parametrize("seed", range(40, 44))
def test_nothing_is_lost_or_doubled_on_a_cluster_with_its_own_scheduler(seed: int, tmp_path: Path) -> None:
    world = run(simulate(seed, tmp_path, ahead=0.5), start=1_700_000_000)
    assert world.crashes > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(400, 460))
def test_nothing_is_lost_or_doubled_there_many_seeds(seed: int, tmp_path: Path) -> None:
    run(simulate(seed, tmp_path, jobs=60, crash_rate=0.05, ahead=0.5), start=1_700_000_000)
