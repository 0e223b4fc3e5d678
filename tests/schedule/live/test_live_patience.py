"""Jobs that do not save their work under rounds: they come to their end, and nobody waits for them for ever."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.contract.lifecycle import JobState, Outcome
from shoal.contract.manifest import JobManifest
from shoal.control.plane import ControlPlane
from shoal.control.plane_settings import PlaneSettings
from shoal.core import Device, PriorityClass
from shoal.engine import Gang
from shoal.engine.local import LocalEngine
from shoal.engine.local.inventory import Accelerators
from shoal.engine.simulated import Line, Script, run
from shoal.schedule.live.facts import Facts
from shoal.schedule.live.plan import what_if
from shoal.schedule.minimum_run import FIRST, Unsaved, behind, span, unsaved, waited_for
from shoal.schedule.presets import ScheduleSettings
from shoal.schedule.workloads import read_snapshot
from shoal.serve.live.extension import Serve
from shoal.store import open_store
from tests.control.simulation import World, check_history, chosen, manifest, nodes, scheduler_of, snapshot_of

START = 1_700_000_000
POLICIES = ("max-min", "finish-time", "hierarchical", "makespan", "blend", "gandiva", "elastic", "fifo")
SETTINGS = ScheduleSettings("max-min", round_s=2.0, restart_cost_s=1.0)
BEARABLE_S = 10.0
FIRST_S = FIRST * BEARABLE_S
ENDLESS = math.inf


def play(
    folder: Path, scene: Callable[[World], Awaitable[None]], *, policy: str = "max-min", devices: int = 2,
    lengths: Mapping[str, float], says: Callable[[str, int], Mapping[str, object] | None] = lambda name, at: None,
) -> None:  # fmt: skip
    """Run a scene in virtual time on one node. Each job runs as long as its name says and starts from nothing each
    time; `says` is what it reports in a second of its run."""

    def behaviour(world: World, gang: Gang) -> Script:
        assert world.plane is not None
        name = world.plane.job(gang.name.split(".")[0]).name
        began, length = world.clock.now(), lengths[name]
        lines = [
            Line(at, json.dumps({"at": began + at, **told}), "metrics")
            for at in range(5, int(min(length, 5000.0)) + 1, 5)
            if (told := says(name, at)) is not None
        ]
        return Script(run_s=length, lines=tuple(lines), term_s=0.1)

    async def main() -> None:
        world = World.make(folder, nodes(1, devices), lambda gang: behaviour(world, gang))
        world.schedule = ScheduleSettings(policy, round_s=SETTINGS.round_s, restart_cost_s=SETTINGS.restart_cost_s)
        plane = await world.start()
        await plane.put_tenant("ada", actor="admin", max_priority_class=PriorityClass.GUARANTEED)
        await scene(world)
        assert world.store is not None
        check_history(world.store, world.cluster)
        assert world.plane is not None
        assert scheduler_of(world.plane) is not None
        assert not scheduler_of(world.plane).trouble
        await world.kill()

    run(main(), start=START)


async def submit(world: World, name: str, **fields: object) -> str:
    assert world.plane is not None
    asked = manifest(name, **{"resources": {"accelerators": "any", "cpus": 0.2}, **fields})
    record, _ = await world.plane.submit(asked, tenant="ada", actor="tenant:ada")
    return record.id


async def all_over(world: World, jobs: list[str]) -> float:
    """The seconds that it took."""
    plane = world.plane
    assert plane is not None
    await world.until(lambda: all(plane.job(job).state.terminal for job in jobs), within_s=100_000)
    assert {plane.job(job).state for job in jobs} == {JobState.SUCCEEDED}
    return world.clock.now() - START


def ran(world: World, job: str) -> list[float]:
    """How long each of its attempts ran."""
    assert world.store is not None
    now = world.clock.now()
    return [(each.ended_at or now) - (each.running_at or each.created_at) for each in world.store.attempts(job)]


@pytest.mark.few
@pytest.mark.parametrize(
    ("policy", "length"),
    [
        *((policy, 40.0) for policy in POLICIES),
        ("blend", 250.0),
        *(pytest.param(policy, 250.0, marks=pytest.mark.slow) for policy in ("max-min", "elastic")),
    ],
)
def test_scripts_that_save_nothing_end_within_little_more_than_they_need(
    tmp_path: Path, policy: str, length: float
) -> None:
    async def scene(world: World) -> None:
        jobs = [await submit(world, f"job-{at}") for at in range(4)]
        took = await all_over(world, jobs)
        assert took < (1.05 if length <= FIRST_S else 2.6) * 2.0 * length
        for job in jobs:
            *lost, last = ran(world, job)
            assert last >= length
            assert len(lost) <= 1 + math.log(length / BEARABLE_S, 3.0)
            assert all(each >= FIRST_S for each in lost)

    play(tmp_path, scene, policy=policy, lengths={f"job-{at}": length for at in range(4)})


@pytest.mark.parametrize(
    "policy", ["max-min", *(pytest.param(policy, marks=pytest.mark.slow) for policy in ("elastic", "blend"))]
)
def test_an_endless_one_that_saves_nothing_is_turned_out_for_others_that_do_not_either(
    tmp_path: Path, policy: str
) -> None:
    async def scene(world: World) -> None:
        endless = await submit(world, "endless")
        others = [await submit(world, f"job-{at}") for at in range(3)]
        took = await all_over(world, others)
        assert took < 2.6 * 3 * 150.0 + sum(ran(world, endless))
        assert len(ran(world, endless)) <= 5

    lengths = {"endless": ENDLESS, **{f"job-{at}": 150.0 for at in range(3)}}
    play(tmp_path, scene, policy=policy, devices=1, lengths=lengths)


@pytest.mark.slow
def test_what_an_endless_one_had_too_much_is_paid_back_to_those_that_save(tmp_path: Path) -> None:
    """Two places, four jobs that would run for ever; three of them save their work each second."""
    names = ("endless", "a", "b", "c")

    async def scene(world: World) -> None:
        jobs = {name: await submit(world, name) for name in names}
        plane = world.plane
        assert plane is not None
        await world.until(lambda: len(ran(world, jobs["endless"])) == 3, within_s=50_000)
        had = {name: sum(ran(world, job)) for name, job in jobs.items()}
        fair = sum(had.values()) / len(had)
        assert all(0.75 * fair < each < 1.3 * fair for each in had.values()), had
        turns = ran(world, jobs["endless"])[:-1]
        assert all(after >= 2.0 * sum(turns[: at + 1]) for at, after in enumerate(turns[1:]))

    def says(name: str, at: int) -> Mapping[str, object] | None:
        return None if name == "endless" else {"checkpoint": "c", "step": at}

    play(tmp_path, scene, lengths=dict.fromkeys(names, ENDLESS), says=says)


@pytest.mark.slow
def test_whoever_comes_waits_for_as_long_as_it_had_run_before(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        first = await submit(world, "endless")
        await world.until(lambda: world.clock.now() > START + 1000.0)
        second = await submit(world, "short")
        await world.until(lambda: world.clock.now() > START + 1500.0)
        found = {cause.cause: cause.reason.text for cause in (await plane.explain(first)).causes}
        assert "it has saved nothing yet, so stopping it would lose 25 min of work" in found["work"]
        assert (await plane.explain(second)).summary.startswith(
            f"waits, with a deficit of 4 min, for {first}, which keeps its place until"
        )
        await all_over(world, [second])
        assert 1990.0 < ran(world, first)[0] < 2020.0
        assert world.store is not None
        cause = world.store.attempts(first)[0].stop_cause
        assert (
            cause
            == "its time slice is over: others have larger deficits; it did not save its work, and loses 33 min of it"
        )

    play(tmp_path, scene, devices=1, lengths={"endless": ENDLESS, "short": 50.0})


def test_one_that_saves_seldom_and_not_when_asked_comes_to_its_next_checkpoint(tmp_path: Path) -> None:
    """Its checkpoints are 200 s apart, its first turn by the trust in them is ten."""

    async def scene(world: World) -> None:
        seldom, other = await submit(world, "seldom"), await submit(world, "other")
        plane = world.plane
        assert plane is not None
        await world.until(lambda: len(ran(world, seldom)) > 4, within_s=20_000)
        assert max(ran(world, seldom)[:4]) >= 200.0
        assert 0.5 < sum(ran(world, other)) / sum(ran(world, seldom)) < 2.0

    def says(name: str, at: int) -> Mapping[str, object] | None:
        if name == "other":
            return {"checkpoint": "c", "step": at}
        return {"checkpoint": "c", "step": at} if at % 200 == 0 else {"step": at}

    play(tmp_path, scene, devices=1, lengths={"seldom": 4000.0, "other": ENDLESS}, says=says)


def test_guaranteed_work_does_not_wait_for_them(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane, store = world.plane, world.store
        assert plane is not None
        assert store is not None
        victim = await submit(world, "endless")
        await world.until(lambda: world.clock.now() > START + 30.0)
        urgent = await submit(world, "urgent", priority_class="guaranteed")
        await world.until(lambda: plane.job(urgent).state is JobState.RUNNING, within_s=5.0)
        assert store.attempts(victim)[0].outcome is Outcome.PREEMPTED
        await all_over(world, [urgent])

    play(tmp_path, scene, devices=1, lengths={"endless": ENDLESS, "urgent": 20.0})


def test_explain_and_what_if_say_who_keeps_a_place_and_who_waits_for_it(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        jobs = [await submit(world, f"job-{at}") for at in range(4)]
        await world.until(lambda: world.clock.now() > START + 30.0)
        running = [job for job in jobs if plane.job(job).state is JobState.RUNNING]
        for job in jobs:
            found = {cause.cause: cause for cause in (await plane.explain(job)).causes}
            schedule = found["schedule"].reason.text
            if job in running:
                assert schedule.startswith("keeps its place on a100: it would lose its work. By max-min it runs 50%")
                work = found["work"].reason
                assert work.text.startswith("keeps its place until it ends, or for 7")
                assert "it has saved nothing yet, so stopping it would lose 3" in work.text
                assert work.facts["lose_s"] == pytest.approx(30.0, abs=2.0)
            else:
                assert found["schedule"].blocking
                assert "for one of 2 jobs that have not saved their work, and would lose it by stopping" in schedule
                assert all(other in schedule for other in running)
                assert "work" not in found
        (path := tmp_path / "live.jsonl").write_text(await snapshot_of(plane))
        for policy in ("max-min", "finish-time", "elastic"):
            plan = what_if(read_snapshot(path), ScheduleSettings(policy, round_s=2.0, restart_cost_s=1.0))
            assert sorted(plan.target) == sorted(running)
        await world.until(lambda: any(plane.job(job).state is JobState.QUEUED for job in running))
        waiting = next(job for job in running if plane.job(job).state is JobState.QUEUED)
        text = {cause.cause: cause.reason.text for cause in (await plane.explain(waiting)).causes}["work"]
        assert text == "has lost 100 s of work, which it had not saved; its next time slice is twice as long"

    play(tmp_path, scene, lengths={f"job-{at}": 400.0 for at in range(4)})


class TestPatience:
    @settings(max_examples=300, deadline=None)
    @given(
        st.floats(1.0, 1e7), st.floats(0.1, 1e4), st.lists(st.floats(0.0, 1e5), min_size=60, max_size=60),
        st.lists(st.floats(-1e5, 1e5), min_size=60, max_size=60),
    )  # fmt: skip
    def test_restarts_are_logarithmic_and_what_is_lost_is_bounded(
        self, needs_s: float, time_slice_s: float, late: list[float], crowded: list[float]
    ) -> None:
        """Whenever others come to wait, and however much later than allowed each turn ends."""
        lost: list[float] = []
        now = 0.0
        for late_s, others_s in zip(late, crowded, strict=True):
            facts = Facts("k", lost_s=sum(lost))
            since, waited_since = now, now + others_s
            now = max(now, waited_since)
            while (
                found := unsaved(facts, "v", since, now, waited_since=waited_since, time_slice_s=time_slice_s)
            ) is None or (found.kept):
                assert found is not None
                assert found.lose_s == pytest.approx(now - since)
                now += found.keeps_s + 1e-6 * now
            now += late_s
            if now - since >= needs_s:
                break
            assert now - since >= FIRST * time_slice_s * (1.0 - 1e-9)
            lost.append(now - since)
        assert sum(lost) <= 1.5 * needs_s
        assert len(lost) <= 2.0 + max(0.0, math.log(needs_s / (FIRST * time_slice_s), 3.0))

    def test_those_that_save_are_not_held_and_the_others_are_while_nobody_waits(self) -> None:
        def risk(facts: Facts, waited_since: float | None = 0.0) -> Unsaved | None:
            return unsaved(facts, "v", 0.0, 1000.0, waited_since=waited_since, time_slice_s=10.0)

        assert risk(Facts("k", saves=True)) is None
        assert risk(Facts("k", saves=True, saved_at=-5.0, lost_s=10.0)) is None
        for facts in (Facts("k"), Facts("k", saves=True, saved_at=-5.0, lost_s=11.0)):
            assert (found := risk(facts)) is not None
            assert not found.kept
            assert (found := risk(facts, None)) is not None
            assert (found.kept, found.wanted, found.lose_s) == (True, False, 1000.0)
            assert found.reason().text.startswith("keeps its place for as long as no other job waits for v: it ")
        assert (found := risk(Facts("k", lost_s=800.0))) is not None
        assert found.keeps_s == 600.0
        assert (found := risk(Facts("k", saves=True, saved_at=900.0, lost_s=11.0))) is not None
        assert found.lose_s == 100.0

    def test_somebody_or_other_waits_since_the_first_did(self) -> None:
        first = waited_for([({"v": 1, "k": 1}, 30.0)], {}, 100.0)
        assert first == {"v": 70.0, "k": 70.0}
        assert waited_for([({"v": 1}, 2.0)], first, 110.0) == {"v": 70.0}

    def test_texts_are_as_people_say_it(self) -> None:
        assert [span(each) for each in (34.4, 119.0, 120.0, 7199.0, 9000.0)] == [
            "34 s",
            "119 s",
            "2 min",
            "120 min",
            "2.5 h",
        ]
        one = Unsaved("v", 34.0, 66.0)
        assert behind({"j": one}, 12.0).text == (
            "waits, with a deficit of 12 s, for j, which keeps its place until it ends, or for 66 s more: it has saved "
            "nothing yet, so stopping it would lose 34 s of work"
        )
        assert "(a 34 s, b 34 s, c 34 s, ...)" in behind(dict.fromkeys("abcd", one), 0.0).text


@pytest.mark.timeout(120)
async def test_real_scripts_that_save_nothing_come_to_their_end(tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir()
    slots = Accelerators(tuple(Device(f"cpu{at}", "cpu", at) for at in range(2)), "pretended")
    with closing(open_store(f"sqlite:///{home}/shoal.db", tables=[Serve.tables])) as store:
        store.acquire("test")
        plane = ControlPlane(
            store, LocalEngine(home, accelerators=lambda: slots), home, PlaneSettings(collect_every_s=0.1),
            extensions=chosen(schedule=ScheduleSettings("max-min", round_s=0.1, restart_cost_s=0.02)),
        )  # fmt: skip
        await plane.open()
        try:
            await plane.put_tenant("ada", actor="admin")
            asked = JobManifest.model_validate({
                "name": "script", "command": [sys.executable, "-c", "import time; time.sleep(1.2)"],
                "resources": {"accelerators": "any", "cpus": 0.2},
            })  # fmt: skip
            jobs = [(await plane.submit(asked, tenant="ada", actor="ada"))[0].id for _ in range(4)]
            async with asyncio.timeout(60):
                while not all(plane.job(job).state.terminal for job in jobs):
                    await asyncio.sleep(0.05)
            assert {plane.job(job).state for job in jobs} == {JobState.SUCCEEDED}
            assert all(len(store.attempts(job)) <= 3 for job in jobs)
        finally:
            await plane.close()
