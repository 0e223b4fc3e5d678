"""Job arrays and dependencies: as decisions against an independent oracle, and in the whole plane in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.contract.dependencies import When, met
from shoal.contract.lifecycle import JobState
from shoal.contract.records import Ends, FinishedJob, JobFilter, JobRecord
from shoal.control.home.retention import DAY_S, Retention, plan
from shoal.control.jobs.asked import asked_in
from shoal.control.jobs.held import HeldJobs
from shoal.control.plane import ControlPlane
from shoal.core import Conflict, Invalid, NotFound, Overloaded, PriorityClass, Quota, Resources
from shoal.engine import Gang
from shoal.engine.simulated import Script, run

from .simulation import World, check_history, manifest, nodes, simulate


def job(job_id: str, array: str | None = None, **fields: object) -> JobRecord:
    return JobRecord(
        id=job_id, tenant="ada", name=job_id, state=JobState.QUEUED, version=1, manifest="", resources=Resources(),
        ranks=1, priority_class=PriorityClass.BEST_EFFORT, priority=0, submitted_at=0.0, updated_at=0.0, array_id=array,
    ).evolve(**fields)  # fmt: skip


@pytest.mark.parametrize(
    ("when", "open_jobs", "failed", "expected"),
    [
        (When.SUCCESS, 1, False, None), (When.SUCCESS, 0, False, True), (When.SUCCESS, 1, True, False),
        (When.SUCCESS, 0, True, False), (When.FAILURE, 1, True, None), (When.FAILURE, 0, True, True),
        (When.FAILURE, 0, False, False), (When.END, 1, True, None), (When.END, 0, True, True),
        (When.END, 0, False, True),
    ],
)  # fmt: skip
def test_when_a_condition_is_met(when: When, open_jobs: int, failed: bool, expected: bool | None) -> None:
    assert met(when, open_jobs=open_jobs, failed=failed) is expected


ENDS = st.sampled_from([JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_jobs_are_released_exactly_when_all_that_they_wait_for_has_come(data: st.DataObject) -> None:
    """Against the definition: after every end, each waiting job is asked anew from the ends of all others."""
    count = data.draw(st.integers(1, 8))
    names = [f"j-{n}" for n in range(count)]
    after = {
        name: data.draw(st.lists(st.tuples(st.sampled_from(names[:n]), st.sampled_from(list(When))), max_size=3))
        for n, name in enumerate(names)
        if n
    }
    ends: dict[str, JobState] = {}
    held = HeldJobs(lambda ref: _ends_of(ends, ref))
    seen: set[str] = set()
    released: set[str] = set()

    def check() -> None:
        for name in seen - ends.keys():
            verdicts = [_expected(ends.get(ref), when) for ref, when in after.get(name, ())]
            assert (name in released) == (all(verdict is True for verdict in verdicts))
            assert (name in held.doomed) == any(verdict is False for verdict in verdicts)
            assert (held.why(name) is None) == (name in released)
            explained = held.explain(name)
            if explained is not None:
                missing = [one for one, verdict in zip(after[name], verdicts, strict=True) if verdict is not True]
                assert [
                    (cause.reason.facts["job"], cause.reason.facts["when"]) for cause in explained.causes
                ] == missing
        needed = {ref for name in seen - ends.keys() for ref, _ in after.get(name, ())}
        assert {name for name in names if held.holds(name)} == needed

    while len(ends) < count:
        may_come = [name for name in names if name not in seen]
        may_end = sorted(seen - ends.keys())
        if may_come and (not may_end or data.draw(st.booleans())):
            name = may_come[0]
            seen.add(name)
            asked = asked_in(manifest(name, after=[{"job": ref, "when": when} for ref, when in after.get(name, ())]))
            if held.admits(job(name), asked):
                released.add(name)
        else:
            name = data.draw(st.sampled_from(may_end))
            ends[name] = data.draw(ENDS)
            released |= set(held.ended(job(name, state=ends[name])))
        check()


def _ends_of(ends: dict[str, JobState], ref: str) -> Ends:
    return Ends(int(ref not in ends), ref in ends and ends[ref] is not JobState.SUCCEEDED)


def _expected(end: JobState | None, when: When) -> bool | None:
    if end is None:
        return None
    return {
        When.SUCCESS: end is JobState.SUCCEEDED,
        When.FAILURE: end is not JobState.SUCCEEDED,
        When.END: True,
    }[when]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_no_more_tasks_of_an_array_are_admitted_than_its_limit_and_never_fewer(data: st.DataObject) -> None:
    tasks, limit = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 5))
    asked = asked_in(manifest("sweep", array=f"0-{tasks - 1}%{limit}"))
    held = HeldJobs(lambda _: None)
    waiting = set(range(tasks))
    admitted = {n for n in range(tasks) if held.admits(job(f"a-{n}", "a"), asked)}
    waiting -= admitted
    paused: set[int] = set()
    while admitted or waiting or paused:
        assert len(admitted) == min(limit, len(admitted) + len(waiting))
        assert {n for n in range(tasks) if f"a-{n}" in held} == waiting
        choices = [*[("end", n) for n in sorted(admitted | waiting)], *[("resume", n) for n in sorted(paused)]]
        choices += [("pause", n) for n in sorted(admitted | waiting)] if len(paused) < 3 else []
        choices += [("again", n) for n in sorted(admitted)]
        what, n = data.draw(st.sampled_from(choices))
        one = job(f"a-{n}", "a", state=JobState.SUCCEEDED)
        if what == "again":  # it started, and was preempted: it keeps its turn
            held.occupies(one, asked)
            assert held.admits(one.evolve(attempt=1), asked)
            continue
        freed: list[str] = []
        if what == "resume":
            paused.discard(n)
            (admitted if held.admits(one, asked) else waiting).add(n)
        else:
            freed = held.ended(one) if what == "end" else held.paused(one)
            admitted.discard(n)
            waiting.discard(n)
            if what == "pause":
                paused.add(n)
        following = {int(one.rpartition("-")[2]) for one in freed}
        assert sorted(following) == sorted(waiting)[: len(following)]  # the lowest index first
        admitted |= following
        waiting -= following


WAITS = asked_in(manifest("waits", after=["j-1"]))


def test_only_the_first_attempt_waits_for_others() -> None:
    held = HeldJobs(lambda _: Ends(1, failed=False))
    assert not held.admits(job("j-2"), WAITS)
    assert held.admits(job("j-3", attempt=1), WAITS)
    assert held.why("j-3") is None


def test_what_is_gone_all_the_same_was_no_success() -> None:
    held = HeldJobs(lambda _: None)
    assert not held.admits(job("j-2"), WAITS)
    assert list(held.doomed) == ["j-2"]


def test_a_job_that_is_paused_is_not_cancelled_for_what_it_waited_for() -> None:
    held = HeldJobs(lambda _: Ends(1, failed=False))
    held.admits(job("j-2"), WAITS)
    held.ended(job("j-1", state=JobState.FAILED))
    assert list(held.doomed) == ["j-2"]
    held.paused(job("j-2"))
    assert (held.doomed, held.holds("j-1")) == ({}, True)
    assert not held.admits(job("j-2"), WAITS)
    assert list(held.doomed) == ["j-2"]


def test_a_submission_follows_what_it_names_and_nothing_of_it_is_removed_meanwhile() -> None:
    held = HeldJobs(lambda _: Ends(1, failed=False))
    held.admits(job("j-2"), WAITS)
    with held.claimed(WAITS.after):
        held.ended(job("j-2", state=JobState.CANCELLED))
        assert held.holds("j-1")
        held.ended(job("j-1", state=JobState.SUCCEEDED))
        assert held.admits(job("j-3"), WAITS)
    assert held.holds("j-1")
    held.ended(job("j-3", state=JobState.SUCCEEDED))
    assert not held.holds("j-1")
    with held.removing(["j-1"]), pytest.raises(Conflict, match="is being removed"), held.claimed(WAITS.after):
        pass
    with held.claimed(WAITS.after):
        assert held.holds(None, "j-1")


# --- in the whole plane ---


def play(
    folder: Path,
    scene: Callable[[World, ControlPlane], object],
    behaviour: Callable[[Gang], Script] | None = None,
    **options: object,
) -> None:
    async def main() -> None:
        world = World.make(folder, nodes(1, 4), behaviour or (lambda _: Script(run_s=10.0)))
        plane = await world.start()
        await plane.put_tenant("ada", actor="admin")
        await plane.put_tenant("bob", actor="admin")
        await scene(world, plane)  # type: ignore[misc]
        assert world.store is not None
        check_history(world.store, world.cluster)
        await world.kill()

    run(main(), start=1_700_000_000)


async def submit(world: World, name: str = "job", *, key: str | None = None, **fields: object) -> JobRecord:
    assert world.plane is not None
    fields = {"resources": {"accelerators": 1}, **fields}
    record, _ = await world.plane.submit(manifest(name, **fields), tenant="ada", actor="ada", idempotency_key=key)
    return record


def all_over(world: World) -> Callable[[], bool]:
    return lambda: world.plane is not None and len(world.plane.cache) == 0


def times(world: World, job_id: str) -> tuple[float, float]:
    """When it started and ended."""
    assert world.store is not None
    stored = world.store.job(job_id)
    assert stored is not None
    assert stored.started_at is not None
    assert stored.ended_at is not None
    return stored.started_at, stored.ended_at


def behaves(codes: dict[str, int], run_s: float = 10.0) -> Callable[[Gang], Script]:
    return lambda gang: Script(run_s=run_s, code=codes.get(gang.env["SHOAL_JOB_NAME"], 0))


def test_a_job_starts_after_the_success_that_it_waits_for_and_says_so_meanwhile(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        first = await submit(world, "first")
        second = await submit(world, "second", after=["first"])
        assert plane.cache[second.id].manifest.after[0].job == first.id
        told = await plane.explain(second.id)
        assert told.summary == f"waits for the success of {first.id}"
        assert [(cause.cause, cause.blocking, cause.change) for cause in told.causes] == [
            ("dependency", True, f"wait until {first.id} has ended")
        ]
        assert plane.job(second.id).reason == {
            "code": "dependency", "text": f"waits for the success of {first.id}",
            "facts": {"after": [{"job": first.id, "when": "success"}]},
        }  # fmt: skip
        assert second.id not in plane.snapshot().pending.by_id
        await world.until(all_over(world))
        assert times(world, second.id)[0] >= times(world, first.id)[1]
        stored = plane.job(second.id)
        assert (stored.state, stored.wait_cause and stored.wait_cause["code"]) == (JobState.SUCCEEDED, "dependency")

    play(tmp_path, scene)


def test_what_can_no_longer_come_ends_the_job_that_waits_for_it_and_all_behind_it(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        first = await submit(world, "first")
        second = await submit(world, "second", after=[{"job": first.id}])
        third = await submit(world, "third", after=[{"job": second.id}])
        mends = await submit(world, "mends", after=[{"job": first.id, "when": "failure"}])
        always = await submit(world, "always", after=[{"job": second.id, "when": "end"}])
        never = await submit(world, "never", after=[{"job": mends.id, "when": "failure"}])
        await world.until(all_over(world))
        found = {one.name: plane.job(one.id) for one in (first, second, third, mends, always, never)}
        assert {name: one.state.value for name, one in found.items()} == {
            "first": "FAILED", "second": "CANCELLED", "third": "CANCELLED", "mends": "SUCCEEDED",
            "always": "SUCCEEDED", "never": "CANCELLED",
        }  # fmt: skip
        assert found["second"].message == f"waited for the success of {first.id}, which cannot come any more"
        assert found["never"].message == f"waited for the failure of {mends.id}, which cannot come any more"

    play(tmp_path, scene, behaves({"first": 1}))


def test_preemption_and_retries_release_nobody(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        first = await submit(world, "first", resources={"accelerators": 4})
        after = await submit(world, "after", after=["first"])
        await world.until(lambda: plane.job(first.id).state is JobState.RUNNING)
        await submit(world, "urgent", resources={"accelerators": 4}, priority_class="guaranteed")
        await world.until(lambda: plane.job(first.id).state is JobState.QUEUED)
        assert after.id in plane.cache.held
        await world.until(all_over(world))
        assert plane.job(first.id).attempt == 2
        assert times(world, after.id)[0] >= times(world, first.id)[1]

    play(tmp_path, scene, lambda _: Script(run_s=20.0, checkpoint_s=1.0))


def test_an_array_is_one_submission_of_tasks_with_names_indices_and_a_limit(tmp_path: Path) -> None:
    most = 0
    seen: dict[str, str] = {}

    def behaviour(gang: Gang) -> Script:
        seen[gang.env["SHOAL_JOB_NAME"]] = gang.env["SHOAL_ARRAY_INDEX"]
        assert gang.env["SHOAL_ARRAY_COUNT"] == "6"
        assert (gang.env["SHOAL_ARRAY_MIN"], gang.env["SHOAL_ARRAY_MAX"]) == ("1", "30")
        return Script(run_s=5.0)

    async def scene(world: World, plane: ControlPlane) -> None:
        first = await submit(world, "sweep", array="1-4,20,30%2", key="k")
        again = await submit(world, "sweep", array="1-4,20,30%2", key="k")
        assert again.id == first.id
        assert (first.name, first.array_index, first.id) == ("sweep-1", 1, f"{first.array_id}-1")
        assert len(plane.cache) == 6
        assert len(plane.snapshot().pending.by_id) == 2
        last = plane.job(f"{first.array_id}-30")
        assert (last.reason or {})["text"] == f"waits: 2 of the tasks of array {first.array_id} run at a time"
        told = await plane.explain(last.id)
        assert (told.ahead, [cause.cause for cause in told.causes]) == (3, ["array"])
        nonlocal most
        restarted = False
        while len(plane.cache):
            most = max(most, len(plane.cache.active()))
            await asyncio.sleep(0.5)
            if len(plane.cache) == 4 and not restarted:
                restarted = True
                plane = await world.restart()
        assert world.store is not None
        assert world.store.array_counts([str(first.array_id)]) == {first.array_id: {JobState.SUCCEEDED: 6}}
        began = [times(world, one)[0] for one in world.store.array_tasks(str(first.array_id))]
        assert began == sorted(began)

    play(tmp_path, scene, behaviour)
    assert most == 2
    assert seen == {f"sweep-{n}": str(n) for n in (1, 2, 3, 4, 20, 30)}


def test_waiting_for_an_array_means_all_its_tasks(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        array = await submit(world, "sweep", array="0-5%3")
        after = await submit(world, "after", after=["sweep"])
        assert plane.cache[after.id].manifest.after[0].job == array.array_id
        mends = await submit(world, "mends", after=[{"job": array.array_id, "when": "failure"}])
        await world.until(lambda: plane.job(f"{array.array_id}-1").state.terminal)
        await world.until(lambda: plane.job(after.id).state.terminal)
        assert plane.job(after.id).state is JobState.CANCELLED  # as soon as one has failed
        assert mends.id in plane.cache.held  # others go on
        plane = await world.restart()
        await world.until(all_over(world))
        ends = [times(world, f"{array.array_id}-{n}")[1] for n in range(6)]
        assert times(world, mends.id)[0] >= max(ends)

    play(tmp_path, scene, behaves({"sweep-1": 1}))


def test_a_server_that_comes_back_knows_who_waits_for_what(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        done = await submit(world, "done")
        await world.until(all_over(world))
        first = await submit(world, "first")
        both = await submit(world, "both", after=[done.id, {"job": first.id, "when": "end"}])
        plane = await world.restart()
        assert (await plane.explain(both.id)).summary == f"waits for the end of {first.id}"
        await plane.cancel(first.id, actor="ada")
        await world.until(all_over(world))
        assert plane.job(both.id).state is JobState.SUCCEEDED

    play(tmp_path, scene)


def test_what_others_wait_for_is_kept_however_old(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        old = await submit(world, "old", array="0-1")
        other = await submit(world, "other", array="0-1")
        await world.until(all_over(world))
        blocker = await submit(world, "blocker", after=["old"])
        await plane.suspend(blocker.id, actor="ada")
        plane.garbage._retention = Retention(jobs_s=60.0)
        await asyncio.sleep(120)
        removed = await plane.garbage.collect()
        assert set(removed.jobs) == {f"{other.array_id}-0", f"{other.array_id}-1"}
        assert world.store is not None
        assert world.store.array(str(other.array_id)) is None
        assert world.store.array(str(old.array_id)) is not None
        await plane.resume(blocker.id, actor="ada")
        await world.until(all_over(world))
        assert plane.job(blocker.id).state is JobState.SUCCEEDED
        assert set((await plane.garbage.collect()).jobs) == {f"{old.array_id}-0", f"{old.array_id}-1"}

    play(tmp_path, scene)


def test_only_what_exists_and_can_end_so_may_be_waited_for(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        mine = await submit(world, "mine")
        endless = await submit(world, "endless", restart={"on": "always"})
        with pytest.raises(NotFound, match="no job 'itself'"):
            await submit(world, "itself", after=["itself"])
        asked = manifest("theirs", after=[mine.id])
        with pytest.raises(NotFound, match=r"no job .* to wait for"):
            await plane.submit(asked, tenant="bob", actor="bob")
        with pytest.raises(Invalid, match="never succeeds"):
            await submit(world, "waits", after=["endless"])
        await submit(world, "waits", after=[{"job": "endless", "when": "end"}])
        await plane.cancel(endless.id, actor="ada")
        await world.until(all_over(world))

    play(tmp_path, scene)


def test_an_array_counts_with_all_its_tasks_against_the_quota_of_queued_jobs(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        await plane.put_tenant("ada", quota=Quota(queued_jobs=5), actor="admin")
        with pytest.raises(Overloaded, match="5 more, and these are 6"):
            await submit(world, "sweep", array="0-5")
        await submit(world, "sweep", array="0-4")
        await world.until(all_over(world))

    play(tmp_path, scene)


def test_listings_have_an_array_in_one_line_or_each_of_its_tasks(tmp_path: Path) -> None:
    async def scene(world: World, plane: ControlPlane) -> None:
        one = await submit(world, "one")
        await asyncio.sleep(1)
        array = await submit(world, "sweep", array="0-9")
        await asyncio.sleep(1)
        two = await submit(world, "two")
        store = world.store
        assert store is not None
        jobs, arrays = store.folded(JobFilter(limit=10))
        assert ([job.id for job in jobs], [one.id for one in arrays]) == ([two.id, one.id], [array.array_id])
        jobs, arrays = store.folded(JobFilter(limit=2))
        assert ([job.id for job in jobs], [one.id for one in arrays]) == ([two.id], [array.array_id])
        jobs, arrays = store.folded(JobFilter(limit=2, before_id=array.array_id))
        assert ([job.id for job in jobs], arrays) == ([one.id], [])
        jobs, arrays = store.folded(JobFilter(limit=2, tenant="bob"))
        assert (jobs, arrays) == ([], [])
        assert len(store.jobs(JobFilter(limit=100))) == 12
        await world.until(all_over(world))

    play(tmp_path, scene)


def test_retention_leaves_out_what_is_held() -> None:
    old = [FinishedJob("a", "ada", 0.0, 1), FinishedJob("b", "ada", 0.0, 1)]
    found = plan(old, {}, (), frozenset(), Retention(), 100 * DAY_S, lambda one: one.id == "a")
    assert [one.id for one in found.jobs] == ["b"]


@pytest.mark.few
@pytest.mark.parametrize("seed", range(3))
def test_links_and_limits_hold_whatever_dies(seed: int, tmp_path: Path) -> None:
    world = run(simulate(seed, tmp_path, jobs=25, linked=True), start=1_700_000_000)
    assert world.crashes > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_links_and_limits_hold_many_seeds(seed: int, tmp_path: Path) -> None:
    run(simulate(seed, tmp_path, jobs=40, crash_rate=0.05, linked=True), start=1_700_000_000)
