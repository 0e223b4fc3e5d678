"""The simulated engine's own promises: faults on demand, the proof of no doubling, strictness, determinism."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import Device, Fault, Invalid, ManualClock, Node, NotFound, Reason, Share, Unavailable
from shoal.engine import Engine, Gang, LaunchFailed, Phase, RankSpec
from shoal.engine.simulated import (
    CHECKPOINTED,
    Happening,
    Line,
    Overlap,
    Script,
    SimulatedCluster,
    SimulatedEngine,
    VirtualClock,
    find_overlaps,
    run,
)

pytestmark = pytest.mark.virtual_time

FOREVER = Script(run_s=math.inf)


def node(name: str, gpus: int = 2) -> Node:
    return Node(name, tuple(Device(f"gpu{i}", "a100", i) for i in range(gpus)), cpu_milli=4000, memory_bytes=1 << 30)


def gang(name: str, *, nodes: tuple[str, ...] = ("n0",), **fields: object) -> Gang:
    ranks = tuple(RankSpec(rank, where) for rank, where in enumerate(nodes))
    return replace(Gang(name, ("train",), ranks, Path("/nowhere")), **fields)


async def opened(
    behaviour: Script | Callable[[Gang], Script] = FOREVER, nodes: tuple[Node, ...] = (node("n0"), node("n1"))
) -> SimulatedEngine:
    script = behaviour if callable(behaviour) else lambda _: behaviour
    engine = SimulatedEngine(SimulatedCluster(nodes, clock=VirtualClock(), behaviour=script))
    await engine.open()
    return engine


async def reopened(engine: SimulatedEngine) -> SimulatedEngine:
    """A new server after a kill -9 of the old one."""
    engine.drop()
    other = SimulatedEngine(engine.cluster)
    await other.open()
    return other


async def exits(engine: SimulatedEngine, name: str) -> list[tuple[int | None, int | None, bool, bool]]:
    """(code, signal, lost, stopped) of each rank."""
    status = await engine.status(name)
    assert status is not None
    assert status.ended, status
    return [(r.exit.code, r.exit.signal, r.exit.lost, r.exit.stopped) for r in status.ranks if r.exit]


def events(engine: SimulatedEngine, name: str) -> list[str]:
    return [event for _, who, event in engine.cluster.history if who == name]


async def test_it_is_an_engine() -> None:
    engine: Engine = await opened()
    assert engine.name == "simulated"
    assert all(c.available or c.consequence for c in engine.capabilities())


# --- scripts ---


async def test_a_gang_runs_by_its_script_and_by_the_clock() -> None:
    engine = await opened(Script(launch_s=2, run_s=60))
    launched = await engine.launch(gang("j.1.run", nodes=("n0", "n1")))
    assert launched.phase is Phase.RUNNING
    assert [rank.started_at for rank in launched.ranks] == [1_700_000_002] * 2
    await asyncio.sleep(61)
    status = await engine.status("j.1.run")
    assert status is not None
    assert [rank.ended_at for rank in status.ranks] == [1_700_000_062] * 2
    assert events(engine, "j.1.run") == ["launch", "start", "running", "end"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (Script(code=3), (3, None, False, False)),
        (Script(signal=signal.SIGSEGV), (None, signal.SIGSEGV, False, False)),
        (Script(oom=True), (None, signal.SIGKILL, False, False)),
    ],
)
async def test_every_way_to_end(script: Script, expected: tuple[object, ...]) -> None:
    engine = await opened(script)
    await engine.launch(gang("j.1.run"))
    await asyncio.sleep(2)
    assert await exits(engine, "j.1.run") == [expected]
    status = await engine.status("j.1.run")
    assert status is not None
    assert status.ranks[0].exit is not None
    assert status.ranks[0].exit.oom is script.oom


@pytest.mark.parametrize(
    ("script", "grace_s", "after_s", "expected"),
    [
        (Script(run_s=math.inf), 10, 0, (None, signal.SIGTERM)),
        (Script(run_s=math.inf, term_s=4), 10, 4, (None, signal.SIGTERM)),
        (Script(run_s=math.inf, term_s=None), 10, 10, (None, signal.SIGKILL)),
        (Script(run_s=math.inf, term_s=40), 10, 10, (None, signal.SIGKILL)),
        (Script(run_s=math.inf, checkpoint_s=3), 10, 3, (CHECKPOINTED, None)),
        (Script(run_s=math.inf, checkpoint_s=30), 10, 8, (None, signal.SIGTERM)),
        (Script(run_s=math.inf, checkpoint_s=30, term_s=None), 10, 10, (None, signal.SIGKILL)),
        (Script(run_s=2, checkpoint_s=3), 10, 2, (0, None)),
    ],
)
async def test_how_a_rank_takes_being_stopped(
    script: Script, grace_s: float, after_s: float, expected: tuple[int | None, int | None]
) -> None:
    engine = await opened(script)
    await engine.launch(gang("j.1.run", grace_s=grace_s))
    await engine.stop("j.1.run", reason="preempted")
    await asyncio.sleep(100)
    assert await exits(engine, "j.1.run") == [(*expected, False, True)]
    status = await engine.status("j.1.run")
    assert status is not None
    assert status.ranks[0].ended_at == 1_700_000_000 + after_s
    assert status.reason == Reason("stopped", "preempted")


async def test_a_rank_that_ignores_the_signal_and_finishes_was_not_stopped() -> None:
    engine = await opened(Script(run_s=5, term_s=None))
    await engine.launch(gang("j.1.run", grace_s=10))
    await engine.stop("j.1.run")
    await asyncio.sleep(100)
    assert await exits(engine, "j.1.run") == [(0, None, False, False)]


async def test_streams_grow_with_time_and_end_with_the_rank() -> None:
    lines = (Line(0, "hello"), Line(5, '{"step": 1}', "metrics"), Line(10, "half"), Line(99, "never"))
    engine = await opened(Script(run_s=20, lines=lines))
    await engine.launch(gang("j.1.run"))
    first = await engine.read("j.1.run", 0, "log", 0)
    assert (first.data, first.ended) == (b"hello\n", False)
    await asyncio.sleep(10)
    second = await engine.read("j.1.run", 0, "log", first.next_offset)
    assert (second.data, second.ended) == (b"half\n", False)
    await asyncio.sleep(10)
    assert (await engine.read("j.1.run", 0, "log", 0)).ended
    assert (await engine.read("j.1.run", 0, "metrics", 0)).data == b'{"step": 1}\n'
    assert (await engine.read("j.1.run", 0, "file:out/none", 0)).data == b""


# --- the launch barrier and the death of a server ---


async def test_a_late_launch_is_rolled_back_whole() -> None:
    engine = await opened(Script(launch_s=61))
    with pytest.raises(LaunchFailed, match="not all ranks were ready within 60 s") as failure:
        await engine.launch(gang("j.1.run", nodes=("n0", "n1")))
    assert failure.value.fault is Fault.PLATFORM
    assert events(engine, "j.1.run") == ["launch", "start", "rolled-back", "end"]


async def test_ranks_at_the_barrier_of_a_dead_server_wait_and_are_adopted() -> None:
    engine = await opened(Script(launch_s=5, run_s=60))
    launching = asyncio.create_task(engine.launch(gang("j.1.run", nodes=("n0", "n1"))))
    await asyncio.sleep(1)
    launching.cancel()
    engine = await reopened(engine)
    await asyncio.sleep(10)
    found = (await engine.gangs())["j.1.run"]
    assert found.phase is Phase.STARTING
    adopted = await engine.launch(gang("j.1.run", nodes=("n0", "n1")))
    assert adopted.phase is Phase.RUNNING
    assert engine.cluster.launch_calls["j.1.run"] == 2
    assert engine.cluster.starts["j.1.run"] == 1


async def test_ranks_at_the_barrier_that_nobody_adopts_are_rolled_back() -> None:
    engine = await opened(Script(launch_s=5))
    launching = asyncio.create_task(engine.launch(gang("j.1.run", nodes=("n0", "n1"))))
    await asyncio.sleep(1)
    launching.cancel()
    engine = await reopened(engine)
    await asyncio.sleep(60)
    assert (await engine.gangs())["j.1.run"].ended
    assert "running" not in events(engine, "j.1.run")


async def test_a_rank_alone_needs_no_barrier() -> None:
    engine = await opened(Script(launch_s=5, run_s=60))
    launching = asyncio.create_task(engine.launch(gang("j.1.run")))
    await asyncio.sleep(1)
    launching.cancel()
    engine = await reopened(engine)
    await asyncio.sleep(10)
    assert (await engine.gangs())["j.1.run"].phase is Phase.RUNNING


async def test_a_running_gang_outlives_its_server() -> None:
    engine = await opened(Script(run_s=60))
    await engine.launch(gang("j.1.run"))
    old = engine
    engine = await reopened(engine)
    for call in (old.gangs(), old.launch(gang("k.1.run")), old.stop("j.1.run")):
        with pytest.raises(Unavailable):
            await call
    await asyncio.sleep(61)
    assert await exits(engine, "j.1.run") == [(0, None, False, False)]
    assert engine.cluster.starts == {"j.1.run": 1}


def test_a_cluster_outlives_even_its_event_loop() -> None:
    clock = ManualClock(100.0)
    cluster = SimulatedCluster([node("n0")], clock=clock, behaviour=lambda _: Script(run_s=60))

    async def first_life() -> None:
        engine = SimulatedEngine(cluster)
        await engine.open()
        await engine.launch(gang("j.1.run"))

    async def second_life() -> float | None:
        engine = SimulatedEngine(cluster)
        await engine.open()
        async for status in engine.changes():
            if status.ended:
                return status.ranks[0].ended_at
        return None

    asyncio.run(first_life())
    clock.advance(1000)
    assert asyncio.run(second_life()) == 160.0  # it ended when it was due, not when it was seen


def test_a_clock_moved_by_hand_needs_a_word() -> None:
    clock = ManualClock()
    cluster = SimulatedCluster([node("n0")], clock=clock, behaviour=lambda _: Script(run_s=60))

    async def main() -> tuple[str, ...]:
        engine = SimulatedEngine(cluster)
        await engine.open()
        await engine.launch(gang("j.1.run"))
        clock.advance(61)
        cluster.settle()
        return cluster.alive()

    assert asyncio.run(main()) == ()


# --- faults ---


async def test_a_killed_rank_takes_its_gang_with_it() -> None:
    engine = await opened()
    await engine.launch(gang("j.1.run", nodes=("n0", "n1")))
    engine.cluster.kill_rank("j.1.run", 1)
    await asyncio.sleep(1)
    assert await exits(engine, "j.1.run") == [
        (None, signal.SIGTERM, False, True),
        (None, signal.SIGKILL, False, False),
    ]


async def test_a_dead_supervisors_rank_is_lost() -> None:
    engine = await opened()
    await engine.launch(gang("j.1.run"))
    engine.cluster.kill_supervisor("j.1.run")
    assert await exits(engine, "j.1.run") == [(None, None, True, False)]


async def test_a_lost_node_takes_its_ranks_and_refuses_new_ones() -> None:
    engine = await opened()
    await engine.launch(gang("a.1.run", nodes=("n0",)))
    await engine.launch(gang("b.1.run", nodes=("n1",)))
    engine.cluster.lose_node("n0")
    assert await exits(engine, "a.1.run") == [(None, None, True, False)]
    assert engine.cluster.alive() == ("b.1.run",)
    assert [n.name for n in (await engine.inventory()).nodes] == ["n1"]
    with pytest.raises(LaunchFailed, match="no node n0") as failure:
        await engine.launch(gang("a.2.run", nodes=("n0",)))
    assert failure.value.fault is Fault.INFRASTRUCTURE
    engine.cluster.restore_node("n0")
    assert (await engine.launch(gang("a.2.run", nodes=("n0",)))).phase is Phase.RUNNING


async def test_a_node_lost_during_a_launch_rolls_it_back() -> None:
    engine = await opened(Script(launch_s=10))
    launching = asyncio.create_task(engine.launch(gang("j.1.run", nodes=("n0", "n1"))))
    await asyncio.sleep(1)
    engine.cluster.lose_node("n1")
    with pytest.raises(LaunchFailed, match="n1 was lost"):
        await launching
    assert engine.cluster.alive() == ()


async def test_launches_fail_and_lag_on_demand() -> None:
    engine = await opened(Script(run_s=1))
    engine.cluster.fail_launches(1, Fault.PLATFORM)
    with pytest.raises(LaunchFailed) as failure:
        await engine.launch(gang("a.1.run"))
    assert failure.value.fault is Fault.PLATFORM
    engine.cluster.delay_launches(7)
    assert (await engine.launch(gang("a.2.run"))).ranks[0].started_at == 1_700_000_007


async def test_a_gang_stopped_before_it_runs_is_rolled_back() -> None:
    engine = await opened(Script(launch_s=10))
    launching = asyncio.create_task(engine.launch(gang("j.1.run")))
    await asyncio.sleep(1)
    await engine.stop("j.1.run")
    with pytest.raises(LaunchFailed, match="given up"):
        await launching


def test_faults_need_a_gang_that_exists() -> None:
    cluster = SimulatedCluster([node("n0")], clock=ManualClock(), behaviour=lambda _: FOREVER)
    with pytest.raises(NotFound):
        cluster.kill_rank("nobody")


# --- strictness ---


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (gang("j.1.run", ranks=(RankSpec(0, "n0", ("gpu9",)),)), "no device gpu9"),
        (gang("j.1.run", ranks=(RankSpec(0, "n0", ("gpu0", "gpu0")),)), "gpu0 of node n0 is held by j.1.run"),
        (gang("j.1.run", ranks=(RankSpec(0, "n0", ("gpu1",)),)), "gpu1 of node n0 is held by holder.1.run"),
        (gang("j.1.run", cpu_milli=4001), "n0 has 4000 cpu_milli"),
        (gang("j.1.run", nodes=("n0", "n0"), memory_bytes=1 << 30), "bytes of memory"),
        (gang("j.1.run", nodes=("elsewhere",)), "no node elsewhere"),
    ],
)
async def test_what_a_machine_would_refuse_is_refused_and_holds_nothing(spec: Gang, complaint: str) -> None:
    engine = await opened()
    await engine.launch(gang("holder.1.run", ranks=(RankSpec(0, "n0", ("gpu1",)),)))
    with pytest.raises(LaunchFailed, match=complaint):
        await engine.launch(spec)
    assert await engine.status("j.1.run") is None
    assert events(engine, "j.1.run") == ["launch", "refused"]
    whole = gang("k.1.run", ranks=(RankSpec(0, "n0", ("gpu0",)), RankSpec(1, "n1", ("gpu0", "gpu1"))))
    assert (await engine.launch(replace(whole, cpu_milli=4000, memory_bytes=1 << 30))).phase is Phase.RUNNING


@pytest.mark.parametrize(
    "fields",
    [{"ranks": ()}, {"ranks": (RankSpec(0, "n0"), RankSpec(0, "n0"))}, {"ranks": (RankSpec(1, "n0"),)}, {"argv": ()}],
)
async def test_a_gang_must_make_sense(fields: dict[str, object]) -> None:
    engine = await opened()
    with pytest.raises(Invalid, match="numbered from 0"):
        await engine.launch(gang("j.1.run", **fields))
    assert await engine.gangs() == {}


async def test_what_a_gang_held_is_free_when_it_ends() -> None:
    engine = await opened(Script(run_s=5))
    spec = gang("j.1.run", ranks=(RankSpec(0, "n0", ("gpu0", "gpu1")),), cpu_milli=4000, memory_bytes=1 << 30)
    await engine.launch(spec)
    await asyncio.sleep(6)
    assert (await engine.launch(replace(spec, name="k.1.run"))).phase is Phase.RUNNING


# --- watching ---


async def test_a_slow_watcher_gets_the_latest_of_each_gang() -> None:
    engine = await opened(Script(launch_s=1, run_s=5))
    slow = engine.changes()
    await asyncio.gather(*(engine.launch(gang(f"j{i}.1.run")) for i in range(3)))
    await asyncio.sleep(10)
    assert [(await anext(slow)).phase for _ in range(3)] == [Phase.ENDED] * 3


async def test_watching_ends_with_the_connection() -> None:
    engine = await opened()
    watching = asyncio.create_task(anext(engine.changes()))
    await asyncio.sleep(1)
    await engine.close()
    with pytest.raises(StopAsyncIteration):
        await watching


# --- the proof of no doubling ---


async def test_two_gangs_of_one_job_at_one_time_are_found() -> None:
    engine = await opened(Script(run_s=10))
    await engine.launch(gang("j.1.run"))
    await asyncio.sleep(5)
    await engine.launch(gang("j.2.run"))
    await engine.launch(gang("other.1.run"))
    assert engine.cluster.overlaps() == (Overlap(1_700_000_005, "j", "j.1.run", "j.2.run"),)


async def test_attempts_that_follow_each_other_do_not_overlap() -> None:
    engine = await opened(Script(run_s=10))
    for attempt in (1, 2, 3):
        await engine.launch(gang(f"j.{attempt}.run"))
        await asyncio.sleep(10)
    assert engine.cluster.overlaps() == ()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(0, 9), st.integers(1, 9)), max_size=12))
def test_overlaps_agree_with_comparing_every_pair(runs: list[tuple[str, int, int, int]]) -> None:
    spans = [(f"{job}.{number}.{i}", start, start + length) for i, (job, number, start, length) in enumerate(runs)]
    moments = [(start, 1, i) for i, (_, start, _) in enumerate(spans)]
    moments += [(end, 0, i) for i, (_, _, end) in enumerate(spans)]  # at one moment, ends come first
    history = [Happening(at, spans[i][0], "start" if kind else "end") for at, kind, i in sorted(moments)]
    expected = {
        frozenset((a, b))
        for i, (a, a_start, a_end) in enumerate(spans)
        for b, b_start, b_end in spans[:i]
        if a[0] == b[0] and a_start < b_end and b_start < a_end
    }
    found = [frozenset((overlap.first, overlap.second)) for overlap in find_overlaps(history)]
    assert len(found) == len(set(found))
    assert set(found) == expected


# --- determinism and scale ---


def storm(seed: int, jobs: int) -> tuple[list[Happening], SimulatedCluster]:
    """Random launches, stops, kills and server deaths."""
    rng = random.Random(seed)

    def behaviour(spec: Gang) -> Script:
        return Script(
            run_s=rng.uniform(0, 50),
            code=rng.choice((0, 0, 1)),
            launch_s=rng.choice((0, 0, rng.uniform(0, 90))),
            checkpoint_s=rng.choice((None, 1, 20)),
            term_s=rng.choice((None, 0, 5)),
        )

    async def main() -> SimulatedCluster:
        engine = await opened(behaviour)
        cluster = engine.cluster
        tasks = []

        async def one(name: str) -> None:
            nodes = tuple(rng.choices(("n0", "n1"), k=rng.randint(1, 3)))
            with contextlib.suppress(LaunchFailed):
                await engine.launch(gang(name, nodes=nodes))

        for number in range(jobs):
            tasks.append(asyncio.create_task(one(f"job{number}.1.run")))
            await asyncio.sleep(rng.expovariate(1.0))
            alive = cluster.alive()
            match rng.randrange(8) if alive else 7:
                case 0:
                    await engine.stop(rng.choice(alive))
                case 1:
                    cluster.kill_rank(rng.choice(alive))
                case 2:
                    cluster.kill_supervisor(rng.choice(alive))
                case 3:
                    engine = await reopened(engine)
        await asyncio.sleep(300)
        for task in tasks:
            task.cancel()
        return cluster

    cluster = run(main())
    return cluster.history, cluster


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_a_storm_is_reproducible_and_every_start_has_one_end(seed: int) -> None:
    history, cluster = storm(seed, jobs=40)
    assert storm(seed, jobs=40)[0] == history
    starts = [name for _, name, event in history if event == "start"]
    ends = [name for _, name, event in history if event == "end"]
    assert sorted(starts) == sorted(ends)
    assert len(set(starts)) == len(starts)
    assert [at for at, _, _ in history] == sorted(at for at, _, _ in history)
    assert cluster.overlaps() == ()


def test_thousands_of_gangs_cost_no_task_each() -> None:
    async def main() -> int:
        engine = await opened(Script(run_s=60))
        most = 0
        for number in range(3000):
            await engine.launch(gang(f"job{number}.1.run"))
            most = max(most, len(asyncio.all_tasks()))
        await asyncio.sleep(61)
        assert engine.cluster.alive() == ()
        return most

    assert run(main()) == 1


@pytest.mark.parametrize(
    ("there", "comes", "fits"),
    [
        ([(Share.EXCLUSIVE, 0)], (Share.BEST_EFFORT, 1), False),
        ([(Share.BEST_EFFORT, 1)], (Share.EXCLUSIVE, 0), False),
        ([(Share.GUARANTEED, 1)], (Share.GUARANTEED, 1), False),
        ([(Share.GUARANTEED, 4), (Share.BEST_EFFORT, 3)], (Share.BEST_EFFORT, 1), True),
        ([(Share.GUARANTEED, 4), (Share.BEST_EFFORT, 3)], (Share.BEST_EFFORT, 2), False),
    ],
)
async def test_a_shared_device_is_not_oversold(
    there: list[tuple[Share, int]], comes: tuple[Share, int], fits: bool
) -> None:
    engine = await opened(nodes=(replace(node("n0"), devices=(Device("gpu0", "a100", 0, 8),)),))

    def sharing(name: str, share: Share, memory: int) -> Gang:
        rank = RankSpec(0, "n0", ("gpu0",))
        return gang(name, ranks=(rank,), share=share, device_memory_bytes=memory)

    for number, (share, memory) in enumerate(there):
        await engine.launch(sharing(f"j{number}.1.run", share, memory))
    if fits:
        await engine.launch(sharing("k.1.run", *comes))
        return
    with pytest.raises(LaunchFailed, match="is held by j0"):
        await engine.launch(sharing("k.1.run", *comes))
