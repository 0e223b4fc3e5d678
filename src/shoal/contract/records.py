"""The rows of the control plane as frozen values: what the store keeps, the loops pass around and the API shows.

A `Change` is the only way a job moves: the row before, the row after and the events of the steps between, written in
one transaction and guarded by the row's version. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from shoal.contract.lifecycle import Desired, ErrorCode, JobOrder, JobState, Outcome, Stop
from shoal.core import PriorityClass, Quota, Resources, Sandbox, Tenant


class _Evolving:
    """`dataclasses.replace` without calling `__init__`: rows change in a few columns thousands of times a second."""

    def evolve(self, **changes: Any) -> Self:
        fields = vars(self)
        changed = {**fields, **changes}
        if len(changed) != len(fields):
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(changes.keys() - fields.keys()))}")
        copy = object.__new__(type(self))
        object.__setattr__(copy, "__dict__", changed)
        return copy


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """How far the streams of an attempt were read for reports: offsets in bytes, by stream."""

    attempt: int
    offsets: Mapping[str, int]


_NONE_YET: Mapping[str, Any] = {}


class JobRecord(NamedTuple):
    """One row of the job table: the projection of the job's events.

    `manifest` is the validated manifest as canonical JSON text (secrets by reference only). `resources` is per rank,
    `ranks` the most that it may have, `min_ranks` the fewest; `size` is how many its present attempt has, or had last.
    `attempt` is the number of the current or last attempt (0: none yet). `retries` counts used retries per fault.
    `not_before` delays the next attempt (back-off). `reason` is the JSON of the last recorded `Reason`, `wait_cause`
    that of the wait that ended last. `progress` is what the training hooks reported last (step, total, rate_per_s,
    eta_s, checkpoint_at, checkpoint_step, checkpoint_s, checkpoint_bytes, metrics), and `finish`, the Unix time at
    which it ends as an extension predicts it (median, low, high, level, source); no change touches it, nor
    `read_position`. `owner_id` names what an extension has this job for; it is among that extension's own rows.
    `array_id` names the job array of which it is a task; its own id is that with its index behind it.
    """

    id: str
    tenant: str
    name: str
    state: JobState
    version: int
    manifest: str
    resources: Resources
    ranks: int
    priority_class: PriorityClass
    priority: int
    submitted_at: float
    updated_at: float
    desired: Desired = Desired.RUN
    attempt: int = 0
    queued_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    not_before: float = 0.0
    deadline_at: float | None = None
    expected_s: float | None = None
    retries: Mapping[str, int] = _NONE_YET
    waited_s: float = 0.0
    ran_s: float = 0.0
    error_code: ErrorCode | None = None
    message: str = ""
    reason: Mapping[str, Any] | None = None
    wait_cause: Mapping[str, Any] | None = None
    progress: Mapping[str, Any] = _NONE_YET
    idempotency_key: str | None = None
    fingerprint: str = ""
    owner_id: str | None = None
    min_ranks: int = 1
    size: int | None = None
    read_position: ReadPosition | None = None
    array_id: str | None = None

    def evolve(self, **changes: Any) -> JobRecord:
        """As `_replace`, in a third of the time: rows change in a few columns thousands of times a second."""
        values = list(self)
        for name, value in changes.items():
            values[_PLACES[name]] = value
        return tuple.__new__(JobRecord, values)

    @property
    def array_index(self) -> int | None:
        """Which task of its array it is."""
        return None if self.array_id is None else int(self.id.rpartition("-")[2])


_PLACES = {name: place for place, name in enumerate(JobRecord._fields)}


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """Where one rank of a gang goes."""

    rank: int
    node: str
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class AttemptRecord(_Evolving):
    """One try to run a job. `epoch` is the control lease's epoch of the attempt runner that last claimed it.

    `stop` says why it was asked to end, `stop_at` since when. `ranks` holds one mapping per rank once known
    (rank, node, devices, pid, exit_code, signal, started_at, ended_at).
    """

    job_id: str
    number: int
    epoch: int
    placement: tuple[RankPlacement, ...]
    created_at: float
    running_at: float | None = None
    ended_at: float | None = None
    stop: Stop | None = None
    stop_at: float | None = None
    stop_cause: str = ""
    outcome: Outcome | None = None
    error_code: ErrorCode | None = None
    message: str = ""
    ranks: tuple[Mapping[str, Any], ...] = ()


_NO_DATA: Mapping[str, Any] = {}


class NewEvent(NamedTuple):
    """An event before the store gave it its sequence number. `kind` is an `EventKind` or an extension's own; `actor` is
    who or what caused it (`tenant:NAME`, `admin`, `decider`, ...); `cause` a sentence for people."""

    at: float
    kind: str
    actor: str
    cause: str = ""
    tenant: str | None = None
    job_id: str | None = None
    attempt: int | None = None
    old_state: str | None = None
    new_state: str | None = None
    data: Mapping[str, Any] = _NO_DATA
    owner_id: str | None = None


class Event(NamedTuple):
    """A stored event; `seq` grows in commit order and is the position of every watch."""

    seq: int
    at: float
    kind: str
    actor: str
    cause: str
    tenant: str | None
    job_id: str | None
    attempt: int | None
    old_state: str | None
    new_state: str | None
    data: Mapping[str, Any]
    owner_id: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One guarded step of a job: applied only if the stored row still has `before.version`; `after.version` must be
    greater. `attempt`, when given, is inserted or replaced in the same transaction.

    A job of version 0 is not stored yet, and has an idempotency key: its first step stores it, unless a job with that
    key is stored."""

    before: JobRecord
    after: JobRecord
    events: tuple[NewEvent, ...] = ()
    attempt: AttemptRecord | None = None


@dataclass(frozen=True, slots=True)
class TenantRecord:
    name: str
    weight: float
    quota: Quota
    created_at: float
    max_priority_class: PriorityClass = PriorityClass.GUARANTEED
    sandbox: Sandbox = Sandbox.NONE

    def as_tenant(self) -> Tenant:
        return Tenant(self.name, self.weight, self.quota)


@dataclass(frozen=True, slots=True)
class BundleRecord:
    """Working files that a tenant uploaded. `digest` is `sha256:HEX` of the archive; `used_at` is when a manifest last
    named it."""

    tenant: str
    digest: str
    size_bytes: int
    unpacked_bytes: int
    created_at: float
    used_at: float


@dataclass(frozen=True, slots=True)
class ArrayRecord:
    """A job array: tasks that were submitted together. `indices` is as in its manifest: `0-99%10`."""

    id: str
    tenant: str
    name: str
    indices: str
    tasks: int
    submitted_at: float


@dataclass(frozen=True, slots=True)
class Ends:
    """How far jobs are that others wait for: how many are not over, and whether any ended without success."""

    open_jobs: int
    failed: bool


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """What has to be known of a job that is over to remove it."""

    id: str
    tenant: str
    ended_at: float
    attempts: int
    array_id: str | None = None


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How the last attempt of a job ended, and the most memory that a rank of it had (0: not known)."""

    tenant: str
    name: str
    command: Sequence[str]
    resources: Resources
    outcome: Outcome | None
    error_code: ErrorCode | None
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Jobs of `ranks` ranks that asked for the same ran for `ran_s` together; `resources` are per rank."""

    resources: Resources
    ranks: int
    jobs: int
    ran_s: float


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A bearer token, known by its hash only. `tenant` None means admin. One that is `read_only` changes nothing."""

    id: str
    tenant: str | None
    token_sha256: str
    label: str
    created_at: float
    revoked_at: float | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One reported value of a job. `step` is the user's step, absent when the source has none."""

    job_id: str
    attempt: int
    at: float
    step: int | None
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list. In `name`, `*` stands for any text and `?` for any character; `since` is the earliest time of
    submission; `before_id` continues a listing after that job. Jobs that belong to something, such as replicas, are
    left out unless `owned` asks for them."""

    tenant: str | None = None
    states: frozenset[JobState] | None = None
    name: str | None = None
    owned: bool = False
    limit: int = 100
    before_id: str | None = None
    since: float = 0.0
    order: JobOrder = JobOrder.SUBMITTED
