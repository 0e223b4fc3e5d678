"""The life of a job: states, the one table of legal transitions, and whose fault an end is.

Three levels: a *job* is what a tenant submitted; an *attempt* is one try to run it, numbered from 1; a *rank* is one
process of an attempt. Preempted and lost are outcomes of an attempt, never states of a job.
"""

from __future__ import annotations

from enum import StrEnum

from shoal.core import Conflict, Fault


class JobState(StrEnum):
    QUEUED = "QUEUED"
    ADMITTED = "ADMITTED"
    PLACED = "PLACED"
    STARTING = "STARTING"
    DOWNLOADING = "DOWNLOADING"
    RUNNING = "RUNNING"
    CHECKPOINTING = "CHECKPOINTING"
    STORING = "STORING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SUSPENDED = "SUSPENDED"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL

    @property
    def active(self) -> bool:
        """Holds resources: an attempt of it is placed."""
        return self in ACTIVE


class JobOrder(StrEnum):
    """Orders of a list of jobs: the newest, latest and longest first, names and states by the alphabet. Jobs that are
    equal in it come newest first, and those that have not started or ended yet last."""

    SUBMITTED = "submitted"
    STARTED = "started"
    ENDED = "ended"
    RAN = "ran"
    WAITED = "waited"
    NAME = "name"
    STATE = "state"


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUSPENDED = "suspended"
    PREEMPTED = "preempted"
    LOST = "lost"
    ROLLED_BACK = "rolled-back"


class Desired(StrEnum):
    """What the tenant wants of a job; the attempt runner makes it so."""

    RUN = "run"
    SUSPEND = "suspend"
    CANCEL = "cancel"


class Stop(StrEnum):
    """Why a running attempt was asked to end."""

    PREEMPT = "preempt"
    SUSPEND = "suspend"
    CANCEL = "cancel"
    MAX_RUNTIME = "max-runtime"
    DEADLINE = "deadline"
    NODE_LOST = "node-lost"


class ErrorCode(StrEnum):
    """Why an attempt or job failed. The first letter says whose fault: U user, P platform, I infrastructure."""

    EXIT = "U101-exit-code"
    SIGNAL = "U102-killed-by-signal"
    OUT_OF_MEMORY = "U103-out-of-memory"
    COMMAND_NOT_FOUND = "U104-command-not-found"
    MAX_RUNTIME = "U105-max-runtime"
    DEADLINE = "U106-deadline"
    OVER_LIMIT = "U107-over-limit"
    REFUSED = "U108-refused-by-cluster"
    INPUT = "U201-input-data"
    OUTPUT = "U202-output-data"
    SECRET = "U301-secret-missing"  # noqa: S105 - the name of a failure, not a secret
    LAUNCH = "P101-launch"
    RANK_LOST = "I101-rank-lost"
    NODE_LOST = "I102-node-lost"

    @property
    def fault(self) -> Fault:
        return {"U": Fault.USER, "P": Fault.PLATFORM, "I": Fault.INFRASTRUCTURE}[self.value[0]]


_S = JobState

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _S.QUEUED: frozenset({_S.ADMITTED, _S.FAILED, _S.CANCELLED, _S.SUSPENDED}),
    _S.ADMITTED: frozenset({_S.PLACED, _S.QUEUED, _S.CANCELLED, _S.SUSPENDED}),
    _S.PLACED: frozenset({_S.STARTING, _S.QUEUED, _S.CANCELLED, _S.SUSPENDED}),
    _S.STARTING: frozenset({_S.DOWNLOADING, _S.RUNNING, _S.QUEUED, _S.FAILED, _S.CANCELLED, _S.SUSPENDED}),
    _S.DOWNLOADING: frozenset({_S.RUNNING, _S.QUEUED, _S.FAILED, _S.CANCELLED, _S.SUSPENDED}),
    _S.RUNNING: frozenset(
        {_S.CHECKPOINTING, _S.STORING, _S.SUCCEEDED, _S.QUEUED, _S.FAILED, _S.CANCELLED, _S.SUSPENDED}
    ),
    _S.CHECKPOINTING: frozenset({_S.STORING, _S.SUCCEEDED, _S.QUEUED, _S.FAILED, _S.CANCELLED, _S.SUSPENDED}),
    _S.STORING: frozenset({_S.SUCCEEDED, _S.QUEUED, _S.FAILED, _S.CANCELLED, _S.SUSPENDED}),
    _S.SUSPENDED: frozenset({_S.QUEUED, _S.CANCELLED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}
"""From each state, the states a job may step to. Nothing else in Shoal decides what is legal."""

TERMINAL = frozenset(state for state, following in TRANSITIONS.items() if not following)
ACTIVE = frozenset(JobState) - TERMINAL - {_S.QUEUED, _S.SUSPENDED}


def check_step(old: JobState, new: JobState, *, job_id: str = "") -> None:
    """Raise Conflict when the step is not in the table."""
    if new not in TRANSITIONS[old]:
        allowed = ", ".join(sorted(TRANSITIONS[old])) or "nothing: the state is final"
        raise Conflict(f"a job cannot go from {old} to {new}", where=job_id or None, hint=f"allowed: {allowed}")
