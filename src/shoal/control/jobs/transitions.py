"""Each way a job can move, as a pure function from its rows to a `Change`: the decide part of the attempt runner.

Nothing here reads a clock or does input or output; the same functions serve the live server and the simulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from shoal.contract.events import EventKind, stop_requested
from shoal.contract.lifecycle import TERMINAL, Desired, ErrorCode, JobState, Outcome, Stop, check_step
from shoal.contract.records import AttemptRecord, Change, JobRecord, NewEvent, RankPlacement
from shoal.core import Conflict, Fault, Reason
from shoal.engine import Exit, GangStatus, Phase

ORDER = {state: position for position, state in enumerate(JobState)}
"""How far along a state is: an attempt only ever moves to a later one."""


CLOCK_TOLERANCE_S = 0.001
"""Records round their times; a difference up to this is no changed clock."""


class RestartPolicy(Protocol):
    """How often a job is tried again, by whose fault its attempt failed (a manifest is one)."""

    @property
    def endless(self) -> bool:
        """Whether the job is to run until it is asked to end, so that every other end is a failure."""
        ...

    def retry_limit(self, fault: Fault) -> float: ...

    def forgives(self, ran_s: float) -> bool:
        """Whether an attempt that ran so long makes up for the failures before it."""
        ...

    def backoff_s(self, retry: int) -> float:
        """How long to wait before this retry (1: the first)."""
        ...


STARTED = "all ranks started"


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """What was seen of an attempt's end. `code` None means that it did all it had to. The times are the ranks' own;
    None: not known. `idle_s` passed between its phases, while no process of it was there. `begun` is the gang if its
    beginning was not written down before its end was seen."""

    code: ErrorCode | None
    message: str = ""
    ranks: tuple[Mapping[str, Any], ...] = ()
    rolled_back: bool = False
    started_at: float | None = None
    ended_at: float | None = None
    idle_s: float = 0.0
    begun: GangStatus | None = None


def event(job: JobRecord, now: float, kind: str, actor: str, cause: str = "", **data: Any) -> NewEvent:
    return NewEvent(
        at=now, kind=kind, actor=actor, cause=cause, tenant=job.tenant, job_id=job.id, attempt=job.attempt or None,
        data=data,
    )  # fmt: skip


def _state_event(job: JobRecord, new: JobState, now: float, actor: str, cause: str, **data: Any) -> NewEvent:
    """The event of one step; it belongs to the attempt that the row names."""
    check_step(job.state, new, job_id=job.id)
    return NewEvent(
        at=now, kind=EventKind.JOB_STATE, actor=actor, cause=cause, tenant=job.tenant, job_id=job.id,
        attempt=job.attempt or None, old_state=job.state, new_state=new, data=data,
    )  # fmt: skip


def _moved(job: JobRecord, new: JobState, now: float, **columns: Any) -> JobRecord:
    return job.evolve(state=new, version=job.version + 1, updated_at=now, **columns)


def place(
    job: JobRecord, placement: tuple[RankPlacement, ...], reason: Reason, *, epoch: int, now: float, wait: Reason | None
) -> Change:
    """QUEUED > ADMITTED > PLACED > STARTING: a new attempt, claimed by the server of this epoch in the transaction that
    makes it, so that no moment exists at which it has a place and no runner."""
    number = job.attempt + 1
    waited_s = max(0.0, now - job.queued_at)
    starting = job.evolve(
        state=JobState.STARTING, version=job.version + 3, updated_at=now, attempt=number, reason=reason.as_json(),
        size=len(placement),
        waited_s=job.waited_s + waited_s, wait_cause=wait.as_json() if wait is not None else job.reason,
    )  # fmt: skip

    def step(old: JobState, new: JobState, actor: str, cause: str, data: Mapping[str, Any]) -> NewEvent:
        check_step(old, new, job_id=job.id)
        return NewEvent(now, EventKind.JOB_STATE, actor, cause, job.tenant, job.id, number, old, new, data)

    nodes = ", ".join(sorted({rank.node for rank in placement}))
    ranks = [[rank.node, list(rank.devices)] for rank in placement]
    return Change(
        before=job,
        after=starting,
        events=(
            step(job.state, JobState.ADMITTED, "decider", reason.text, {"waited_s": waited_s}),
            step(JobState.ADMITTED, JobState.PLACED, "decider", f"on {nodes}", {"ranks": ranks}),
            step(JobState.PLACED, JobState.STARTING, "attempt-runner", "claimed", {"epoch": epoch}),
        ),
        attempt=AttemptRecord(job_id=job.id, number=number, epoch=epoch, placement=placement, created_at=now),
    )


def note_wait(job: JobRecord, reason: Reason, now: float) -> Change | None:
    """Record why a job waits, once for each new cause."""
    if job.state is not JobState.QUEUED or (job.reason or {}).get("code") == reason.code:
        return None
    after = job.evolve(version=job.version + 1, updated_at=now, reason=reason.as_json())
    return Change(
        job, after, (event(job, now, EventKind.JOB_WAITING, "decider", reason.text, reason=reason.as_json()),)
    )


def note_queue(job: JobRecord, reason: Reason, now: float, actor: str) -> Change | None:
    """Record why a job that was handed over to a cluster waits there, once for each new cause."""
    if job.state is not JobState.STARTING or (job.reason or {}).get("code") == reason.code:
        return None
    after = job.evolve(version=job.version + 1, updated_at=now, reason=reason.as_json())
    return Change(job, after, (event(job, now, EventKind.JOB_WAITING, actor, reason.text, reason=reason.as_json()),))


def adopt(job: JobRecord, attempt: AttemptRecord, *, epoch: int, now: float) -> Change | None:
    """After a restart, the attempt runner of the new epoch takes over an attempt that an earlier one drove."""
    if attempt.epoch == epoch or not job.state.active:
        return None
    cause = f"taken over from epoch {attempt.epoch}"
    return Change(
        before=job,
        after=job.evolve(version=job.version + 1, updated_at=now),
        events=(event(job, now, EventKind.ATTEMPT_ADOPTED, "attempt-runner", cause, epoch=epoch),),
        attempt=attempt.evolve(epoch=epoch),
    )


def advance(
    job: JobRecord, attempt: AttemptRecord, new: JobState, now: float, cause: str, status: GangStatus | None = None
) -> Change | None:
    """One step forward of an attempt; nothing when the job is already there or past it."""
    if not job.state.active or ORDER[job.state] >= ORDER[new]:
        return None
    running_at, remark = attempt.running_at, ""
    if new is JobState.RUNNING:
        told = max((rank.started_at for rank in status.ranks if rank.started_at), default=None) if status else None
        running_at, remark = possible(told, attempt.created_at, now)
    return Change(
        before=job,
        after=_moved(job, new, now, started_at=job.started_at or running_at),
        events=(_state_event(job, new, now, "attempt-runner", cause + remark),),
        attempt=attempt.evolve(
            running_at=running_at,
            ranks=rank_facts(status, attempt.placement) if status is not None else attempt.ranks,
        ),
    )


def possible(told: float | None, after: float, now: float) -> tuple[float, str]:
    """The time that ranks reported (now where none did), kept between `after` and now. Adds a remark where the time
    had to be changed: a clock was set, or another machine's clock is wrong."""
    taken = max(after, min(now, now if told is None else told))
    if told is None or abs(told - taken) <= CLOCK_TOLERANCE_S:
        return taken, ""
    return taken, f"; the clock was changed: {told:.3f} cannot be, {taken:.3f} was taken"


def request_stop(
    job: JobRecord, attempt: AttemptRecord, stop: Stop, *, now: float, actor: str, cause: str
) -> Change | None:
    """Write down that a running attempt shall end, and why, before anything is signalled.

    A tenant's wish (cancel, suspend) overrides the platform's (preempt, limits); a cancel overrides a suspend.
    """
    if not job.state.active or attempt.outcome is not None:
        return None
    if attempt.stop is not None and _STOP_RANK[attempt.stop] >= _STOP_RANK[stop]:
        return None
    desired = {Stop.CANCEL: Desired.CANCEL, Stop.SUSPEND: Desired.SUSPEND}.get(stop, job.desired)
    after = job.evolve(version=job.version + 1, updated_at=now, desired=desired)
    return Change(
        before=job,
        after=after,
        events=(event(job, now, stop_requested(stop), actor, cause),),
        attempt=attempt.evolve(stop=stop, stop_at=now, stop_cause=cause),
    )


_STOP_RANK = {
    Stop.PREEMPT: 0,
    Stop.MAX_RUNTIME: 1,
    Stop.DEADLINE: 1,
    Stop.NODE_LOST: 1,
    Stop.SUSPEND: 2,
    Stop.CANCEL: 3,
}


def stop_late(job: JobRecord, attempt: AttemptRecord, now: float) -> Change | None:
    """An attempt whose deadline passed before its next phase was launched is to end without it."""
    if not late(job, now):
        return None
    cause = "its deadline passed before it was launched"
    return request_stop(job, attempt, Stop.DEADLINE, now=now, actor="attempt-runner", cause=cause)


def cancel_waiting(job: JobRecord, now: float, actor: str, cause: str) -> Change:
    """QUEUED or SUSPENDED > CANCELLED: nothing runs, so nothing has to be stopped first."""
    return Change(
        before=job,
        after=_moved(job, JobState.CANCELLED, now, desired=Desired.CANCEL, ended_at=now, message=cause),
        events=(_state_event(job, JobState.CANCELLED, now, actor, cause),),
    )


def cancel(job: JobRecord, attempt: AttemptRecord | None, now: float, actor: str, cause: str) -> Change | None:
    """A job is to end: at once when it waits, else by stopping what runs."""
    if attempt is None or not job.state.active:
        return cancel_waiting(job, now, actor, cause)
    return request_stop(job, attempt, Stop.CANCEL, now=now, actor=actor, cause=cause)


def suspend(job: JobRecord, attempt: AttemptRecord | None, now: float, actor: str, cause: str) -> Change | None:
    """A job is to pause: at once when it waits, else by stopping what runs."""
    if attempt is None or not job.state.active:
        return suspend_waiting(job, now, actor, cause)
    return request_stop(job, attempt, Stop.SUSPEND, now=now, actor=actor, cause=cause)


def suspend_waiting(job: JobRecord, now: float, actor: str, cause: str) -> Change:
    return Change(
        before=job,
        after=_moved(job, JobState.SUSPENDED, now, desired=Desired.SUSPEND, message=cause),
        events=(_state_event(job, JobState.SUSPENDED, now, actor, cause),),
    )


def resume(job: JobRecord, now: float, actor: str, cause: str) -> Change:
    """SUSPENDED > QUEUED. Raises Conflict in every other state."""
    if job.state is not JobState.SUSPENDED:
        raise Conflict(
            f"only a suspended job can be resumed, this one is {job.state}", where=job.id,
            hint="wait until it is SUSPENDED" if job.desired is Desired.SUSPEND else "see `shoal show`",
        )  # fmt: skip
    return Change(
        before=job,
        after=_moved(job, JobState.QUEUED, now, desired=Desired.RUN, queued_at=now, reason=None, size=None, message=""),
        events=(_state_event(job, JobState.QUEUED, now, actor, cause),),
    )


def late(job: JobRecord, now: float) -> bool:
    """Whether the job's deadline has passed, so that nothing of it may be launched any more."""
    return job.deadline_at is not None and job.deadline_at <= now


def expire(job: JobRecord, now: float, actor: str) -> Change:
    """QUEUED > FAILED: its deadline passed while it waited."""
    cause = "its deadline passed while it waited"
    return Change(
        before=job,
        after=_moved(job, JobState.FAILED, now, ended_at=now, error_code=ErrorCode.DEADLINE, message=cause),
        events=(_state_event(job, JobState.FAILED, now, actor, cause, error_code=ErrorCode.DEADLINE),),
    )


def conclude(job: JobRecord, attempt: AttemptRecord, end: AttemptEnd, restart: RestartPolicy, *, now: float) -> Change:
    """The end of an attempt: its outcome, and where the job goes from here. `now` is when the end was noticed; what
    counts is when the ranks ended, which may be long before: the server may have been away."""
    if end.begun is not None:
        begun, rest = advance(job, attempt, JobState.RUNNING, now, STARTED, end.begun), replace(end, begun=None)
        if begun is None or begun.attempt is None:
            return conclude(job, attempt, rest, restart, now=now)
        then = conclude(begun.after, begun.attempt, rest, restart, now=now)
        return replace(then, before=job, events=(*begun.events, *then.events))
    outcome, new, code, cause = _verdict(job, attempt, end, restart)
    ended_at, remark = possible(end.ended_at, attempt.running_at or attempt.created_at, now)
    cause += remark
    ran = max(0.0, ended_at - attempt.running_at - end.idle_s) if attempt.running_at is not None else 0.0
    retries = {} if restart.forgives(ran) else dict(job.retries)
    not_before = 0.0
    if new is JobState.QUEUED and code is not None:
        retry = retries[code.fault.value] = retries.get(code.fault, 0) + 1
        delay_s = restart.backoff_s(retry)
        not_before = now + delay_s
        limit = "" if restart.endless else f" of {restart.retry_limit(code.fault):g}"
        cause = f"{cause}; tried again in {delay_s:g} s (retry {retry}{limit})"
    after = _moved(
        job, new, now, retries=retries, not_before=not_before, ran_s=job.ran_s + ran, message=cause,
        error_code=code if new is JobState.FAILED else None,
        queued_at=ended_at if new is JobState.QUEUED else job.queued_at,
        reason=None if new is JobState.QUEUED else job.reason,
        size=None if new is JobState.QUEUED else job.size,
        ended_at=ended_at if new in TERMINAL else None,
    )  # fmt: skip
    return Change(
        before=job,
        after=after,
        events=(_state_event(job, new, now, "attempt-runner", cause, outcome=outcome, error_code=code, ran_s=ran),),
        attempt=attempt.evolve(
            ended_at=ended_at, outcome=outcome, error_code=code, message=cause, ranks=end.ranks or attempt.ranks
        ),
    )


def _verdict(
    job: JobRecord, attempt: AttemptRecord, end: AttemptEnd, restart: RestartPolicy
) -> tuple[Outcome, JobState, ErrorCode | None, str]:
    if end.code is None and not restart.endless and not left_early(job, attempt, end):
        return Outcome.SUCCEEDED, JobState.SUCCEEDED, None, "done"
    if attempt.stop is Stop.CANCEL or job.desired is Desired.CANCEL:
        return Outcome.CANCELLED, JobState.CANCELLED, None, attempt.stop_cause or "cancelled"
    if attempt.stop is Stop.SUSPEND or job.desired is Desired.SUSPEND:
        return Outcome.SUSPENDED, JobState.SUSPENDED, None, attempt.stop_cause or "suspended"
    if attempt.stop is Stop.PREEMPT:
        return Outcome.PREEMPTED, JobState.QUEUED, None, attempt.stop_cause or "preempted"
    if end.code in _TIME_IS_OVER.values():
        return Outcome.FAILED, JobState.FAILED, end.code, end.message
    if attempt.stop is Stop.MAX_RUNTIME:
        return Outcome.FAILED, JobState.FAILED, ErrorCode.MAX_RUNTIME, attempt.stop_cause
    if attempt.stop is Stop.DEADLINE:
        return Outcome.FAILED, JobState.FAILED, ErrorCode.DEADLINE, attempt.stop_cause
    code, message = end.code or ErrorCode.EXIT, end.message
    if attempt.stop is Stop.NODE_LOST:
        code, message = ErrorCode.NODE_LOST, attempt.stop_cause
    if end.rolled_back:
        outcome = Outcome.ROLLED_BACK
    else:
        outcome = Outcome.LOST if code.fault is Fault.INFRASTRUCTURE else Outcome.FAILED
    may_retry = job.retries.get(code.fault, 0) < restart.retry_limit(code.fault)
    return outcome, JobState.QUEUED if may_retry else JobState.FAILED, code, message or "it ended by itself"


def left_early(job: JobRecord, attempt: AttemptRecord, end: AttemptEnd) -> bool:
    """Whether an exit code of 0 means "I obeyed the signal" rather than "I finished".

    A script that uses the training hooks says with its exit code which it was. Any other that could answer the stop
    (`Exit.stopped`) may just have a polite signal handler: work is never called done on such evidence.
    """
    if attempt.stop is None or not any(rank.get("stopped") for rank in end.ranks):
        return False
    return attempt.stop is Stop.CANCEL or not job.progress.get("hooks")


def rank_facts(status: GangStatus, placement: Iterable[RankPlacement]) -> tuple[Mapping[str, Any], ...]:
    """What is kept of each rank, in rank order."""
    placed = {rank.rank: rank for rank in placement}
    facts = []
    for rank in status.ranks:
        where = placed.get(rank.rank)
        facts.append(
            {
                "rank": rank.rank,
                "node": rank.node or (where.node if where else ""),
                "devices": list(where.devices) if where else [],
                "pid": rank.pid,
                "started_at": rank.started_at,
                "ended_at": rank.ended_at,
                "exit_code": rank.exit.code if rank.exit else None,
                "signal": rank.exit.signal if rank.exit else None,
                "lost": rank.exit.lost if rank.exit else False,
                "stopped": rank.exit.stopped if rank.exit else False,
                **({"memory_bytes": rank.exit.memory_bytes} if rank.exit and rank.exit.memory_bytes else {}),
            }
        )
    return tuple(facts)


def read_end(
    status: GangStatus, placement: Iterable[RankPlacement], *, phase: str, begun: GangStatus | None = None
) -> AttemptEnd:  # fmt: skip
    """How and when a phase's gang ended. Of several failed ranks, the culprit is the first that was not asked to
    stop."""
    code, message = _why_ended(status, phase)
    started = [rank.started_at for rank in status.ranks if rank.started_at is not None]
    ended = [rank.ended_at for rank in status.ranks if rank.ended_at is not None]
    return AttemptEnd(
        code, message, rank_facts(status, placement), started_at=max(started, default=None),
        ended_at=max(ended) if len(ended) == len(status.ranks) > 0 else None, begun=begun,
    )  # fmt: skip


def with_store(end: AttemptEnd, stored: AttemptEnd, *, finished: bool) -> AttemptEnd:
    """The end of a run whose outputs or checkpoints were stored after it. A failure to store fails finished work."""
    idle_s = 0.0
    if end.ended_at is not None and stored.started_at is not None:
        idle_s = max(0.0, stored.started_at - end.ended_at)
    told = stored if stored.code is not None and finished else end
    return replace(told, ended_at=end.ended_at if stored.ended_at is None else stored.ended_at, idle_s=idle_s)


def _why_ended(status: GangStatus, phase: str) -> tuple[ErrorCode | None, str]:
    failed = [rank for rank in status.ranks if rank.exit is None or not rank.exit.ok]
    if not failed:
        return None, ""
    failed.sort(key=lambda rank: (bool(rank.exit and rank.exit.stopped), rank.ended_at or 0.0, rank.rank))
    rank = failed[0]
    exit_ = rank.exit
    name = f"rank {rank.rank}" if len(status.ranks) > 1 else "the process"
    if exit_ is None or exit_.lost:
        detail = exit_.detail if exit_ else ""
        code = ErrorCode.NODE_LOST if exit_ is not None and exit_.node_lost else ErrorCode.RANK_LOST
        return code, f"{name} was lost{': ' + detail if detail else ''}"
    if phase == "download":
        return ErrorCode.INPUT, f"inputs could not be fetched: {exit_.detail or _how(exit_)}"
    if phase == "store":
        return ErrorCode.OUTPUT, f"outputs could not be stored: {exit_.detail or _how(exit_)}"
    if exit_.oom:
        return ErrorCode.OUT_OF_MEMORY, f"{name} went over its memory limit and was killed"
    if exit_.limit in _TIME_IS_OVER:
        return _TIME_IS_OVER[exit_.limit], exit_.detail
    if exit_.limit:
        return ErrorCode.OVER_LIMIT, f"{name} was killed: {exit_.detail}"
    if exit_.signal is not None:
        return ErrorCode.SIGNAL, f"{name} was killed by signal {exit_.signal}"
    code = ErrorCode.COMMAND_NOT_FOUND if exit_.code in (126, 127) and exit_.detail else ErrorCode.EXIT
    return code, f"{name} {exit_.detail or _how(exit_)}"


_TIME_IS_OVER: Mapping[str, ErrorCode] = {
    Stop.MAX_RUNTIME: ErrorCode.MAX_RUNTIME,
    Stop.DEADLINE: ErrorCode.DEADLINE,
}
"""Limits that a rank's supervisor keeps where no server runs."""


def _how(exit_: Exit) -> str:
    return f"killed by signal {exit_.signal}" if exit_.signal is not None else f"left with exit code {exit_.code}"


def lost(status: GangStatus, detail: str = "vanished") -> GangStatus:
    """The same gang after its processes vanished without an observed exit."""
    ranks = tuple(
        rank if rank.exit is not None else replace(rank, phase=Phase.ENDED, exit=Exit(lost=True, detail=detail))
        for rank in status.ranks
    )
    return replace(status, phase=Phase.ENDED, ranks=ranks)


class JobOver(Conflict):
    """The job can change no more."""

    def __init__(self, job: JobRecord) -> None:
        super().__init__(f"the job is over: {job.state}", where=job.id, hint="submit it again to run it again")
        self.job = job


def describe(job: JobRecord) -> str:
    """Where a job that does not wait is, in a sentence."""
    tries = f" (attempt {job.attempt})" if job.attempt > 1 else ""
    if job.state.terminal or job.state is JobState.SUSPENDED:
        return f"{job.state}{tries}: {job.message}" if job.message else f"{job.state}{tries}"
    return f"does not wait: it is {job.state}{tries}"
