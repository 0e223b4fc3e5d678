"""The table of transitions, and the steps that may only move along it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shoal.contract.lifecycle import (
    ACTIVE,
    TERMINAL,
    TRANSITIONS,
    Desired,
    ErrorCode,
    JobState,
    Outcome,
    Stop,
    check_step,
)
from shoal.contract.records import AttemptRecord, Change, JobRecord, RankPlacement
from shoal.control.jobs import transitions
from shoal.control.jobs.transitions import AttemptEnd
from shoal.core import Conflict, Fault, PriorityClass, Reason, Resources


def job(**fields: object) -> JobRecord:
    base = JobRecord(
        id="j-1", tenant="ada", name="train", state=JobState.QUEUED, version=1, manifest="{}", resources=Resources(),
        ranks=1, priority_class=PriorityClass.BEST_EFFORT, priority=0, submitted_at=0.0, updated_at=0.0,
    )  # fmt: skip
    return base.evolve(**fields)


class Restart:
    endless = False

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def forgives(self, ran_s: float) -> bool:
        return False

    def retry_limit(self, fault: Fault) -> int:
        return self.limit

    def backoff_s(self, retry: int) -> float:
        return float(retry)


HERE = (RankPlacement(0, "n0", ("n0-0",)),)


def test_every_state_is_reachable_and_every_dead_end_is_final() -> None:
    seen, frontier = {JobState.QUEUED}, [JobState.QUEUED]
    while frontier:
        for following in TRANSITIONS[frontier.pop()]:
            if following not in seen:
                seen.add(following)
                frontier.append(following)
    assert seen == set(JobState)
    assert {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED} == TERMINAL
    assert not ACTIVE & TERMINAL


def test_from_every_state_that_is_not_final_a_job_can_still_be_cancelled() -> None:
    for state, following in TRANSITIONS.items():
        assert state.terminal or JobState.CANCELLED in following


@given(st.sampled_from(JobState), st.sampled_from(JobState))
def test_check_step_agrees_with_the_table(old: JobState, new: JobState) -> None:
    if new in TRANSITIONS[old]:
        check_step(old, new)
    else:
        with pytest.raises(Conflict, match=f"{old} to {new}"):
            check_step(old, new, job_id="j-1")


@pytest.mark.parametrize("code", list(ErrorCode))
def test_an_error_code_says_whose_fault_it_is(code: ErrorCode) -> None:
    assert code.fault.value[0].upper() == code.value[0]


@pytest.mark.parametrize(
    ("stop", "end", "hooks", "outcome", "state"),
    [
        (None, AttemptEnd(None), False, Outcome.SUCCEEDED, JobState.SUCCEEDED),
        (None, AttemptEnd(ErrorCode.EXIT), False, Outcome.FAILED, JobState.FAILED),
        (None, AttemptEnd(ErrorCode.RANK_LOST), False, Outcome.LOST, JobState.FAILED),
        (None, AttemptEnd(ErrorCode.LAUNCH, rolled_back=True), False, Outcome.ROLLED_BACK, JobState.FAILED),
        (Stop.PREEMPT, AttemptEnd(ErrorCode.SIGNAL), False, Outcome.PREEMPTED, JobState.QUEUED),
        (Stop.SUSPEND, AttemptEnd(ErrorCode.EXIT), True, Outcome.SUSPENDED, JobState.SUSPENDED),
        (Stop.CANCEL, AttemptEnd(ErrorCode.SIGNAL), False, Outcome.CANCELLED, JobState.CANCELLED),
        (Stop.MAX_RUNTIME, AttemptEnd(ErrorCode.SIGNAL), False, Outcome.FAILED, JobState.FAILED),
        # It had finished before anybody asked.
        (Stop.PREEMPT, AttemptEnd(None, ranks=({"stopped": False},)), False, Outcome.SUCCEEDED, JobState.SUCCEEDED),
        # A polite signal handler that leaves with 0 is no proof of finished work ...
        (Stop.PREEMPT, AttemptEnd(None, ranks=({"stopped": True},)), False, Outcome.PREEMPTED, JobState.QUEUED),
        # ... unless the script uses the training hooks, which leave with another code when they only obeyed.
        (Stop.PREEMPT, AttemptEnd(None, ranks=({"stopped": True},)), True, Outcome.SUCCEEDED, JobState.SUCCEEDED),
        (Stop.CANCEL, AttemptEnd(None, ranks=({"stopped": True},)), True, Outcome.CANCELLED, JobState.CANCELLED),
    ],
)
def test_the_verdict_on_an_attempt(
    stop: Stop | None, end: AttemptEnd, hooks: bool, outcome: Outcome, state: JobState
) -> None:
    running = job(state=JobState.RUNNING, attempt=1, progress={"hooks": True} if hooks else {})
    attempt = AttemptRecord("j-1", 1, 1, HERE, 0.0, running_at=1.0, stop=stop)
    change = transitions.conclude(running, attempt, end, Restart(0), now=5.0)
    assert change.after.state is state
    assert change.attempt is not None
    assert change.attempt.outcome is outcome
    assert change.after.ran_s == 4.0


@given(st.integers(0, 5), st.sampled_from([ErrorCode.EXIT, ErrorCode.LAUNCH, ErrorCode.RANK_LOST]))
def test_an_attempt_is_retried_exactly_as_often_as_allowed(limit: int, code: ErrorCode) -> None:
    current, tries = job(state=JobState.RUNNING, attempt=1), 0
    while True:
        attempt = AttemptRecord("j-1", 1, 1, HERE, 0.0)
        current = transitions.conclude(current, attempt, AttemptEnd(code), Restart(limit), now=10.0).after
        if current.state is JobState.FAILED:
            break
        tries += 1
        assert current.not_before == 10.0 + tries
        current = current.evolve(state=JobState.RUNNING)
    assert tries == limit
    assert current.error_code is code


class JobMachine(RuleBasedStateMachine):
    """Any order of decisions, wishes and ends: each job stays on the table, and its version only grows."""

    def __init__(self) -> None:
        super().__init__()
        self.job = job()
        self.attempt: AttemptRecord | None = None
        self.now = 0.0

    def follow(self, change: Change | None) -> None:
        if change is None:
            return
        assert change.before is self.job
        assert change.after.version > self.job.version
        state: str = self.job.state
        for event in change.events:
            if event.kind == "job.state":
                assert event.old_state == state
                assert event.new_state in TRANSITIONS[JobState(state)]
                state = str(event.new_state)
        assert state == change.after.state
        assert change.events
        self.job = change.after
        self.attempt = change.attempt or self.attempt

    def tick(self) -> float:
        self.now += 1.0
        return self.now

    @precondition(lambda self: self.job.state is JobState.QUEUED)
    @rule()
    def place(self) -> None:
        self.follow(transitions.place(self.job, HERE, Reason("free", "room"), epoch=1, now=self.tick(), wait=None))

    @precondition(lambda self: self.job.state.active)
    @rule(epoch=st.integers(1, 3))
    def adopt(self, epoch: int) -> None:
        assert self.attempt is not None
        self.follow(transitions.adopt(self.job, self.attempt, epoch=epoch, now=self.tick()))

    @precondition(lambda self: self.job.state.active)
    @rule(state=st.sampled_from([JobState.DOWNLOADING, JobState.RUNNING]))
    def advance(self, state: JobState) -> None:
        assert self.attempt is not None
        self.follow(transitions.advance(self.job, self.attempt, state, self.tick(), "on"))

    @precondition(lambda self: self.job.state in (JobState.RUNNING, JobState.CHECKPOINTING))
    @rule(state=st.sampled_from([JobState.CHECKPOINTING, JobState.STORING]))
    def wind_down(self, state: JobState) -> None:
        assert self.attempt is not None
        self.follow(transitions.advance(self.job, self.attempt, state, self.tick(), "on"))

    @precondition(lambda self: self.job.state.active)
    @rule(stop=st.sampled_from(Stop))
    def stop(self, stop: Stop) -> None:
        assert self.attempt is not None
        before = self.attempt.stop
        self.follow(transitions.request_stop(self.job, self.attempt, stop, now=self.tick(), actor="x", cause="y"))
        if before is Stop.CANCEL:
            assert self.attempt.stop is Stop.CANCEL

    @precondition(lambda self: self.job.state.active)
    @rule(code=st.sampled_from([None, *ErrorCode]), limit=st.integers(0, 2))
    def end(self, code: ErrorCode | None, limit: int) -> None:
        assert self.attempt is not None
        if code is None and self.job.state not in (JobState.RUNNING, JobState.CHECKPOINTING, JobState.STORING):
            return
        wanted = self.job.desired
        self.follow(transitions.conclude(self.job, self.attempt, AttemptEnd(code), Restart(limit), now=self.tick()))
        if wanted is Desired.CANCEL and code is not None:
            assert self.job.state is JobState.CANCELLED

    @precondition(lambda self: self.job.state in (JobState.QUEUED, JobState.SUSPENDED))
    @rule()
    def cancel(self) -> None:
        self.follow(transitions.cancel_waiting(self.job, self.tick(), "x", "y"))

    @precondition(lambda self: self.job.state is JobState.QUEUED)
    @rule()
    def suspend(self) -> None:
        self.follow(transitions.suspend_waiting(self.job, self.tick(), "x", "y"))

    @precondition(lambda self: self.job.state is JobState.SUSPENDED)
    @rule()
    def resume(self) -> None:
        self.follow(transitions.resume(self.job, self.tick(), "x", "y"))

    @precondition(lambda self: self.job.state.terminal)
    @rule()
    def nothing_leaves_a_final_state(self) -> None:
        with pytest.raises(Conflict):
            transitions.cancel_waiting(self.job, self.tick(), "x", "y")
        with pytest.raises(Conflict):
            transitions.resume(self.job, self.tick(), "x", "y")
        self.__init__()

    @invariant()
    def an_active_job_has_an_open_attempt(self) -> None:
        if self.job.state.active:
            assert self.attempt is not None
            assert self.attempt.outcome is None
            assert self.attempt.number == self.job.attempt
        elif self.attempt is not None:
            assert self.attempt.outcome is not None


TestJobMachine = JobMachine.TestCase
