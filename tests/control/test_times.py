"""Times are those of the ranks, not of the server that noticed them."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.contract.lifecycle import ErrorCode, JobState, Stop
from shoal.contract.records import AttemptRecord, RankPlacement
from shoal.control.attempts.phases import time_limits
from shoal.control.jobs import transitions
from shoal.control.jobs.transitions import AttemptEnd
from shoal.engine import Exit, GangStatus, Phase, RankStatus
from shoal.engine.simulated import Script, run

from .simulation import World, check_history, manifest, nodes
from .test_lifecycle import Restart, job

HERE = (RankPlacement(0, "n0"),)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    runs_s=st.floats(0.1, 60).map(lambda s: round(s, 3)), dies_after_s=st.floats(0, 70), away_s=st.floats(0, 300),
    outputs=st.booleans(),
)  # fmt: skip
def test_a_server_that_is_away_changes_no_run_time(
    runs_s: float, dies_after_s: float, away_s: float, outputs: bool
) -> None:
    async def main(folder: Path) -> None:
        world = World.make(folder, nodes(1, 4), lambda _: Script(run_s=runs_s))
        plane = await world.start()
        await plane.put_tenant("ada", actor="admin")
        asked = manifest("job", **({"outputs": [{"from": "a", "to": "/b"}]} if outputs else {}))
        record, _ = await plane.submit(asked, tenant="ada", actor="ada")
        await asyncio.sleep(dies_after_s)
        await world.kill()
        await asyncio.sleep(away_s)
        plane = await world.start()
        await world.until(lambda: plane.job(record.id).state.terminal)
        ended, store = plane.job(record.id), world.store
        assert store is not None
        (attempt,) = store.attempts(record.id)
        assert ended.state is JobState.SUCCEEDED
        assert ended.ran_s == pytest.approx(runs_s * (2 if outputs else 1), abs=1e-3)
        assert ended.started_at == attempt.running_at
        assert ended.ended_at == attempt.ended_at
        if not outputs:
            assert attempt.running_at is not None
            assert ended.ended_at == pytest.approx(attempt.running_at + runs_s, abs=1e-3)
        (told,) = [event.data["ran_s"] for event in store.events(job_id=record.id) if "ran_s" in event.data]
        assert told == ended.ran_s
        check_history(store, world.cluster)
        await world.kill()

    with tempfile.TemporaryDirectory() as folder:
        run(main(Path(folder)), start=1_700_000_000)


def test_a_job_that_may_run_ten_seconds_gets_them_though_the_server_was_away(tmp_path: Path) -> None:
    """The first attempt ran for 6 s, was noticed much later, and its checkpoint goes on: 4 s are left, not none."""

    async def main() -> None:
        scripts = iter((Script(run_s=6, code=1), Script(run_s=3.5)))
        world = World.make(tmp_path, nodes(1, 4), lambda _: next(scripts))
        plane = await world.start()
        await plane.put_tenant("ada", actor="admin")
        asked = manifest("job", max_runtime="10s", restart={"limits": {"user": 1}})
        record, _ = await plane.submit(asked, tenant="ada", actor="ada")
        await asyncio.sleep(1)
        await world.kill()
        await asyncio.sleep(100)
        plane = await world.start()
        await world.until(lambda: plane.job(record.id).state.terminal)
        assert plane.job(record.id).state is JobState.SUCCEEDED
        assert plane.job(record.id).ran_s == pytest.approx(9.5, abs=1e-3)
        await world.kill()

    run(main(), start=1_700_000_000)


def status(*spans: tuple[float | None, float | None]) -> GangStatus:
    ranks = (RankStatus(at, Phase.ENDED, "n0", 7, *span, Exit(0)) for at, span in enumerate(spans))
    return GangStatus("j-1.1.run", Phase.ENDED, tuple(ranks))


def test_a_gang_has_started_with_its_last_rank_and_ended_with_its_last_rank() -> None:
    end = transitions.read_end(status((3.0, 20.0), (4.0, 10.0)), HERE, phase="run")
    assert (end.started_at, end.ended_at) == (4.0, 20.0)
    placed = job(state=JobState.STARTING, attempt=1)
    change = transitions.advance(
        placed, AttemptRecord("j-1", 1, 1, HERE, 0.0), JobState.RUNNING, 50.0, "up", status((3.0, 20.0), (4.0, 10.0))
    )
    assert change is not None
    assert change.attempt is not None
    assert (change.attempt.running_at, change.after.started_at) == (4.0, 4.0)


@pytest.mark.parametrize("limit", [Stop.MAX_RUNTIME, Stop.DEADLINE])
@pytest.mark.parametrize("polite", [True, False])
def test_a_run_that_its_supervisor_ended_in_time_failed_as_if_the_server_had_asked(limit: Stop, polite: bool) -> None:
    exit_ = Exit(
        code=0 if polite else None, signal=None if polite else 15, stopped=True, limit=limit, detail="too long"
    )
    gang = GangStatus("j-1.1.run", Phase.ENDED, (RankStatus(0, Phase.ENDED, "n0", 7, 3.0, 20.0, exit_),))
    end = transitions.read_end(gang, HERE, phase="run")
    begun = AttemptRecord("j-1", 1, 1, HERE, 0.0, running_at=3.0)
    change = transitions.conclude(job(state=JobState.RUNNING, attempt=1), begun, end, Restart(3), now=50.0)
    assert (change.after.state, change.after.error_code) == (JobState.FAILED, ErrorCode[limit.name])
    assert (change.after.message, change.after.ran_s) == ("too long", 17.0)


def test_what_a_supervisor_is_told_of_time_is_what_is_left_of_it() -> None:
    asked = manifest("job", max_runtime="10s")
    limits = time_limits(job(ran_s=4.0, deadline_at=99.0), asked)
    assert [(each.name, each.after_s, each.at) for each in limits] == [
        ("max-runtime", 6.0, None), ("deadline", None, 99.0),
    ]  # fmt: skip
    assert [each.after_s for each in time_limits(job(ran_s=14.0), asked)] == [0.0]
    assert time_limits(job(), manifest("job")) == ()


def test_the_end_of_a_gang_with_a_vanished_rank_is_when_that_was_noticed() -> None:
    assert transitions.read_end(status((3.0, 20.0), (4.0, None)), HERE, phase="run").ended_at is None


@pytest.mark.parametrize(
    ("running_at", "ended_at", "ran_s", "taken"),
    [
        (10.0, 16.0, 6.0, 16.0),
        (10.0, None, 90.0, 100.0),
        (10.0, 4.0, 0.0, 10.0),  # the clock was set back while it ran
        (10.0, 500.0, 90.0, 100.0),  # another machine's clock, or one set back since
        (150.0, 160.0, 0.0, 150.0),
        (10.0, 100.0009, 90.0, 100.0),  # rounding is no changed clock
    ],
)
def test_a_time_that_cannot_be_is_kept_within_what_can(
    running_at: float, ended_at: float | None, ran_s: float, taken: float
) -> None:
    attempt = AttemptRecord("j-1", 1, 1, HERE, 0.0, running_at=running_at)
    end = AttemptEnd(ErrorCode.EXIT, "left with exit code 1", ended_at=ended_at)
    change = transitions.conclude(job(state=JobState.RUNNING, attempt=1), attempt, end, Restart(0), now=100.0)
    assert change.attempt is not None
    assert (change.after.ran_s, change.after.ended_at, change.attempt.ended_at) == (ran_s, taken, taken)
    changed = ended_at is not None and abs(ended_at - taken) > 0.001
    assert ("; the clock was changed: " in change.after.message) == changed
    assert (f"{taken:.3f} was taken" in change.after.message) == changed


def test_a_job_that_runs_again_waits_since_its_ranks_ended() -> None:
    attempt = AttemptRecord("j-1", 1, 1, HERE, 0.0, running_at=10.0, stop=Stop.PREEMPT)
    end = AttemptEnd(ErrorCode.SIGNAL, ended_at=16.0)
    change = transitions.conclude(job(state=JobState.RUNNING, attempt=1), attempt, end, Restart(0), now=100.0)
    assert (change.after.state, change.after.queued_at) == (JobState.QUEUED, 16.0)


def test_what_lies_between_the_run_and_the_storing_is_not_run_time() -> None:
    ran, stored = AttemptEnd(None, ended_at=16.0), AttemptEnd(None, started_at=90.0, ended_at=92.0)
    end = transitions.with_store(ran, stored, finished=True)
    attempt = AttemptRecord("j-1", 1, 1, HERE, 0.0, running_at=10.0)
    change = transitions.conclude(job(state=JobState.STORING, attempt=1), attempt, end, Restart(0), now=100.0)
    assert (change.after.ran_s, change.after.ended_at) == (8.0, 92.0)
    failed = replace(stored, code=ErrorCode.OUTPUT, ended_at=None)
    assert transitions.with_store(ran, failed, finished=True) == replace(failed, ended_at=16.0, idle_s=74.0)
    assert transitions.with_store(ran, failed, finished=False) == replace(ran, idle_s=74.0)
