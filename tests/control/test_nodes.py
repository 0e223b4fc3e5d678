"""Nodes that come, go, shrink and close while the server runs, and while it is away."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.contract.lifecycle import ErrorCode, JobState, Outcome, Stop
from shoal.contract.records import AttemptRecord
from shoal.control.nodes import differences
from shoal.control.plane import ControlPlane
from shoal.core import Effect, NotFound, Taint
from shoal.engine import Gang, Inventory
from shoal.engine.simulated import Script, run

from .simulation import World, check_history, manifest, nodes


def play(
    folder: Path, scene: Callable[[World, ControlPlane], Awaitable[None]], *, count: int = 2,
    behaviour: Callable[[Gang], Script] = lambda _: Script(run_s=100.0), check: bool = True,
) -> None:  # fmt: skip
    """Run a scene in virtual time on nodes of 4 accelerators each."""

    async def main() -> None:
        world = World.make(folder, nodes(count, 4), behaviour)
        plane = await world.start()
        await plane.put_tenant("ada", actor="admin")
        await scene(world, plane)
        assert world.store is not None
        if check:
            check_history(world.store, world.cluster)
        await world.kill()

    run(main(), start=1_700_000_000)


async def submit(world: World, count: int = 4, **fields: object) -> str:
    assert world.plane is not None
    asked = manifest("job", resources={"accelerators": {"type": "a100", "count": count}}, **fields)
    record, _ = await world.plane.submit(asked, tenant="ada", actor="ada")
    await asyncio.sleep(1)
    return record.id


def attempts(world: World, job_id: str) -> list[AttemptRecord]:
    assert world.store is not None
    return sorted(world.store.attempts(job_id), key=lambda attempt: attempt.number)


def where(world: World, job_id: str) -> str:
    return attempts(world, job_id)[-1].placement[0].node


def state(world: World, job_id: str) -> JobState:
    assert world.plane is not None
    return world.plane.job(job_id).state


def kinds(world: World) -> list[tuple[str, str]]:
    assert world.store is not None
    told = [event for event in world.store.events(limit=1000) if event.kind.startswith("node.")]
    return [(event.kind, event.cause) for event in told]


def test_a_node_that_comes_gets_the_work_that_waits(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        job = await submit(world, count=8)
        assert plane.job(job).reason is not None
        assert state(world, job) is JobState.QUEUED
        (big,) = nodes(1, 8)
        world.cluster.add_node(replace(big, name="big"))
        await asyncio.sleep(1)
        assert state(world, job) is JobState.RUNNING
        assert kinds(world) == [("node.joined", "node big is there")]
        await world.until(lambda: state(world, job).terminal)

    play(tmp_path, scene)


def test_a_job_whose_node_is_gone_is_lost_and_runs_again_elsewhere(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        job = await submit(world)
        other = await submit(world)
        lost = where(world, job)
        world.cluster.lose_node(lost)
        await world.until(lambda: len(plane.snapshot().nodes) == 1)
        assert state(world, job) is JobState.QUEUED
        first = attempts(world, job)[0]
        assert (first.outcome, first.error_code) == (Outcome.LOST, ErrorCode.NODE_LOST)
        assert plane.job(job).retries == {"infrastructure": 1}
        assert state(world, other) is JobState.RUNNING
        await world.until(lambda: state(world, job).terminal)
        assert state(world, job) is state(world, other) is JobState.SUCCEEDED
        assert where(world, job) != lost
        assert kinds(world) == [("node.left", f"node {lost} is gone")]

    play(tmp_path, scene)


def test_a_gang_that_lost_one_of_its_nodes_ends_whole(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        job = await submit(world, ranks=2)
        world.cluster.lose_node("n1")
        await asyncio.sleep(1)
        assert world.cluster.alive() == ()
        assert attempts(world, job)[0].error_code is ErrorCode.NODE_LOST
        world.cluster.restore_node("n1")
        await world.until(lambda: state(world, job).terminal)
        assert state(world, job) is JobState.SUCCEEDED

    play(tmp_path, scene)


def test_a_job_on_a_device_that_is_gone_is_stopped_and_runs_again_on_others(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        job = await submit(world, count=1)
        beside = await submit(world, count=1)
        (rank,) = attempts(world, job)[0].placement
        world.cluster.lose_device(rank.node, rank.devices[0])
        await asyncio.sleep(1)
        first = attempts(world, job)[0]
        assert (first.outcome, first.error_code, first.stop) == (Outcome.LOST, ErrorCode.NODE_LOST, Stop.NODE_LOST)
        assert first.message.startswith(f"device {rank.devices[0]} of node {rank.node} is gone; tried again in")
        await world.until(lambda: state(world, job).terminal)
        assert state(world, job) is JobState.SUCCEEDED
        assert rank.devices[0] not in attempts(world, job)[1].placement[0].devices
        assert len(attempts(world, beside)) == 1
        assert kinds(world)[0] == ("node.changed", f"node {rank.node} changed: device {rank.devices[0]} is gone")

    play(tmp_path, scene, count=1)


def test_the_limit_of_retries_for_infrastructure_holds_for_lost_nodes(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        job = await submit(world, restart={"limits": {"infrastructure": 1}, "backoff": "1s"})
        for _ in range(2):
            await world.until(lambda: state(world, job) is JobState.RUNNING)
            world.cluster.lose_node("n0")
            await asyncio.sleep(1)
            world.cluster.restore_node("n0")
        await world.until(lambda: state(world, job).terminal)
        assert state(world, job) is JobState.FAILED
        assert plane.job(job).error_code is ErrorCode.NODE_LOST

    play(tmp_path, scene, count=1)


def test_a_closed_node_gets_no_new_work_and_keeps_what_runs(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        job = await submit(world, count=1)
        world.cluster.close_node("n0", "its fan is loud")
        waiting = await submit(world, count=1)
        assert state(world, job) is JobState.RUNNING
        assert state(world, waiting) is JobState.QUEUED
        world.cluster.open_node("n0")
        await asyncio.sleep(1)
        assert state(world, waiting) is JobState.RUNNING
        assert len(attempts(world, job)) == 1
        assert kinds(world) == [
            ("node.closed", "node n0 takes no new work: its fan is loud"),
            ("node.opened", "node n0 takes new work again"),
        ]
        await world.until(lambda: state(world, waiting).terminal)

    play(tmp_path, scene, count=1)


def test_a_node_that_went_while_no_server_was_there_takes_its_jobs_along(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        job, other = await submit(world, count=1), await submit(world, count=1)
        (rank,) = attempts(world, job)[0].placement
        await world.kill()
        world.cluster.lose_device(rank.node, rank.devices[0])
        await world.start()
        await asyncio.sleep(1)
        assert attempts(world, job)[0].error_code is ErrorCode.NODE_LOST
        await world.until(lambda: state(world, job).terminal and state(world, other).terminal)
        assert state(world, job) is state(world, other) is JobState.SUCCEEDED
        assert len(attempts(world, other)) == 1

    play(tmp_path, scene, count=1)


def test_of_a_node_that_is_gone_nothing_is_awaited_for_ever(tmp_path: Path) -> None:
    """The engine says nothing more of what ran there; once the node is back, what still runs on it is removed."""

    async def scene(world: World, plane: ControlPlane) -> None:
        job = await submit(world, grace="5s")
        world.cluster.cut_off_node("n0")
        await asyncio.sleep(30)
        assert state(world, job) is JobState.CHECKPOINTING or state(world, job) is JobState.RUNNING
        assert attempts(world, job)[0].stop is Stop.NODE_LOST
        await asyncio.sleep(10)
        first = attempts(world, job)[0]
        assert (first.outcome, first.error_code) == (Outcome.LOST, ErrorCode.NODE_LOST)
        assert first.ended_at is not None
        assert state(world, job) is JobState.QUEUED
        world.cluster.restore_node("n0")
        await world.until(lambda: state(world, job).terminal)
        assert state(world, job) is JobState.SUCCEEDED
        assert world.cluster.overlaps() == ()

    play(tmp_path, scene, count=1, behaviour=lambda _: Script(run_s=200), check=False)


def test_a_launch_that_meets_a_lost_node_is_the_nodes_fault(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        world.cluster.delay_launches(20)
        job = await submit(world)
        world.cluster.lose_node("n0")
        await asyncio.sleep(1)
        first = attempts(world, job)[0]
        assert (first.outcome, first.error_code) == (Outcome.ROLLED_BACK, ErrorCode.NODE_LOST)
        world.cluster.restore_node("n0")
        await world.until(lambda: state(world, job).terminal)
        assert state(world, job) is JobState.SUCCEEDED

    play(tmp_path, scene, count=1)


@pytest.mark.parametrize("wish", ["cancel", "suspend"])
def test_a_tenants_wish_goes_before_the_loss(tmp_path: Path, wish: str) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        job = await submit(world, count=1)
        (rank,) = attempts(world, job)[0].placement
        world.cluster.lose_device(rank.node, rank.devices[0])
        await asyncio.sleep(1)
        await (plane.cancel(job, actor="ada") if wish == "cancel" else plane.suspend(job, actor="ada"))
        await world.until(lambda: state(world, job) in (JobState.CANCELLED, JobState.SUSPENDED))

    play(tmp_path, scene, count=1, behaviour=lambda _: Script(run_s=math.inf, term_s=5))


def test_a_drained_node_stays_drained_over_restarts_and_while_it_is_away(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        runs = await submit(world, count=1)
        await plane.drain_node("n0", actor="admin", because="a new fan")
        waits = await submit(world, count=1)
        told = await plane.explain(waits)
        assert "node n0 (drained: a new fan) takes no new work" in told.summary
        plane = await world.restart()
        world.cluster.add_node(replace(nodes(1, 4)[0], cpu_milli=64_000))
        await asyncio.sleep(1)
        assert plane.snapshot().nodes["n0"].closed == "drained: a new fan"
        assert state(world, runs) is JobState.RUNNING
        assert state(world, waits) is JobState.QUEUED
        await plane.undrain_node("n0", actor="admin")
        await asyncio.sleep(1)
        assert state(world, waits) is JobState.RUNNING
        plane = await world.restart()
        assert plane.snapshot().nodes["n0"].schedulable
        assert [kind for kind, _ in kinds(world)] == ["node.drained", "node.changed", "node.undrained"]
        await world.until(lambda: state(world, waits).terminal)

    play(tmp_path, scene, count=1)


def test_unknown_nodes_are_neither_drained_nor_undrained(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        with pytest.raises(NotFound, match="no node nine"):
            await plane.drain_node("nine", actor="admin")
        with pytest.raises(NotFound, match="node n0 is not drained"):
            await plane.undrain_node("n0", actor="admin")
        await plane.drain_node("n0", actor="admin")
        assert plane.snapshot().nodes["n0"].closed == "drained"
        world.cluster.lose_node("n0")
        await asyncio.sleep(1)
        await plane.undrain_node("n0", actor="admin")
        world.cluster.restore_node("n0")
        await asyncio.sleep(1)
        assert plane.snapshot().nodes["n0"].schedulable

    play(tmp_path, scene, count=1)


def test_differences_are_told_by_node() -> None:
    first, second, third = nodes(3, 2)
    smaller = replace(second, devices=second.devices[:1])
    slower = replace(second, cpu_milli=1)
    old = Inventory((first, second), {"n0": "loud", "n1": "hot"})
    new = Inventory((smaller, third), {"n1": "cold", "n2": "new"})
    assert list(differences(old, new)) == [
        ("node.left", "n0", "node n0 is gone"),
        ("node.changed", "n1", "node n1 changed: device n1-a100-1 is gone"),
        ("node.closed", "n1", "node n1 takes no new work: cold"),
        ("node.joined", "n2", "node n2 is there"),
        ("node.closed", "n2", "node n2 takes no new work: new"),
    ]
    back = [cause for _, _, cause in differences(Inventory((smaller,), {"n1": "cold"}), Inventory((slower,)))]
    assert back == [
        "node n1 changed: device n1-a100-1 is there",
        "node n1 takes new work again",
    ]
    assert list(differences(Inventory((second,)), Inventory((slower,)))) == [
        ("node.changed", "n1", "node n1 changed: its resources or labels")
    ]
    assert list(differences(old, old)) == []


def test_a_taint_that_comes_empties_the_node_and_one_that_goes_opens_it(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        stays = await submit(world, nodes={"tolerate": ["repair:NoExecute"]})
        leaves = await submit(world)
        assert {where(world, stays), where(world, leaves)} == {"n0", "n1"}
        for node in nodes(2, 4):
            world.cluster.add_node(replace(node, taints=(Taint("repair", effect=Effect.NO_EXECUTE),)))
        await asyncio.sleep(1)
        assert state(world, stays) is JobState.RUNNING
        assert attempts(world, leaves)[0].stop is Stop.PREEMPT
        assert "which has taint repair:NoExecute" in attempts(world, leaves)[0].stop_cause
        await asyncio.sleep(30)
        assert state(world, leaves) is JobState.QUEUED
        told = await plane.explain(leaves)
        assert "there is no node without taint repair:NoExecute (0 of 2 nodes)" in told.summary
        world.cluster.add_node(nodes(2, 4)[1])
        await world.until(lambda: state(world, leaves) is JobState.SUCCEEDED)
        assert where(world, leaves) == "n1"
        assert [len(attempts(world, job)) for job in (stays, leaves)] == [1, 2]

    play(tmp_path, scene)


@pytest.mark.parametrize("ahead", [None, 0.0])
def test_what_a_job_asks_of_nodes_holds_over_a_restart_and_where_a_cluster_picks(
    tmp_path: Path, ahead: float | None
) -> None:
    machines = [replace(node, labels={"zone": zone}) for node, zone in zip(nodes(3, 4), "abc", strict=True)]

    async def main() -> None:
        world = World.make(tmp_path, tuple(machines), lambda _: Script(run_s=100.0), ahead)
        plane = await world.start()
        await plane.put_tenant("ada", actor="admin")
        jobs = [await submit(world, nodes={"require": {"zone": ["b", "c"]}}) for _ in range(4)]
        await world.restart()
        await world.until(lambda: all(state(world, job) is JobState.SUCCEEDED for job in jobs))
        for job in jobs:
            (attempt,) = attempts(world, job)
            assert {fact["node"] for fact in attempt.ranks} <= {"n1", "n2"}
        await world.kill()

    run(main(), start=1_700_000_000)
