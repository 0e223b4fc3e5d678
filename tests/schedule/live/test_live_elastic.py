"""Jobs of no fixed size under the elastic policy: the control plane in virtual time, and the parts by themselves."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.contract.lifecycle import JobState, Outcome
from shoal.contract.records import AttemptRecord
from shoal.core import PriorityClass, Quota
from shoal.engine import Gang
from shoal.engine.simulated import Line, Script, run
from shoal.schedule.live.goodput import candidate_sizes, complete
from shoal.schedule.presets import ScheduleSettings
from shoal.schedule.workloads import read_snapshot
from tests.control.simulation import (
    Crash,
    World,
    check_history,
    check_sizes,
    manifest,
    nodes,
    scheduler_of,
    simulate,
    snapshot_of,
    two_types,
)

START = 1_700_000_000
ELASTIC = ScheduleSettings("elastic", round_s=10.0, restart_cost_s=1.0)
RANGE = {"min": 1, "max": 4}
HELD_S = 10.0
"""For ten times the restart cost nobody is moved."""


def train(
    world: World, gang: Gang, totals: Mapping[str, float], power: float, times: float = 1.0, saves_s: float = 0.5
) -> Script:
    """A job that does `ranks ** power` steps a second, some `times` that, saves each of them and goes on from the last.
    One whose name begins with `deaf` reports its steps by a file, and not that it saves them."""
    assert world.plane is not None
    job = world.plane.job(gang.name.split(".")[0])
    total, rate = totals.get(job.name, 100.0), times * len(gang.ranks) ** power
    done, began = float(job.progress.get("step") or 0.0), world.clock.now()
    left_s = max(total - done, 0.0) / rate
    deaf = job.name.startswith("deaf")
    lines = tuple(
        Line(at, json.dumps({"at": began + at, "step": int(done + at * rate)} | what), stream)
        for at in range(1, int(left_s) + 1)
        for what, stream in (
            ({"total": total}, "file:own.jsonl" if deaf else "metrics"),
            ({"checkpoint": "c"}, "metrics"),
        )
        if not deaf or "total" in what
    )
    return Script(run_s=left_s, lines=lines, checkpoint_s=saves_s)


def play(
    folder: Path, scene: Callable[[World], Awaitable[None]], *, schedule: ScheduleSettings | None = ELASTIC,
    totals: Mapping[str, float] | None = None, power: float = 0.9, devices: int = 4, launched: list[Gang] | None = None,
    saves_s: float = 0.5,
) -> None:  # fmt: skip
    """Run a scene in virtual time on one node, then check its history. `launched` is given every gang. Saving takes
    `saves_s`."""

    def behaviour(world: World, gang: Gang) -> Script:
        if launched is not None:
            launched.append(gang)
        return train(world, gang, totals or {}, power, saves_s=saves_s)

    async def main() -> None:
        world = World.make(folder, nodes(1, devices), lambda gang: behaviour(world, gang))
        world.schedule = schedule
        plane = await world.start()
        await plane.put_tenant("ada", actor="admin", max_priority_class=PriorityClass.GUARANTEED)
        await scene(world)
        assert world.store is not None
        check_history(world.store, world.cluster)
        check_sizes(world)
        assert world.plane is not None
        assert scheduler_of(world.plane) is None or not scheduler_of(world.plane).trouble
        await world.kill()

    run(main(), start=START)


async def submit(world: World, name: str, ranks: object = RANGE, **fields: object) -> str:
    assert world.plane is not None
    asked = manifest(
        name, **{"resources": {"accelerators": 1}, "ranks": ranks, "metrics": {"jsonl": "own.jsonl"}, **fields}
    )
    record, _ = await world.plane.submit(asked, tenant="ada", actor="tenant:ada")
    return record.id


async def all_over(world: World, *jobs: str) -> None:
    plane = world.plane
    assert plane is not None
    await world.until(lambda: all(plane.job(job).state.terminal for job in jobs))
    assert {plane.job(job).state for job in jobs} == {JobState.SUCCEEDED}


def attempts(world: World, job: str) -> list[AttemptRecord]:
    assert world.store is not None
    return list(world.store.attempts(job))


def sizes(world: World, job: str) -> list[int]:
    return [len(attempt.placement) for attempt in attempts(world, job)]


def has(world: World, job: str) -> int:
    """How many ranks it runs with."""
    live = world.plane.cache.get(job) if world.plane is not None else None
    running = live is not None and live.job.state is JobState.RUNNING
    return len(live.attempt.placement) if running and live is not None and live.attempt is not None else 0


class TestLive:
    def test_one_that_is_alone_shrinks_for_another_and_grows_when_that_has_ended(self, tmp_path: Path) -> None:
        async def scene(world: World) -> None:
            plane = world.plane
            assert plane is not None
            first = await submit(world, "long")
            await world.until(lambda: has(world, first) == 4)
            await world.until(lambda: world.clock.now() > START + 60)
            second = await submit(world, "short")
            await world.until(lambda: (has(world, first), has(world, second)) == (2, 2), within_s=60)
            causes = {cause.cause: cause.reason for cause in (await plane.explain(first)).causes}
            assert causes["size"].text.startswith(
                "has 2 of 1 to 4 ranks: elastic chose 2, for others gain more from a100"
            )
            assert causes["throughput"].facts["per_s"].keys() == {"1", "2", "3", "4"}
            assert plane.job(first).size == 2
            await all_over(world, first, second)
            assert sizes(world, first) == [4, 2, 4]
            assert sizes(world, second) == [2]
            ends = [(attempt.outcome, attempt.stop_cause) for attempt in attempts(world, first)]
            assert ends[0] == (
                Outcome.PREEMPTED,
                "shrinks from 4 to 2 ranks on a100: what it leaves is worth more to others",
            )
            assert ends[1][1].startswith("grows from 2 to 4 ranks on a100: 1.")
            assert ends[2] == (Outcome.SUCCEEDED, "")
            mine = [gang for gang in launched if gang.name.startswith(first)]
            assert [[rank.rank for rank in gang.ranks] for gang in mine] == [[0, 1, 2, 3], [0, 1], [0, 1, 2, 3]]

        launched: list[Gang] = []
        play(tmp_path, scene, totals={"long": 1000.0, "short": 100.0}, launched=launched)

    @pytest.mark.slow
    def test_one_that_was_told_to_grow_comes_back_grown_whoever_comes_meanwhile(self, tmp_path: Path) -> None:
        """Saving takes two rounds, and before it is over another job comes, to which half of the places would go."""

        async def scene(world: World) -> None:
            first, second = await submit(world, "long"), await submit(world, "short")
            await world.until(lambda: (has(world, first), has(world, second)) == (2, 2), within_s=60)
            await world.until(lambda: (attempts(world, first)[-1].stop_cause or "").startswith("grows"), within_s=600)
            third = await submit(world, "third")
            await all_over(world, first, second, third)
            found = attempts(world, first)
            for attempt, following in pairwise(found):
                change = re.match(r"(?:grows|shrinks) from \d+ to (\d+) ranks", attempt.stop_cause or "")
                assert change is not None
                assert len(following.placement) == int(change[1])
            assert sizes(world, first)[-3:] != [2, 2, 2]

        settings = ScheduleSettings("elastic", round_s=4.0, restart_cost_s=1.0)
        play(tmp_path, scene, schedule=settings, totals={"long": 1500.0, "short": 100.0, "third": 100.0}, saves_s=9.0)

    def test_nobody_who_came_to_run_a_moment_ago_is_moved(self, tmp_path: Path) -> None:
        async def scene(world: World) -> None:
            jobs = [await submit(world, f"j{at}") for at in range(6)]
            await all_over(world, *jobs)
            for attempt in (attempt for job in jobs for attempt in attempts(world, job)):
                assert attempt.running_at is not None
                if attempt.stop_at is not None:
                    assert attempt.stop_at >= attempt.running_at + HELD_S

        play(tmp_path, scene)

    def test_whoever_finds_no_room_has_its_turn_before_the_others_end(self, tmp_path: Path) -> None:
        async def scene(world: World) -> None:
            jobs = [await submit(world, f"j{at}", ranks={"min": 1, "max": 2}) for at in range(4)]
            await world.until(lambda: all(len(attempts(world, job)) > 2 for job in jobs))
            assert world.plane is not None
            assert not any(world.plane.job(job).state.terminal for job in jobs)
            turns = [len(attempts(world, job)) for job in jobs]
            assert max(turns) - min(turns) <= 1
            await all_over(world, *jobs)

        play(tmp_path, scene, totals={f"j{at}": 400.0 for at in range(4)}, devices=2)

    def test_a_job_that_gains_little_leaves_the_rest_to_those_that_gain_more(self, tmp_path: Path) -> None:
        """Nothing is known at first; what both report at the sizes that they have tells them apart."""

        def steps(world: World, gang: Gang) -> Script:
            assert world.plane is not None
            name = world.plane.job(gang.name.split(".")[0]).name
            return train(world, gang, {"wide": 3000.0, "flat": 1000.0}, 1.0 if name == "wide" else 0.05)

        async def main() -> None:
            world = World.make(tmp_path, nodes(1, 4), lambda gang: steps(world, gang))
            world.schedule = ELASTIC
            plane = await world.start()
            await plane.put_tenant("ada", actor="admin")
            one = await submit(world, "flat")
            await world.until(lambda: world.clock.now() > START + 30)
            two = await submit(world, "wide")
            await world.until(lambda: (has(world, one), has(world, two)) == (1, 3), within_s=600)
            await world.kill()

        run(main(), start=START)

    def test_type_and_size_are_chosen_together(self, tmp_path: Path) -> None:
        """Four slow ones or two that are four times as fast, which another job of the kind has shown."""

        def steps(world: World, gang: Gang) -> Script:
            times = 4.0 if "v100" in gang.ranks[0].devices[0] else 1.0
            return train(world, gang, {"long": 4000.0}, 1.0, times)

        async def main() -> None:
            world = World.make(tmp_path, two_types(2, 4), lambda gang: steps(world, gang))
            world.schedule = ELASTIC
            plane = await world.start()
            await plane.put_tenant("ada", actor="admin")
            job = await submit(world, "long", labels={"kind": "k"})
            await world.until(lambda: has(world, job) == 4)
            first = await submit(world, "first", ranks=1, labels={"kind": "k"}, resources={"accelerators": "v100:1"})
            await all_over(world, first)
            await world.until(lambda: has(world, job) == 2, within_s=60)
            live = plane.cache[job]
            assert live.attempt is not None
            assert {rank.node for rank in live.attempt.placement} == {"fast"}
            cause = attempts(world, job)[0].stop_cause
            assert re.fullmatch(r"shrinks from 4 to 2 ranks, from a100 to v100: [12](.\d)? times as fast, .*", cause)
            await world.kill()

        run(main(), start=START)

    def test_one_that_would_not_take_its_work_along_is_made_smaller_only_and_never_grown(self, tmp_path: Path) -> None:
        async def scene(world: World) -> None:
            deaf = await submit(world, "deaf")
            await world.until(lambda: world.clock.now() > START + 60)
            other = await submit(world, "other")
            await all_over(world, deaf, other)
            assert sizes(world, deaf) == [4, 2]

        play(tmp_path, scene, totals={"deaf": 1000.0})

    def test_guaranteed_work_and_fixed_sizes_are_left_as_they_are(self, tmp_path: Path) -> None:
        async def scene(world: World) -> None:
            urgent = await submit(world, "urgent", ranks={"min": 1, "max": 3}, priority_class="guaranteed")
            await world.until(lambda: has(world, urgent) == 3)
            elastic = await submit(world, "elastic")
            await world.until(lambda: has(world, elastic) == 1)
            await all_over(world, urgent)
            await world.until(lambda: has(world, elastic) == 4)
            fixed = await submit(world, "fixed", ranks=2)
            await all_over(world, elastic, fixed)
            assert sizes(world, urgent) == [3]
            assert sizes(world, fixed) == [2] * len(attempts(world, fixed))
            assert sizes(world, elastic)[:2] == [1, 4]

        play(tmp_path, scene, totals={"elastic": 600.0, "fixed": 100.0})

    @pytest.mark.few
    @pytest.mark.parametrize("policy", [None, "max-min", "fifo", "blend"])
    def test_without_the_elastic_policy_a_job_keeps_the_size_that_it_started_with(
        self, tmp_path: Path, policy: str | None
    ) -> None:
        async def scene(world: World) -> None:
            assert world.plane is not None
            await world.plane.put_tenant("ada", actor="admin", quota=Quota(accelerators=3))
            first = await submit(world, "first")
            await world.until(lambda: has(world, first) == 3)
            assert world.plane.cache.index.snapshot(world.clock.now()).tenants["ada"].used.accelerator_count == 3
            await world.plane.put_tenant("ada", actor="admin", quota=Quota(accelerators=4))
            second = await submit(world, "second")
            await world.until(lambda: has(world, second) == 1)
            await all_over(world, first, second)
            assert (sizes(world, first), sizes(world, second)) == ([3], [1])

        schedule = None if policy is None else ScheduleSettings(policy, round_s=5.0, restart_cost_s=0.5)
        play(tmp_path, scene, schedule=schedule)

    def test_quotas_count_what_a_job_has(self, tmp_path: Path) -> None:
        async def scene(world: World) -> None:
            plane = world.plane
            assert plane is not None
            await plane.put_tenant("ada", actor="admin", quota=Quota(accelerators=3))
            jobs = [await submit(world, f"j{at}") for at in range(2)]
            held: Counter[int] = Counter()
            for _ in range(400):
                used = plane.cache.index.snapshot(world.clock.now()).tenants["ada"].used.accelerator_count
                held[used] += 1
                if all(plane.job(job).state.terminal for job in jobs):
                    break
                await asyncio.sleep(0.5)
            assert max(held) == 3
            await all_over(world, *jobs)

        play(tmp_path, scene, totals={"j0": 300.0, "j1": 300.0})

    def test_the_live_state_says_which_sizes_there_are_and_can_be_played(self, tmp_path: Path) -> None:
        async def scene(world: World) -> None:
            assert world.plane is not None
            job = await submit(world, "long")
            await world.until(lambda: world.clock.now() > START + 30)
            (path := tmp_path / "live.jsonl").write_text(await snapshot_of(world.plane))
            (found,) = read_snapshot(path).jobs
            assert (found.gang, [each.accelerators for each in found.elastic]) == (4, [1, 2, 3, 4])
            rates = [each.goodput.per_s for each in found.elastic]
            assert rates == sorted(rates)
            assert rates[3] == pytest.approx(4**0.9, rel=0.05)
            await all_over(world, job)

        play(tmp_path, scene, totals={"long": 400.0}, schedule=ScheduleSettings("max-min", round_s=10.0))

    @pytest.mark.few
    @pytest.mark.parametrize(
        "nth", [pytest.param(nth, marks=[pytest.mark.slow] if nth % 3 else []) for nth in range(12)]
    )
    def test_a_server_that_dies_amid_a_change_of_size_loses_and_doubles_nothing(self, tmp_path: Path, nth: int) -> None:
        """It dies at the nth point from the decision to shrink on, and again at as many points later."""

        async def scene(world: World) -> None:
            first = await submit(world, "long")
            await world.until(lambda: has(world, first) == 4)
            second = await submit(world, "short")
            passed = 0

            def die(point: str) -> None:
                nonlocal passed
                live = world.plane.cache.get(first) if world.plane is not None else None
                shrinking = live is not None and (live.job.attempt > 1 or (live.attempt and live.attempt.stop))
                passed += bool(shrinking)
                if shrinking and passed in (nth + 1, 2 * nth + 2):
                    raise Crash(point)

            world.fault = die
            for _ in range(1000):
                try:
                    if world.dead.is_set():
                        await world.restart()
                    assert world.plane is not None
                    if all(world.plane.job(job).state.terminal for job in (first, second)):
                        break
                except Crash:
                    continue
                await asyncio.sleep(1.0)
            assert world.crashes >= 1
            await all_over(world, first, second)
            found = attempts(world, first)
            assert {len(attempt.placement) for attempt in found} >= {4, 2}
            for attempt, following in pairwise(found):
                assert attempt.ended_at is not None
                assert attempt.ended_at <= following.created_at
                assert attempt.outcome in (Outcome.PREEMPTED, Outcome.ROLLED_BACK)

        play(tmp_path, scene, totals={"long": 600.0, "short": 200.0})


class TestGoodput:
    def test_all_sizes_of_a_short_range_and_doublings_of_a_long_one(self) -> None:
        assert candidate_sizes(1, 4) == (1, 2, 3, 4)
        assert candidate_sizes(2, 9) == tuple(range(2, 10))
        assert candidate_sizes(1, 100) == (1, 2, 4, 8, 16, 32, 64, 100)
        assert candidate_sizes(3, 48) == (3, 6, 12, 24, 48)

    def test_what_was_measured_stays_and_the_rest_is_linear_until_told_otherwise(self) -> None:
        rate = np.array([[[10.0], [1.0], [1.0]]])
        std = np.array([[[0.5], [1.0], [1.0]]])
        found, doubt = complete(rate, std, (1, 2, 4))
        assert found[0, :, 0] == pytest.approx([10.0, 20.0, 40.0])
        assert doubt[0, 0, 0] == 0.5
        assert 0.05 < doubt[0, 1, 0] / 20.0 < doubt[0, 2, 0] / 40.0 < 1.0
        rate[0, 2, 0], std[0, 2, 0] = 20.0, 1.0
        found, _ = complete(rate, std, (1, 2, 4))
        assert found[0, 1, 0] == pytest.approx(math.sqrt(200.0), rel=0.02)

    def test_one_type_tells_of_another_only_at_a_size_that_was_measured(self) -> None:
        rate = np.array(
            [[[10.0, 10.0], [1.0, 1.0]]]
        )  # of the second type the oracle only guesses: as fast as the first
        std = np.array([[[0.5, 10.0], [1.0, 1.0]]])
        found, doubt = complete(rate, std, (1, 2))
        assert found[0, 1] == pytest.approx([20.0, 20.0])
        assert doubt[0, 1, 1] == pytest.approx(20.0)

    @given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 30.0]), st.sampled_from([0.01, 0.3, 1.0])), min_size=4,
                    max_size=4))  # fmt: skip
    def test_rates_are_finite_never_fall_with_size_by_the_law_alone_and_keep_what_does_not_fit(
        self, given: list[tuple[float, float]]
    ) -> None:
        rate = np.array([per_s for per_s, _ in given]).reshape(1, 4, 1)
        std = rate * np.array([doubt for _, doubt in given]).reshape(1, 4, 1)
        found, doubt = complete(rate, std, (1, 2, 3, 4))
        assert np.isfinite(found).all()
        assert np.isfinite(doubt).all()
        assert ((found > 0.0) == (rate > 0.0)).all()
        assert (doubt <= found * 1.0 + 1e-9).all()
        known = (rate > 0.0) & (std < rate)
        assert (found[known] == rate[known]).all()
        law = found[(rate > 0.0) & ~known]
        assert (np.diff(law) >= -1e-9).all()


@pytest.mark.few
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_or_doubled_with_ranges_whatever_dies(seed: int, tmp_path: Path) -> None:
    settings = ScheduleSettings("elastic", round_s=5.0, restart_cost_s=0.5) if seed % 4 else None
    world = run(simulate(seed, tmp_path, schedule=settings, ranges=True), start=START)
    assert world.crashes > 0
    assert world.plane is not None
    assert scheduler_of(world.plane) is None or not scheduler_of(world.plane).trouble


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 260))
def test_nothing_is_lost_or_doubled_with_ranges_many_seeds(seed: int, tmp_path: Path) -> None:
    names = ("elastic", "elastic", "elastic", "max-min", "blend", None)
    name = names[seed % len(names)]
    settings = ScheduleSettings(name, round_s=5.0, restart_cost_s=0.5) if name else None
    run(simulate(seed, tmp_path, jobs=60, crash_rate=0.05, schedule=settings, ranges=True), start=START)
