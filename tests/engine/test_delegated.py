"""A cluster with a scheduler of its own: what its pool offers, in which order it starts gangs, and what it says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shoal.core import Device, Node
from shoal.engine import Gang, GangStatus, Phase, RankSpec, Refused
from shoal.engine.pool import described, pool_of, wanted
from shoal.engine.simulated import POOL, Script, SimulatedCluster, SimulatedEngine, VirtualClock, run


def machine(name: str, count: int, kind: str = "a100", cores: int = 8) -> Node:
    devices = tuple(Device(f"{name}-{at}", kind, at) for at in range(count))
    return Node(name, devices, cores * 1000, cores << 30)


def gang(name: str, ranks: int = 1, count: int = 1, kind: str = "a100", cores: int = 0, per_node: int = 0) -> Gang:
    places = tuple(f"{kind}:{at}" for at in range(count))
    specs = tuple(RankSpec(rank, POOL, places) for rank in range(ranks))
    return Gang(name, ("train",), specs, Path("/nowhere"), cpu_milli=cores * 1000, ranks_per_node=per_node)


def test_a_pool_has_the_devices_of_all_machines_and_some_places_more() -> None:
    pool = pool_of("gpu", [machine("a", 4), machine("b", 3, "h100")], ahead=0.25)
    assert (pool.name, pool.pooled) == ("gpu", True)
    assert dict(pool.capacity().accelerators) == {"a100": 5, "h100": 4}
    assert (pool.cpu_milli, pool.memory_bytes) == (20_000, 20 << 30)
    assert [device.id for device in pool.devices if device.type == "h100"] == [f"h100:{at}" for at in range(4)]


def test_a_pool_that_grows_keeps_the_names_of_its_places() -> None:
    small, large = (pool_of("gpu", [machine(str(at), 4) for at in range(count)], ahead=0.0) for count in (1, 2))
    assert large.devices[:4] == small.devices


def test_what_a_gang_asks_of_a_pool_is_read_from_its_places() -> None:
    asked = gang("a.1.run", ranks=2, count=3)
    assert wanted(asked.ranks[0]) == {"a100": 3}
    assert described(asked) == "2 x 3 a100"
    assert described(gang("b.1.run", ranks=4, count=0, cores=2)) == "4 x 2 cores"


Scene = Callable[[SimulatedEngine], Awaitable[None]]


def play(scene: Scene, *nodes: Node) -> None:
    async def whole() -> None:
        world = SimulatedCluster(nodes, clock=VirtualClock(), behaviour=lambda _: Script(run_s=10.0), ahead=0.0)
        engine = SimulatedEngine(world)
        await engine.open()
        await scene(engine)
        await engine.close()

    run(whole())


async def phases(engine: SimulatedEngine) -> dict[str, str]:
    return {name: str(status.phase) for name, status in (await engine.gangs()).items()}


def test_gangs_start_in_their_order_and_a_small_one_goes_where_a_large_one_does_not_fit() -> None:
    async def scene(engine: SimulatedEngine) -> None:
        for name, count in (("a", 3), ("b", 2), ("c", 1)):
            await engine.launch(gang(f"{name}.1.run", count=count))
        assert await phases(engine) == {"a.1.run": "running", "b.1.run": "queued", "c.1.run": "running"}
        waits = await engine.status("b.1.run")
        assert waits is not None
        assert waits.reason is not None
        assert waits.reason.text == "needs 1 x 2 a100, 1 of 4 a100 free"
        assert [rank.node for rank in waits.ranks] == [""]
        async for status in engine.changes():
            if status.name == "b.1.run" and status.ended:
                break
        assert [rank.node for rank in status.ranks] == ["n0"]

    play(scene, machine("n0", 4))


def test_cores_and_memory_count_too() -> None:
    async def scene(engine: SimulatedEngine) -> None:
        for name in ("a", "b", "c"):
            await engine.launch(gang(f"{name}.1.run", count=0, cores=4))
        assert await phases(engine) == {"a.1.run": "running", "b.1.run": "running", "c.1.run": "queued"}

    play(scene, machine("n0", 0))


def test_what_no_machine_has_is_refused_and_leaves_nothing() -> None:
    async def scene(engine: SimulatedEngine) -> None:
        with pytest.raises(Refused, match="do not have 1 x 5 a100"):
            await engine.launch(gang("a.1.run", count=5))
        assert await engine.gangs() == {}

    play(scene, machine("n0", 4), machine("n1", 4))


def test_a_machine_that_is_lost_for_now_is_waited_for() -> None:
    async def scene(engine: SimulatedEngine) -> None:
        engine.cluster.lose_node("n0")
        status: GangStatus = await engine.launch(gang("a.1.run", count=4))
        assert status.phase is Phase.QUEUED
        engine.cluster.restore_node("n0")
        assert await phases(engine) == {"a.1.run": "running"}

    play(scene, machine("n0", 4))


def test_nothing_new_starts_on_a_closed_machine() -> None:
    async def scene(engine: SimulatedEngine) -> None:
        engine.cluster.close_node("n0", "a new fan")
        await engine.launch(gang("a.1.run", count=4))
        assert await phases(engine) == {"a.1.run": "queued"}
        assert (await engine.inventory()).nodes[0].devices == ()
        engine.cluster.open_node("n0")
        assert await phases(engine) == {"a.1.run": "running"}

    play(scene, machine("n0", 4))


def test_a_queued_gang_that_is_stopped_never_starts() -> None:
    async def scene(engine: SimulatedEngine) -> None:
        await engine.launch(gang("a.1.run", count=4))
        await engine.launch(gang("b.1.run", count=4))
        await engine.stop("b.1.run", reason="preempt")
        status = await engine.status("b.1.run")
        assert status is not None
        assert status.ended
        assert status.fault is None
        assert [rank.started_at for rank in status.ranks] == [None]
        assert engine.cluster.starts == {"a.1.run": 1}

    play(scene, machine("n0", 4))


def test_each_machine_gets_as_many_ranks_as_the_gang_says() -> None:
    async def scene(engine: SimulatedEngine) -> None:
        await engine.launch(gang("pairs.1.run", ranks=4, per_node=2, cores=1))
        status = await engine.status("pairs.1.run")
        assert status is not None
        assert [rank.node for rank in status.ranks] == ["b", "b", "c", "c"]
        with pytest.raises(Refused):
            await engine.launch(gang("wide.1.run", ranks=6, per_node=2))

    play(scene, machine("a", 1), machine("b", 4), machine("c", 2))
