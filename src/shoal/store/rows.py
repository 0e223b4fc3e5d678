"""Records to rows and back, one explicit function each way: the store spends most of its time here."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import orjson

from shoal.contract.lifecycle import Desired, ErrorCode, JobState, Outcome, Stop
from shoal.contract.records import (
    ArrayRecord,
    AttemptRecord,
    Event,
    JobRecord,
    MetricPoint,
    NewEvent,
    RankPlacement,
    ReadPosition,
    TenantRecord,
    TokenRecord,
)
from shoal.core import Invalid, PriorityClass, Quota, Resources, Sandbox
from shoal.store import schema
from shoal.store.bulk import Row

JOB_COLUMNS = tuple(schema.job.c.keys())
JOB_FIXED = (
    "id", "tenant", "name", "manifest", "resources", "ranks", "submitted_at", "idempotency_key", "fingerprint",
    "owner_id", "min_ranks", "array_id",
)  # fmt: skip
"""What a job keeps for life; no change may touch it."""
JOB_REPORTED = ("progress", "read_position")
"""What arrives beside the changes, without a version: no change writes it."""
fixed = attrgetter(*JOB_FIXED)
JOB_ENDING = ("ended_at",)
"""What is set once, with the last step."""
JOB_STEPPING = tuple(name for name in JOB_COLUMNS if name not in (*JOB_FIXED, *JOB_REPORTED, *JOB_ENDING))
ATTEMPT_COLUMNS = tuple(schema.attempt.c.keys())
EVENT_COLUMNS = tuple(schema.event.c.keys())
ARRAY_COLUMNS = tuple(schema.job_array.c.keys())
METRIC_COLUMNS = tuple(name for name in schema.metric.c.keys() if name != "id")  # noqa: SIM118 - not a mapping


def json_text(value: Any, what: str) -> str:
    """Compact JSON. Raises Invalid for what JSON or UTF-8 cannot say."""
    if not value and value is not None:
        return "[]" if isinstance(value, list | tuple) else "{}"
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError as error:
        raise Invalid(f"{what} cannot be written as JSON: {error}", where=what, hint="use plain JSON values") from error


def free_text(value: str) -> str:
    """Text of any origin, with what no database keeps (NUL, halves of surrogate pairs) replaced."""
    if value.isascii() and "\0" not in value:
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


@lru_cache(maxsize=4096)
def _resources_text(resources: Resources) -> str:
    return orjson.dumps(
        {
            "accelerators": dict(resources.accelerators),
            "cpu_milli": resources.cpu_milli,
            "memory_bytes": resources.memory_bytes,
            "share": resources.share.value,
            "device_memory_bytes": resources.device_memory_bytes,
        }
    ).decode()


@lru_cache(maxsize=4096)
def resources_of(text: str) -> Resources:
    """As they stand in a job's row."""
    return Resources(**orjson.loads(text))


def _optional_json(value: Mapping[str, Any] | None, what: str) -> str | None:
    return None if value is None else json_text(value, what)


def _stepping(job: JobRecord) -> Row:
    """The values of JOB_STEPPING."""
    return (
        str(job.state),
        job.version,
        str(job.priority_class),
        job.priority,
        job.updated_at,
        str(job.desired),
        job.attempt,
        job.queued_at,
        job.started_at,
        job.not_before,
        job.deadline_at,
        job.expected_s,
        json_text(job.retries, "retries"),
        job.waited_s,
        job.ran_s,
        None if job.error_code is None else str(job.error_code),
        free_text(job.message),
        _optional_json(job.reason, "reason"),
        _optional_json(job.wait_cause, "wait_cause"),
        job.size,
    )


def reported_row(progress: Mapping[str, Any], position: ReadPosition | None) -> Row:
    """The values of JOB_REPORTED."""
    read = None if position is None else json_text([position.attempt, position.offsets], "read position")
    return (json_text(progress, "progress"), read)


NEW_JOB_COLUMNS = (*JOB_FIXED, *JOB_STEPPING, *JOB_ENDING, *JOB_REPORTED)


def job_row(job: JobRecord) -> Row:
    """The values of NEW_JOB_COLUMNS."""
    return (
        job.id,
        job.tenant,
        free_text(job.name),
        job.manifest,
        _resources_text(job.resources),
        job.ranks,
        job.submitted_at,
        job.idempotency_key,
        job.fingerprint,
        job.owner_id,
        job.min_ranks,
        job.array_id,
        *_stepping(job),
        job.ended_at,
        *reported_row(job.progress, job.read_position),
    )


def step_row(before: JobRecord, after: JobRecord) -> Row:
    """The key (id, version) and the values of JOB_STEPPING."""
    return (before.id, before.version, *_stepping(after))


def end_row(before: JobRecord, after: JobRecord) -> Row:
    """The same, and the values of JOB_ENDING."""
    return (*step_row(before, after), after.ended_at)


def job_of(row: Sequence[Any]) -> JobRecord:
    """From the values of JOB_COLUMNS, in the order of which a record has its fields."""
    values = list(row)
    values[3] = _STATES[row[3]]
    values[5] = sys.intern(row[5])
    values[6] = resources_of(row[6])
    values[8] = _CLASSES[row[8]]
    values[12] = _DESIRED[row[12]]
    values[20] = _mapping(row[20])
    values[23] = None if row[23] is None else ErrorCode(row[23])
    values[25] = None if row[25] is None else orjson.loads(row[25])
    values[26] = None if row[26] is None else orjson.loads(row[26])
    values[27] = _mapping(row[27])
    values[33] = None if row[33] is None else ReadPosition(*orjson.loads(row[33]))
    return JobRecord._make(values)


_STATES = {state.value: state for state in JobState}
_CLASSES = {one.value: one for one in PriorityClass}
_DESIRED = {one.value: one for one in Desired}


def _mapping(text: str) -> Mapping[str, Any]:
    if text == "{}":
        return _NONE
    loaded: dict[str, Any] = orjson.loads(text)
    return loaded


_NONE: Mapping[str, Any] = {}


def attempt_row(attempt: AttemptRecord) -> Row:
    """The values of ATTEMPT_COLUMNS."""
    return (
        attempt.job_id,
        attempt.number,
        attempt.epoch,
        json_text([[place.rank, place.node, place.devices] for place in attempt.placement], "placement"),
        attempt.created_at,
        attempt.running_at,
        attempt.ended_at,
        None if attempt.stop is None else str(attempt.stop),
        attempt.stop_at,
        free_text(attempt.stop_cause),
        None if attempt.outcome is None else str(attempt.outcome),
        None if attempt.error_code is None else str(attempt.error_code),
        free_text(attempt.message),
        json_text([dict(rank) for rank in attempt.ranks], "ranks"),
    )


def attempt_of(row: Sequence[Any]) -> AttemptRecord:
    """From the values of ATTEMPT_COLUMNS."""
    return AttemptRecord(
        job_id=row[0],
        number=row[1],
        epoch=row[2],
        placement=tuple(RankPlacement(rank, node, tuple(devices)) for rank, node, devices in orjson.loads(row[3])),
        created_at=row[4],
        running_at=row[5],
        ended_at=row[6],
        stop=None if row[7] is None else Stop(row[7]),
        stop_at=row[8],
        stop_cause=row[9],
        outcome=None if row[10] is None else Outcome(row[10]),
        error_code=None if row[11] is None else ErrorCode(row[11]),
        message=row[12],
        ranks=tuple(orjson.loads(row[13])),
    )


def event_row(event: NewEvent) -> Row:
    """The values of EVENT_COLUMNS but the first, the sequence number, which is known only at commit."""
    return (
        event.at,
        event.kind,
        event.actor,
        free_text(event.cause),
        event.tenant,
        event.job_id,
        event.attempt,
        None if event.old_state is None else str(event.old_state),
        None if event.new_state is None else str(event.new_state),
        json_text(event.data, "event data"),
        event.owner_id,
    )


def event_of(row: Sequence[Any]) -> Event:
    """From the values of EVENT_COLUMNS."""
    seq, at, kind, actor, cause, tenant, job_id, attempt, old_state, new_state, data, owner_id = row
    return Event(seq, at, kind, actor, cause, tenant, job_id, attempt, old_state, new_state, _mapping(data), owner_id)


def numbered(seq: int, event: NewEvent) -> Event:
    """The event as it was stored: its fields follow the number."""
    return Event(seq, *event)


def array_row(array: ArrayRecord) -> Row:
    """The values of ARRAY_COLUMNS."""
    return (array.id, array.tenant, free_text(array.name), array.indices, array.tasks, array.submitted_at)


def metric_row(point: MetricPoint) -> Row:
    """The values of METRIC_COLUMNS."""
    return (
        point.job_id,
        point.attempt,
        point.at,
        point.step,
        free_text(point.name),
        None if math.isnan(point.value) else float(point.value),
    )


def metric_of(row: Sequence[Any]) -> MetricPoint:
    """From the values of METRIC_COLUMNS."""
    job_id, attempt, at, step, name, value = row
    return MetricPoint(job_id, attempt, at, step, name, math.nan if value is None else value)


def tenant_values(tenant: TenantRecord) -> dict[str, Any]:
    quota = tenant.quota
    return {
        "name": tenant.name,
        "weight": tenant.weight,
        "quota": json_text(
            {
                "accelerators": quota.accelerators,
                "by_type": quota.by_type,
                "cpu_milli": quota.cpu_milli,
                "memory_bytes": quota.memory_bytes,
                "running_jobs": quota.running_jobs,
                "queued_jobs": quota.queued_jobs,
                "disk_bytes": quota.disk_bytes,
                "default_cpu_milli": quota.default_cpu_milli,
                "default_memory_bytes": quota.default_memory_bytes,
            },
            "quota",
        ),
        "created_at": tenant.created_at,
        "max_priority_class": tenant.max_priority_class.value,
        "sandbox": tenant.sandbox.value,
    }


def tenant_of(row: Sequence[Any]) -> TenantRecord:
    name, weight, quota, created_at, max_priority_class, sandbox = row
    limits = orjson.loads(quota)
    limits["by_type"] = tuple((kind, count) for kind, count in limits["by_type"])
    highest = PriorityClass(max_priority_class)
    return TenantRecord(name, weight, Quota(**limits), created_at, highest, Sandbox(sandbox))


def token_values(token: TokenRecord) -> dict[str, Any]:
    return {
        "id": token.id,
        "tenant": token.tenant,
        "token_sha256": token.token_sha256,
        "label": free_text(token.label),
        "created_at": token.created_at,
        "revoked_at": token.revoked_at,
        "read_only": int(token.read_only),
    }


def token_of(row: Sequence[Any]) -> TokenRecord:
    token_id, tenant, token_sha256, label, created_at, revoked_at, read_only = row
    return TokenRecord(token_id, tenant, token_sha256, label, created_at, revoked_at, bool(read_only))
