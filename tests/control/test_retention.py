"""What may be removed, as a decision, and removing it from a real store and real folders in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base import trees
from shoal.contract.lifecycle import JobState
from shoal.contract.records import BundleRecord, FinishedJob, NewEvent
from shoal.control.home.retention import DAY_S, Removal, Retention, plan
from shoal.control.plane import ControlPlane
from shoal.core import Overloaded, Quota
from shoal.engine.simulated import Script, VirtualClock

from .simulation import World, check_history, manifest, nodes

NOW = 1000 * DAY_S
KEEP = Retention()


def job(name: str, age_days: float, tenant: str = "ada") -> FinishedJob:
    return FinishedJob(name, tenant, NOW - age_days * DAY_S, 1)


def removed(*jobs: FinishedJob, runs: dict[str, int] | None = None, keep: Retention = KEEP) -> Removal:
    return plan(sorted(jobs, key=lambda one: one.ended_at), runs or {}, (), frozenset(), keep, NOW)


def test_a_job_goes_when_it_is_old_and_its_run_before_that() -> None:
    found = removed(job("a", 30), job("b", 29.9), job("c", 7), job("d", 6.9), runs=dict.fromkeys("abcd", 1))
    assert [one.id for one in found.jobs] == ["a"]
    assert [one.id for one in found.runs] == ["b", "c"]
    assert found.events_before == NOW - 30 * DAY_S


def test_a_run_that_is_gone_already_is_not_named_again() -> None:
    assert removed(job("a", 20), runs={}).runs == ()


def test_kept_outputs_have_a_period_of_their_own_and_end_with_their_job() -> None:
    keep = replace(KEEP, artifacts_s=10 * DAY_S)
    jobs = [job("a", 31), job("b", 10), job("c", 9.9), job("d", 20)]
    found = plan(jobs, {}, (), frozenset(), keep, NOW, with_artifacts={"a", "b", "c"})
    assert [one.id for one in found.jobs] == ["a"]
    assert [one.id for one in found.artifacts] == ["b"]


def test_the_oldest_go_when_a_tenant_has_too_many() -> None:
    keep = replace(KEEP, jobs_per_tenant=2)
    jobs = [job("a", 3), job("b", 2), job("c", 1), job("x", 9, "bob"), job("y", 8, "bob")]
    assert [one.id for one in removed(*jobs, keep=keep).jobs] == ["a"]


def test_the_oldest_runs_go_when_a_tenant_has_too_much() -> None:
    keep = replace(KEEP, tenant_bytes=100)
    jobs = [job("a", 3), job("b", 2), job("c", 1), job("x", 5, "bob")]
    found = removed(*jobs, runs={"a": 60, "b": 60, "c": 40, "x": 100}, keep=keep)
    assert ([one.id for one in found.runs], found.jobs) == (["a"], ())


def test_a_bundle_goes_when_nobody_named_it_for_long() -> None:
    ages = {"a": 31, "b": 31, "c": 1, "d": 30}
    bundles = [BundleRecord("ada", name, 1, 1, 0.0, NOW - age * DAY_S) for name, age in ages.items()]
    found = plan((), {}, bundles, frozenset({("ada", "a"), ("bob", "b")}), KEEP, NOW)
    assert [one.digest for one in found.bundles] == ["b", "d"]


ages = st.lists(st.tuples(st.sampled_from(["ada", "bob"]), st.floats(0, 60), st.integers(0, 100)), max_size=30)


@given(ages, st.integers(1, 10), st.one_of(st.none(), st.integers(0, 500)))
def test_what_is_young_within_its_number_and_size_stays(
    found: list[tuple[str, float, int]], most: int, size: int | None
) -> None:
    keep = replace(KEEP, jobs_per_tenant=most, tenant_bytes=size)
    jobs = [job(str(n), age, tenant) for n, (tenant, age, _) in enumerate(found)]
    runs = {str(n): held for n, (_, _, held) in enumerate(found)}
    decided = removed(*jobs, runs=runs, keep=keep)
    gone, stripped = {one.id for one in decided.jobs}, {one.id for one in decided.runs}
    assert not gone & stripped
    for tenant in ("ada", "bob"):
        theirs = [one for one in jobs if one.tenant == tenant]
        left = [one for one in theirs if one.id not in gone]
        assert len(left) <= most
        assert all(NOW - one.ended_at < KEEP.jobs_s for one in left)
        assert len(left) == min(most, sum(NOW - one.ended_at < KEEP.jobs_s for one in theirs))
        with_runs = [one for one in left if one.id not in stripped]
        assert size is None or sum(runs[one.id] for one in with_runs) <= size
        if size is None:
            assert all((one.id in stripped) == (NOW - one.ended_at >= KEEP.runs_s) for one in left)


# --- for real ---


class Calendar(VirtualClock):
    """Days pass at once: the loops need not live through them."""

    passed_s = 0.0

    def now(self) -> float:
        return super().now() + self.passed_s


async def opened(folder: Path, run_s: float = 10.0) -> tuple[World, ControlPlane]:
    world = World.make(folder, nodes(1, 4), lambda _: Script(run_s=run_s))
    world.clock = Calendar()
    plane = await world.start()
    await plane.put_tenant("ada", actor="admin")
    return world, plane


async def finished(world: World, plane: ControlPlane, name: str = "job", **fields: object) -> str:
    record, _ = await plane.submit(manifest(name, **fields), tenant="ada", actor="ada", idempotency_key=name)
    for folder in (world.folder / "runs" / record.id / "1", world.folder / "checkpoints" / record.id):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(bytes(10_000))
    await world.until(lambda: plane.job(record.id).state.terminal)
    return record.id


async def later(world: World, days: float) -> None:
    assert isinstance(world.clock, Calendar)
    world.clock.passed_s += days * DAY_S


@pytest.mark.virtual_time
async def test_what_is_over_is_removed_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    world, plane = await opened(tmp_path)
    store = plane.store
    old = await finished(world, plane, "old")
    await later(world, 10)
    assert (await plane.garbage.collect()).runs == (old,)
    assert not (tmp_path / "runs" / old).exists()
    assert (tmp_path / "checkpoints" / old / "file").exists()
    assert plane.job(old).state is JobState.SUCCEEDED
    young = await finished(world, plane, "young")
    await later(world, 21)
    told = await plane.garbage.collect(dry_run=True)
    assert (told.jobs, told.runs) == ((old,), (young,))
    assert plane.job(old).state is JobState.SUCCEEDED
    done = await plane.garbage.collect()
    assert done == told
    assert done.events > 5
    assert done.freed_bytes >= 20_000
    assert store.job(old) is None
    assert store.attempts(old) == []
    assert store.events(job_id=old) == []
    assert store.job_by_key("ada", "old") is None
    assert not (tmp_path / "checkpoints" / old).exists()
    assert plane.job(young).state is JobState.SUCCEEDED
    assert len(store.attempts(young)) == 1
    (note,) = [event for event in store.events(limit=5000) if event.kind == "gc.removed" and "jobs" in event.data]
    assert note.data["jobs"] == [old]
    assert note.cause == "1 finished jobs were removed"
    again = await plane.garbage.collect()
    assert (again.jobs, again.runs, again.freed_bytes) == ((), (), 0)
    await world.restart()
    await world.kill()


@pytest.mark.virtual_time
async def test_what_cannot_be_removed_is_told_and_keeps_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, plane = await opened(tmp_path)
    stuck = await finished(world, plane, "stuck")
    other = await finished(world, plane, "other")
    await later(world, 40)
    remove = trees.remove
    monkeypatch.setattr(trees, "remove", lambda path: f"{path}: busy" if stuck in path else remove(path))
    done = await plane.garbage.collect()
    assert done.jobs == (other,)
    assert done.left == (f"{tmp_path}/runs/{stuck}: busy",)
    assert plane.job(stuck).state is JobState.SUCCEEDED
    monkeypatch.undo()
    assert (await plane.garbage.collect()).jobs == (stuck,)
    await world.kill()


@pytest.mark.virtual_time
async def test_kept_outputs_are_counted_and_removed(tmp_path: Path) -> None:
    world, plane = await opened(tmp_path)
    plane.garbage._retention = replace(KEEP, artifacts_s=5 * DAY_S)
    old, other = await finished(world, plane, "old"), await finished(world, plane, "other")
    await plane.garbage.collect()
    before = plane.garbage.usage["ada"]
    for one in (old, other):
        (tmp_path / "artifacts" / one).mkdir(parents=True)
        (tmp_path / "artifacts" / one / "model").write_bytes(bytes(20_000))
    await plane.garbage.collect()
    assert plane.garbage.usage["ada"] >= before + 40_000
    await later(world, 6)
    told = await plane.garbage.collect(dry_run=True)
    assert set(told.artifacts) == {old, other}
    assert (tmp_path / "artifacts" / old / "model").exists()
    assert await plane.garbage.collect() == told
    assert told.freed_bytes >= 40_000
    assert not any((tmp_path / "artifacts").iterdir())
    notes = [event for event in plane.store.events(limit=5000) if "artifacts" in event.data]
    assert [set(event.data["artifacts"]) for event in notes] == [{old, other}]
    (tmp_path / "artifacts" / old).mkdir()
    await later(world, 25)
    assert set((await plane.garbage.collect()).jobs) == {old, other}
    assert not (tmp_path / "artifacts" / old).exists()
    await world.kill()


@pytest.mark.virtual_time
async def test_nothing_live_is_removed_however_old_it_is(tmp_path: Path) -> None:
    world, plane = await opened(tmp_path, run_s=400 * DAY_S)
    running, _ = await plane.submit(manifest("running"), tenant="ada", actor="ada")
    suspended, _ = await plane.submit(manifest("suspended", resources={"accelerators": 5}), tenant="ada", actor="ada")
    await plane.suspend(suspended.id, actor="ada")
    await world.until(lambda: plane.job(running.id).state is JobState.RUNNING)
    await later(world, 300)
    before = plane.store.events(job_id=running.id)
    done = await plane.garbage.collect()
    assert (done.jobs, done.runs) == ((), ())
    assert await plane.store.remove_jobs([running.id, suspended.id], _note(plane)) == 0
    assert plane.store.events(job_id=running.id) == before
    assert plane.job(suspended.id).state is JobState.SUSPENDED
    await world.kill()


def _note(plane: ControlPlane) -> NewEvent:
    return NewEvent(plane.clock.now(), "gc.removed", "test")


@pytest.mark.virtual_time
async def test_old_events_of_nothing_live_go_and_the_newest_stays(tmp_path: Path) -> None:
    world, plane = await opened(tmp_path)
    store = plane.store
    last = store.last_seq()
    assert last > 1
    await later(world, 40)
    count = store.count_events(plane.clock.now())
    assert (await plane.garbage.collect(dry_run=True)).events == count == last - 1
    assert (await plane.garbage.collect()).events == last - 1
    assert [event.seq for event in store.events()] == [last]
    assert store.removed_seq() == last - 1
    await world.restart()
    assert world.store is not None
    assert min(event.seq for event in world.store.events()) == last
    check_history(world.store, world.cluster)
    await world.kill()


@pytest.mark.virtual_time
async def test_a_tenant_over_its_disk_quota_waits_until_something_is_removed(tmp_path: Path) -> None:
    world, plane = await opened(tmp_path)
    done = await finished(world, plane)
    await plane.put_tenant("ada", actor="admin", quota=Quota(disk_bytes=5000))
    await plane.garbage.collect()
    assert plane.garbage.usage["ada"] >= 20_000
    with pytest.raises(Overloaded, match="the files of tenant ada take"):
        await plane.submit(manifest("more"), tenant="ada", actor="ada")
    await later(world, 31)
    assert (await plane.garbage.collect()).jobs == (done,)
    await plane.garbage.collect()
    await plane.submit(manifest("more"), tenant="ada", actor="ada")
    await world.kill()


@pytest.mark.virtual_time
async def test_the_collector_comes_by_itself(tmp_path: Path) -> None:
    world, plane = await opened(tmp_path)
    done = await finished(world, plane)
    await later(world, 7)
    await asyncio.sleep(601)
    assert not (tmp_path / "runs" / done).exists()
    await world.kill()
