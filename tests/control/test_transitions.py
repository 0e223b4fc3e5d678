"""Each step of a job to the letter: the row, the event that people read later, and the attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from shoal.contract.lifecycle import Desired, ErrorCode, JobState, Outcome, Stop, check_step
from shoal.contract.records import AttemptRecord, Change, JobRecord, NewEvent, RankPlacement
from shoal.control.jobs import transitions
from shoal.control.jobs.transitions import AttemptEnd
from shoal.core import Conflict, Reason
from shoal.engine import Exit, GangStatus, Phase, RankStatus

from .test_lifecycle import Restart, job

NOW = 50.0
HERE = (RankPlacement(0, "n1", ("gpu-3",)), RankPlacement(1, "n0", ("gpu-0", "gpu-1")))
WHY = Reason("placed", "starts: 1 a100 on n1", {"tenant": "ada"})
DONE = GangStatus("j-1.1.run", Phase.ENDED, (RankStatus(0, Phase.ENDED, "n1", 7, 3.0, 20.0, Exit(0)),))


def running(**fields: object) -> JobRecord:
    return job(**{"state": JobState.RUNNING, "attempt": 2, "version": 7, **fields})


def attempt(**fields: object) -> AttemptRecord:
    return replace(AttemptRecord("j-1", 2, 4, HERE, 5.0, running_at=10.0), **fields)


def told(change: Change | None) -> list[tuple[object, ...]]:
    """Who did what and why, of each event; that it is this job's, and when, is the same for all."""
    assert change is not None
    assert (change.before.id, change.before.version < change.after.version) == ("j-1", True)
    for event in change.events:
        assert (event.at, event.tenant, event.job_id) == (NOW, "ada", "j-1")
        assert event.attempt == ((change.attempt.number if change.attempt else change.after.attempt) or None)
    return [(e.kind, e.actor, e.cause, e.old_state, e.new_state, dict(e.data)) for e in change.events]


def test_a_placed_job_is_claimed_in_the_same_step() -> None:
    waiting = job(version=3, queued_at=20.0, waited_s=4.0, attempt=1, reason={"code": "quota"})
    change = transitions.place(waiting, HERE, WHY, epoch=9, now=NOW, wait=None)
    assert told(change) == [
        ("job.state", "decider", WHY.text, JobState.QUEUED, JobState.ADMITTED, {"waited_s": 30.0}),
        ("job.state", "decider", "on n0, n1", JobState.ADMITTED, JobState.PLACED,
         {"ranks": [["n1", ["gpu-3"]], ["n0", ["gpu-0", "gpu-1"]]]}),
        ("job.state", "attempt-runner", "claimed", JobState.PLACED, JobState.STARTING, {"epoch": 9}),
    ]  # fmt: skip
    reason = {"code": "placed", "text": WHY.text, "facts": {"tenant": "ada"}}
    assert change.before is waiting
    assert change.after == waiting.evolve(
        state=JobState.STARTING, version=6, updated_at=NOW, attempt=2, reason=reason, waited_s=34.0, size=2,
        wait_cause={"code": "quota"},
    )  # fmt: skip
    assert change.attempt == AttemptRecord("j-1", 2, 9, HERE, NOW)
    room = Reason("room", "no room", {})
    last = transitions.place(waiting, HERE, WHY, epoch=9, now=10.0, wait=room).after
    assert (last.waited_s, last.wait_cause) == (4.0, room.as_json())  # a clock set back makes nobody wait


def test_only_a_job_that_waits_can_be_placed() -> None:
    with pytest.raises(Conflict, match="from RUNNING to ADMITTED") as refused:
        transitions.place(running(), HERE, WHY, epoch=1, now=NOW, wait=None)
    assert refused.value.where == "j-1"


def test_why_a_job_waits_is_noted_once_for_each_cause() -> None:
    change = transitions.note_wait(job(version=3), WHY, NOW)
    assert told(change) == [("job.waiting", "decider", WHY.text, None, None, {"reason": WHY.as_json()})]
    assert change is not None
    assert change.after == job(version=4, updated_at=NOW, reason=WHY.as_json())
    assert transitions.note_wait(change.after, WHY, 60.0) is None
    assert transitions.note_wait(change.after, Reason("other", "x", {}), 60.0) is not None
    assert transitions.note_wait(running(), WHY, NOW) is None


def test_a_new_server_takes_over_what_an_older_one_drove() -> None:
    change = transitions.adopt(running(), attempt(), epoch=5, now=NOW)
    assert told(change) == [("attempt.adopted", "attempt-runner", "taken over from epoch 4", None, None, {"epoch": 5})]
    assert change is not None
    assert change.after == running(version=8, updated_at=NOW)
    assert change.attempt == attempt(epoch=5)
    assert transitions.adopt(running(), attempt(), epoch=4, now=NOW) is None
    assert transitions.adopt(job(), attempt(), epoch=5, now=NOW) is None


def test_an_attempt_goes_forward_only() -> None:
    starting = running(state=JobState.STARTING)
    change = transitions.advance(starting, attempt(running_at=None), JobState.DOWNLOADING, NOW, "fetches")
    assert told(change) == [("job.state", "attempt-runner", "fetches", JobState.STARTING, JobState.DOWNLOADING, {})]
    assert change is not None
    assert change.after == starting.evolve(state=JobState.DOWNLOADING, version=8, updated_at=NOW)
    assert change.attempt == attempt(running_at=None)
    for state in (JobState.RUNNING, JobState.DOWNLOADING):
        assert transitions.advance(running(), attempt(), state, NOW, "again") is None
    assert transitions.advance(job(), attempt(), JobState.RUNNING, NOW, "up") is None


def test_a_job_runs_since_its_first_attempt_and_an_attempt_since_its_last_rank() -> None:
    starting = running(state=JobState.STARTING)
    change = transitions.advance(starting, attempt(running_at=None), JobState.RUNNING, NOW, "up")
    assert change is not None
    assert change.attempt is not None
    assert (change.after.started_at, change.attempt.running_at, change.attempt.ranks) == (NOW, NOW, ())
    ranks = (RankStatus(0, Phase.RUNNING, "", 7, 6.0), RankStatus(1, Phase.RUNNING, "", 8, 8.0))
    status = GangStatus("j-1.2.run", Phase.RUNNING, ranks)
    change = transitions.advance(starting.evolve(started_at=1.0), attempt(), JobState.RUNNING, NOW, "up", status)
    assert change is not None
    assert change.attempt is not None
    assert (change.after.started_at, change.attempt.running_at) == (1.0, 8.0)
    assert [rank["node"] for rank in change.attempt.ranks] == ["n1", "n0"]
    silent = replace(status, ranks=tuple(replace(rank, started_at=None) for rank in ranks))
    change = transitions.advance(starting, attempt(), JobState.RUNNING, NOW, "up", silent)
    assert change is not None
    assert change.after.started_at == NOW
    early = replace(status, ranks=(replace(ranks[0], started_at=2.0),))
    change = transitions.advance(starting, attempt(), JobState.RUNNING, NOW, "up", early)
    assert change is not None
    assert change.after.started_at == 5.0
    assert change.events[0].cause == "up; the clock was changed: 2.000 cannot be, 5.000 was taken"


@pytest.mark.parametrize("told", [9.9991, 10.0009])
def test_a_rounded_time_is_no_changed_clock(told: float) -> None:
    after, now = (10.0, 20.0) if told < 10.0 else (0.0, 10.0)
    assert transitions.possible(told, after, now) == (10.0, "")
    assert transitions.possible(told + (told - 10.0), after, now)[1].startswith("; the clock was changed: ")


@pytest.mark.parametrize(
    ("had", "new", "taken"),
    [
        (None, Stop.PREEMPT, True),
        (Stop.PREEMPT, Stop.PREEMPT, False),
        (Stop.PREEMPT, Stop.DEADLINE, True),
        (Stop.MAX_RUNTIME, Stop.DEADLINE, False),
        (Stop.DEADLINE, Stop.MAX_RUNTIME, False),
        (Stop.MAX_RUNTIME, Stop.PREEMPT, False),
        (Stop.DEADLINE, Stop.SUSPEND, True),
        (Stop.SUSPEND, Stop.DEADLINE, False),
        (Stop.SUSPEND, Stop.CANCEL, True),
        (Stop.CANCEL, Stop.SUSPEND, False),
    ],
)
def test_a_tenants_wish_beats_the_platforms_and_a_cancel_beats_all(had: Stop | None, new: Stop, taken: bool) -> None:
    change = transitions.request_stop(running(), attempt(stop=had), new, now=NOW, actor="ada", cause="enough")
    assert (change is not None) == taken
    if change is None:
        return
    assert told(change) == [(f"job.{new}-requested", "ada", "enough", None, None, {})]
    desired = {Stop.CANCEL: Desired.CANCEL, Stop.SUSPEND: Desired.SUSPEND}.get(new, Desired.RUN)
    assert change.after == running(version=8, updated_at=NOW, desired=desired)
    assert change.attempt == attempt(stop=new, stop_at=NOW, stop_cause="enough")


def test_what_does_not_run_or_has_ended_is_not_asked_to_stop() -> None:
    for one, theirs in ((job(), attempt()), (running(), attempt(outcome=Outcome.FAILED))):
        assert transitions.request_stop(one, theirs, Stop.CANCEL, now=NOW, actor="ada", cause="enough") is None


def test_a_deadline_is_late_when_it_has_come() -> None:
    assert transitions.stop_late(running(deadline_at=None), attempt(), NOW) is None
    assert transitions.stop_late(running(deadline_at=50.001), attempt(), NOW) is None
    change = transitions.stop_late(running(deadline_at=50.0), attempt(), NOW)
    cause = "its deadline passed before it was launched"
    assert told(change) == [("job.deadline-requested", "attempt-runner", cause, None, None, {})]
    assert change is not None
    assert change.attempt == attempt(stop=Stop.DEADLINE, stop_at=NOW, stop_cause=cause)
    change = transitions.expire(job(version=3), NOW, "decider")
    cause = "its deadline passed while it waited"
    data = {"error_code": ErrorCode.DEADLINE}
    assert told(change) == [("job.state", "decider", cause, JobState.QUEUED, JobState.FAILED, data)]
    assert change.after == job(
        state=JobState.FAILED, version=4, updated_at=NOW, ended_at=NOW, error_code=ErrorCode.DEADLINE, message=cause
    )


Wish = Callable[[JobRecord, AttemptRecord | None, float, str, str], Change | None]


@pytest.mark.parametrize(
    ("wish", "state", "desired", "stop", "ended_at"),
    [
        (transitions.cancel, JobState.CANCELLED, Desired.CANCEL, Stop.CANCEL, NOW),
        (transitions.suspend, JobState.SUSPENDED, Desired.SUSPEND, Stop.SUSPEND, None),
    ],
)
def test_a_wish_is_fulfilled_at_once_where_nothing_runs(
    wish: Wish, state: JobState, desired: Desired, stop: Stop, ended_at: float | None
) -> None:
    for theirs in (None, attempt(number=0)):
        waiting = job(version=3)
        change = wish(waiting, theirs, NOW, "ada", "enough")
        assert told(change) == [("job.state", "ada", "enough", JobState.QUEUED, state, {})]
        assert change is not None
        assert change.after == job(
            state=state, version=4, updated_at=NOW, desired=desired, ended_at=ended_at, message="enough"
        )
        assert change.attempt is None
    change = wish(running(), attempt(), NOW, "ada", "enough")
    assert told(change) == [(f"job.{stop}-requested", "ada", "enough", None, None, {})]
    assert change is not None
    assert change.attempt == attempt(stop=stop, stop_at=NOW, stop_cause="enough")


def test_a_job_that_was_suspended_waits_anew() -> None:
    suspended = job(
        state=JobState.SUSPENDED, version=3, desired=Desired.SUSPEND, reason={"code": "x"}, message="suspended"
    )
    change = transitions.resume(suspended, NOW, "ada", "go on")
    assert told(change) == [("job.state", "ada", "go on", JobState.SUSPENDED, JobState.QUEUED, {})]
    assert change.after == job(version=4, updated_at=NOW, queued_at=NOW)
    for desired, hint in ((Desired.SUSPEND, "wait until it is SUSPENDED"), (Desired.RUN, "see `shoal show`")):
        with pytest.raises(Conflict, match="only a suspended job can be resumed, this one is RUNNING") as refused:
            transitions.resume(running(desired=desired), NOW, "ada", "go on")
        assert (refused.value.where, refused.value.hint) == ("j-1", hint)


def test_a_job_that_is_over_says_how_to_run_it_again() -> None:
    refusal = transitions.JobOver(job(state=JobState.FAILED))
    assert (str(refusal).split(" (")[0], refusal.where) == ("j-1: the job is over: FAILED", "j-1")
    assert refusal.hint == "submit it again to run it again"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"state": JobState.RUNNING, "attempt": 1}, "does not wait: it is RUNNING"),
        ({"state": JobState.RUNNING, "attempt": 2}, "does not wait: it is RUNNING (attempt 2)"),
        ({"state": JobState.FAILED, "attempt": 2, "message": "died"}, "FAILED (attempt 2): died"),
        ({"state": JobState.SUSPENDED, "message": "later"}, "SUSPENDED: later"),
        ({"state": JobState.SUCCEEDED, "attempt": 1}, "SUCCEEDED"),
    ],
)
def test_where_a_job_is_in_a_sentence(fields: dict[str, object], said: str) -> None:
    assert transitions.describe(job(**fields)) == said


# --- ends


def ended(stop: Stop | None = None, code: ErrorCode | None = None, **fields: object) -> Change:
    theirs = attempt(stop=stop, stop_cause="so it was wished") if stop else attempt()
    return transitions.conclude(running(**fields), theirs, AttemptEnd(code, "died", ended_at=16.0), Restart(0), now=NOW)


def test_the_end_of_a_finished_job() -> None:
    facts = ({"rank": 0},)
    end = AttemptEnd(None, ranks=facts, ended_at=16.0)
    change = transitions.conclude(running(ran_s=3.0, reason={"code": "x"}), attempt(), end, Restart(0), now=NOW)
    data = {"outcome": Outcome.SUCCEEDED, "error_code": None, "ran_s": 6.0}
    assert told(change) == [("job.state", "attempt-runner", "done", JobState.RUNNING, JobState.SUCCEEDED, data)]
    assert change.after == running(
        state=JobState.SUCCEEDED, version=8, updated_at=NOW, ran_s=9.0, message="done", ended_at=16.0,
        reason={"code": "x"},
    )  # fmt: skip
    assert change.attempt == attempt(ended_at=16.0, outcome=Outcome.SUCCEEDED, message="done", ranks=facts)


def test_a_failed_attempt_waits_for_its_next_one() -> None:
    """Seconds to wait and retries used up are said, and counted by whose fault it was."""
    broken = AttemptEnd(ErrorCode.EXIT, "died", ended_at=16.0)
    once = running(retries={"user": 1, "platform": 3}, reason={"code": "x"}, queued_at=2.0)
    change = transitions.conclude(once, attempt(ranks=({"rank": 0},)), broken, Restart(2), now=NOW)
    cause = "died; tried again in 2 s (retry 2 of 2)"
    data = {"outcome": Outcome.FAILED, "error_code": ErrorCode.EXIT, "ran_s": 6.0}
    assert told(change) == [("job.state", "attempt-runner", cause, JobState.RUNNING, JobState.QUEUED, data)]
    assert change.after == running(
        state=JobState.QUEUED, version=8, updated_at=NOW, ran_s=6.0, message=cause, queued_at=16.0, not_before=52.0,
        retries={"user": 2, "platform": 3},
    )  # fmt: skip
    assert change.attempt == attempt(
        ended_at=16.0, outcome=Outcome.FAILED, error_code=ErrorCode.EXIT, message=cause, ranks=({"rank": 0},)
    )
    last = transitions.conclude(once.evolve(retries={"user": 2}), attempt(), broken, Restart(2), now=NOW).after
    assert (last.state, last.error_code, last.not_before, last.queued_at) == (JobState.FAILED, ErrorCode.EXIT, 0.0, 2.0)
    assert (last.message, last.ended_at, last.reason) == ("died", 16.0, {"code": "x"})


class Forgiving(Restart):
    endless = True

    def forgives(self, ran_s: float) -> bool:
        return ran_s >= 6.0


def test_a_replica_that_ran_well_for_long_starts_to_count_anew() -> None:
    for ended_at, retries in ((16.0, {"user": 1}), (15.0, {"user": 3})):
        end = AttemptEnd(None, ended_at=ended_at)
        change = transitions.conclude(running(retries={"user": 2}), attempt(), end, Forgiving(5), now=NOW)
        assert (change.after.state, change.after.retries) == (JobState.QUEUED, retries)
        assert change.after.message.startswith("it ended by itself; tried again in ")
        assert change.after.message.endswith(f"(retry {retries['user']})")


def test_an_attempt_that_ended_before_its_beginning_was_written_down_is_written_down_as_one_change() -> None:
    starting = running(state=JobState.STARTING)
    end = AttemptEnd(None, "done", started_at=12.0, ended_at=16.0, begun=replace(DONE, phase=Phase.RUNNING))
    fresh = attempt(running_at=None)
    change = transitions.conclude(starting, fresh, end, Restart(0), now=NOW)
    begun = transitions.advance(starting, fresh, JobState.RUNNING, NOW, "all ranks started", end.begun)
    assert begun is not None
    assert begun.attempt is not None
    ended = transitions.conclude(begun.after, begun.attempt, replace(end, begun=None), Restart(0), now=NOW)
    assert change == replace(ended, before=starting, events=(*begun.events, *ended.events))
    assert [(event.old_state, event.new_state) for event in change.events] == [
        (JobState.STARTING, JobState.RUNNING), (JobState.RUNNING, JobState.SUCCEEDED)
    ]  # fmt: skip
    seen = transitions.conclude(running(), attempt(), end, Restart(0), now=NOW)
    assert seen == transitions.conclude(running(), attempt(), replace(end, begun=None), Restart(0), now=NOW)


def test_an_attempt_that_never_ran_ran_for_no_time() -> None:
    end = AttemptEnd(ErrorCode.LAUNCH, "no", ended_at=None)
    change = transitions.conclude(running(), attempt(running_at=None), end, Restart(0), now=NOW)
    assert (change.after.ran_s, change.after.ended_at) == (0.0, NOW)
    backwards = transitions.conclude(
        running(), attempt(), AttemptEnd(None, ended_at=16.0, idle_s=9.0), Restart(0), now=NOW
    )
    assert backwards.after.ran_s == 0.0


@pytest.mark.parametrize(
    ("stop", "code", "state", "outcome", "error"),
    [
        (Stop.CANCEL, None, JobState.CANCELLED, Outcome.CANCELLED, None),
        (Stop.SUSPEND, None, JobState.SUSPENDED, Outcome.SUSPENDED, None),
        (Stop.PREEMPT, None, JobState.QUEUED, Outcome.PREEMPTED, None),
        (Stop.MAX_RUNTIME, ErrorCode.MAX_RUNTIME, JobState.FAILED, Outcome.FAILED, ErrorCode.MAX_RUNTIME),
        (Stop.DEADLINE, ErrorCode.DEADLINE, JobState.FAILED, Outcome.FAILED, ErrorCode.DEADLINE),
    ],
)
def test_an_end_that_was_asked_for_has_the_cause_of_the_asking(
    stop: Stop, code: ErrorCode | None, state: JobState, outcome: Outcome, error: ErrorCode | None
) -> None:
    change = ended(stop, ErrorCode.SIGNAL)
    assert (change.after.state, change.after.error_code, change.after.message) == (state, error, "so it was wished")
    assert change.attempt is not None
    assert (change.attempt.outcome, change.attempt.error_code) == (outcome, error)
    assert change.events[0].data["error_code"] == error


@pytest.mark.parametrize(
    ("desired", "stop", "state", "said"),
    [
        (Desired.CANCEL, None, JobState.CANCELLED, "cancelled"),
        (Desired.SUSPEND, None, JobState.SUSPENDED, "suspended"),
        (Desired.CANCEL, Stop.SUSPEND, JobState.CANCELLED, "so it was wished"),
        (Desired.SUSPEND, Stop.PREEMPT, JobState.SUSPENDED, "so it was wished"),
        (Desired.RUN, None, JobState.FAILED, "died"),
    ],
)
def test_what_is_wished_meanwhile_counts_at_the_end(
    desired: Desired, stop: Stop | None, state: JobState, said: str
) -> None:
    after = ended(stop, ErrorCode.SIGNAL, desired=desired).after
    assert (after.state, after.message) == (state, said)
    preempted = transitions.conclude(
        running(), attempt(stop=Stop.PREEMPT), AttemptEnd(ErrorCode.SIGNAL), Restart(0), now=NOW
    ).after
    assert (preempted.message, preempted.retries, preempted.not_before) == ("preempted", {}, 0.0)


def test_a_launch_that_was_undone_is_no_lost_one() -> None:
    end = AttemptEnd(ErrorCode.NODE_LOST, "gone", rolled_back=True)
    for undone, outcome in ((end, Outcome.ROLLED_BACK), (replace(end, rolled_back=False), Outcome.LOST)):
        change = transitions.conclude(running(), attempt(), undone, Restart(0), now=NOW)
        assert change.attempt is not None
        assert change.attempt.outcome is outcome


# --- what ranks tell


def gang(*exits: Exit | None, node: str = "") -> GangStatus:
    ranks = (RankStatus(at, Phase.ENDED, node, 7 + at, 3.0, 20.0 + at, exit_) for at, exit_ in enumerate(exits))
    return GangStatus("j-1.2.run", Phase.ENDED, tuple(ranks))


def test_what_is_kept_of_a_rank() -> None:
    found = transitions.rank_facts(gang(Exit(3, stopped=True), Exit(signal=9, lost=True), None), HERE)
    first = {"rank": 0, "node": "n1", "devices": ["gpu-3"], "pid": 7, "started_at": 3.0, "ended_at": 20.0}
    second = {"rank": 1, "node": "n0", "devices": ["gpu-0", "gpu-1"], "pid": 8, "started_at": 3.0, "ended_at": 21.0}
    third = {"rank": 2, "node": "", "devices": [], "pid": 9, "started_at": 3.0, "ended_at": 22.0}
    assert found == (
        {**first, "exit_code": 3, "signal": None, "lost": False, "stopped": True},
        {**second, "exit_code": None, "signal": 9, "lost": True, "stopped": False},
        {**third, "exit_code": None, "signal": None, "lost": False, "stopped": False},
    )
    assert transitions.rank_facts(gang(Exit(0), node="n7"), HERE)[0]["node"] == "n7"


@pytest.mark.parametrize(
    ("exit_", "phase", "code", "message"),
    [
        (Exit(2), "run", ErrorCode.EXIT, "the process left with exit code 2"),
        (Exit(2, detail="raised ValueError"), "run", ErrorCode.EXIT, "the process raised ValueError"),
        (Exit(127, detail="not found: trian"), "run", ErrorCode.COMMAND_NOT_FOUND, "the process not found: trian"),
        (Exit(126, detail="may not be run"), "run", ErrorCode.COMMAND_NOT_FOUND, "the process may not be run"),
        (Exit(127), "run", ErrorCode.EXIT, "the process left with exit code 127"),
        (Exit(signal=11), "run", ErrorCode.SIGNAL, "the process was killed by signal 11"),
        (Exit(signal=9, oom=True), "run", ErrorCode.OUT_OF_MEMORY,
         "the process went over its memory limit and was killed"),
        (Exit(signal=9, limit="disk", detail="too much"), "run", ErrorCode.OVER_LIMIT,
         "the process was killed: too much"),
        (Exit(lost=True, detail="vanished"), "run", ErrorCode.RANK_LOST, "the process was lost: vanished"),
        (Exit(lost=True), "download", ErrorCode.RANK_LOST, "the process was lost"),
        (None, "run", ErrorCode.RANK_LOST, "the process was lost"),
        (Exit(1), "download", ErrorCode.INPUT, "inputs could not be fetched: left with exit code 1"),
        (Exit(1, detail="no such file"), "download", ErrorCode.INPUT, "inputs could not be fetched: no such file"),
        (Exit(signal=9), "store", ErrorCode.OUTPUT, "outputs could not be stored: killed by signal 9"),
        (Exit(1, detail="disk full"), "store", ErrorCode.OUTPUT, "outputs could not be stored: disk full"),
    ],
)  # fmt: skip
def test_why_a_stage_failed(exit_: Exit | None, phase: str, code: ErrorCode, message: str) -> None:
    status = gang(exit_)
    end = transitions.read_end(status, HERE, phase=phase)
    assert (end.code, end.message) == (code, message)
    assert end.ranks == transitions.rank_facts(status, HERE)
    assert (end.started_at, end.ended_at, end.rolled_back, end.idle_s) == (3.0, 20.0, False, 0.0)


def test_a_stage_whose_ranks_all_left_with_0_did_what_it_had_to() -> None:
    end = transitions.read_end(gang(Exit(0), Exit(0)), HERE, phase="run")
    assert (end.code, end.message) == (None, "")
    assert end.ranks == transitions.rank_facts(gang(Exit(0), Exit(0)), HERE)
    nothing = transitions.read_end(GangStatus("g", Phase.ENDED, ()), HERE, phase="run")
    assert (nothing.code, nothing.started_at, nothing.ended_at) == (None, None, None)


def test_the_culprit_is_the_first_bad_rank_that_was_not_asked_to_stop() -> None:
    def culprit(*exits: Exit | None) -> str:
        return transitions.read_end(gang(*exits), HERE, phase="run").message

    assert culprit(Exit(0), Exit(3), Exit(4)) == "rank 1 left with exit code 3"
    assert culprit(Exit(signal=15, stopped=True), Exit(3)) == "rank 1 left with exit code 3"
    late = gang(Exit(3), Exit(4))
    first, second = late.ranks
    status = replace(late, ranks=(first, replace(second, ended_at=19.0)))
    assert transitions.read_end(status, HERE, phase="run").message == "rank 1 left with exit code 4"
    status = replace(late, ranks=(second, replace(first, ended_at=21.0)))
    assert transitions.read_end(status, HERE, phase="run").message == "rank 0 left with exit code 3"
    status = replace(late, ranks=(replace(first, ended_at=0.5), replace(second, ended_at=None)))
    assert transitions.read_end(status, HERE, phase="run").message == "rank 1 left with exit code 4"


def test_a_gang_that_vanished_has_lost_the_ranks_whose_end_nobody_saw() -> None:
    seen = Exit(3)
    status = gang(seen, None)
    first, second = status.ranks
    status = replace(status, phase=Phase.RUNNING, ranks=(first, replace(second, phase=Phase.RUNNING)))
    found = transitions.lost(status)
    assert found.phase is Phase.ENDED
    assert [rank.exit for rank in found.ranks] == [seen, Exit(lost=True, detail="vanished")]
    assert [rank.phase for rank in found.ranks] == [Phase.ENDED, Phase.ENDED]


def test_a_failure_to_store_fails_finished_work_only() -> None:
    ran = AttemptEnd(None, "", started_at=3.0, ended_at=16.0)
    stored = AttemptEnd(ErrorCode.OUTPUT, "disk full", started_at=18.0, ended_at=21.0)
    assert transitions.with_store(ran, stored, finished=True) == replace(stored, idle_s=2.0)
    assert transitions.with_store(ran, stored, finished=False) == replace(ran, ended_at=21.0, idle_s=2.0)
    assert transitions.with_store(ran, replace(stored, code=None), finished=True) == replace(
        ran, ended_at=21.0, idle_s=2.0
    )
    unknown = replace(stored, code=None, started_at=None, ended_at=None)
    assert transitions.with_store(ran, unknown, finished=True) == ran
    assert transitions.with_store(replace(ran, ended_at=None), stored, finished=True) == stored
    assert transitions.with_store(ran, replace(stored, started_at=1.0), finished=True).idle_s == 0.0


def test_an_illegal_step_says_what_is_legal() -> None:
    with pytest.raises(Conflict) as refused:
        check_step(JobState.SUSPENDED, JobState.RUNNING, job_id="j-1")
    assert (refused.value.where, refused.value.hint) == ("j-1", "allowed: CANCELLED, QUEUED")
    with pytest.raises(Conflict) as refused:
        check_step(JobState.FAILED, JobState.QUEUED)
    assert (refused.value.where, refused.value.hint) == (None, "allowed: nothing: the state is final")


def test_the_event_of_a_job_that_was_never_tried_names_no_attempt() -> None:
    assert transitions.event(job(), NOW, "job.noted", "ada", "because", size=1) == NewEvent(
        at=NOW, kind="job.noted", actor="ada", cause="because", tenant="ada", job_id="j-1", attempt=None,
        data={"size": 1},
    )  # fmt: skip
    told = transitions.event(running(), NOW, "job.noted", "ada")
    assert (told.attempt, told.cause) == (2, "")
