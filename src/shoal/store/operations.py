"""Operations that can be written, and how a group of them becomes one transaction.

An operation is made by its caller, with its rows ready, so that a value that cannot be stored fails there. `together`
runs a whole group in a handful of statements and expects no conflict; when it meets one, the writer rolls back and
runs the same operations by `apart`, where each stands or falls alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection

from shoal.contract.events import EventKind
from shoal.contract.lifecycle import JobState, check_step
from shoal.contract.records import ArrayRecord, Change, JobRecord, MetricPoint, NewEvent
from shoal.core import Conflict, ShoalError
from shoal.store import rows, schema, statements
from shoal.store.bulk import Bulk, Row, Work, write
from shoal.store.database import Database

_STATES = {state.value: state for state in JobState}

BULKS: dict[str, Bulk] = {
    "arrays": statements.insert(schema.job_array, rows.ARRAY_COLUMNS),
    "jobs": statements.insert(schema.job, rows.NEW_JOB_COLUMNS),
    "steps": statements.update(schema.job, ("id", "version"), rows.JOB_STEPPING),
    "ends": statements.update(schema.job, ("id", "version"), (*rows.JOB_STEPPING, *rows.JOB_ENDING)),
    "attempts": statements.upsert(schema.attempt, rows.ATTEMPT_COLUMNS),
    "metrics": statements.insert(schema.metric, rows.METRIC_COLUMNS),
    "progress": statements.update(schema.job, ("id",), rows.JOB_REPORTED),
    "events": statements.insert(schema.event, rows.EVENT_COLUMNS),
}
"""How the kinds of rows in `Work` are written."""


class Pending(NamedTuple):
    """An event with its row made, all but the sequence number."""

    event: NewEvent
    row: Row


def pending(events: Iterable[NewEvent], owner_id: str | None = None) -> tuple[Pending, ...]:
    """`owner_id`: what the job of these events belongs to; they are its events as well."""
    if owner_id is not None:
        events = [NewEvent(*event[:-1], owner_id) for event in events]  # its last column
    return tuple([Pending(event, rows.event_row(event)) for event in events])


@dataclass(frozen=True, slots=True)
class Done:
    """What an operation gives its caller, and the events that come with it."""

    value: Any
    events: Sequence[Pending] = ()


class Collision(Exception):
    """The group cannot be written as one: something in it is stale or doubled."""


# --- the operations ---


@dataclass(frozen=True, slots=True)
class Submit:
    job: JobRecord
    rows: tuple[Row, ...]
    events: tuple[Pending, ...]
    arrays: tuple[Row, ...] = ()

    @property
    def weight(self) -> int:
        return len(self.rows)

    @property
    def key(self) -> tuple[str, str] | None:
        return None if self.job.idempotency_key is None else (self.job.tenant, self.job.idempotency_key)

    def work(self) -> Work:
        return Work(arrays=self.arrays, jobs=self.rows, events=tuple([event.row for event in self.events]))

    def done(self) -> Done:
        return Done(self.job, self.events)


class Step(NamedTuple):
    """A checked Change. With a `key` it is the first of a job that was not stored yet, and `row` is the job's."""

    job_id: str
    row: Row
    ends: bool
    attempt: Row | None
    events: tuple[Pending, ...]
    key: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Apply:
    steps: tuple[Step, ...]

    @property
    def weight(self) -> int:
        return len(self.steps)

    def work(self) -> Work:
        return Work(
            jobs=tuple([step.row for step in self.steps if step.key is not None]),
            steps=tuple([step.row for step in self.steps if step.key is None and not step.ends]),
            ends=tuple([step.row for step in self.steps if step.key is None and step.ends]),
            attempts=tuple([step.attempt for step in self.steps if step.attempt is not None]),
            events=tuple([event.row for step in self.steps for event in step.events]),
        )

    @property
    def keys(self) -> list[tuple[str, str]]:
        return [step.key for step in self.steps if step.key is not None]

    def done(self) -> Done:
        return Done([True] * len(self.steps), [event for step in self.steps for event in step.events])


@dataclass(frozen=True, slots=True)
class AddMetrics:
    rows: tuple[Row, ...]

    @property
    def weight(self) -> int:
        return len(self.rows)

    def work(self) -> Work:
        return Work(metrics=self.rows)

    def done(self) -> Done:
        return Done(None)


@dataclass(frozen=True, slots=True)
class Progress:
    row: Row
    weight = 1

    def work(self) -> Work:
        return Work(progress=(self.row,))

    def done(self) -> Done:
        return Done(None)


@dataclass(frozen=True, slots=True)
class Other:
    """Rare writes: `run` writes and returns its value, and whether `events` are due."""

    run: Callable[[Connection], tuple[Any, bool]]
    events: tuple[Pending, ...]
    weight = 1


Plain = Submit | Apply | AddMetrics | Progress
Operation = Plain | Other


def submit(job: JobRecord, events: Iterable[NewEvent]) -> Submit:
    return Submit(job, (rows.job_row(job),), pending(events, job.owner_id))


def submit_array(array: ArrayRecord, tasks: Sequence[JobRecord], events: Iterable[NewEvent]) -> Submit:
    """The first task has the idempotency key of all."""
    return Submit(tasks[0], tuple(map(rows.job_row, tasks)), pending(events), (rows.array_row(array),))


def apply(changes: Iterable[Change]) -> Apply:
    """Raises Conflict when a change is no legal step, before anything is written."""
    return Apply(tuple([_step(change) for change in changes]))


def record(events: Iterable[NewEvent]) -> Other:
    return Other(lambda _connection: (None, True), pending(events))


def add_metrics(points: Iterable[MetricPoint]) -> AddMetrics:
    return AddMetrics(tuple(rows.metric_row(point) for point in points))


def _step(change: Change) -> Step:
    _check(change)
    before, ends = change.before, change.after.ended_at is not None
    attempt = None if change.attempt is None else rows.attempt_row(change.attempt)
    events = pending(change.events, before.owner_id)
    if before.version == 0 and before.idempotency_key is not None:
        key = (before.tenant, before.idempotency_key)
        return Step(before.id, rows.job_row(change.after), ends, attempt, events, key)
    row = (rows.end_row if ends else rows.step_row)(before, change.after)
    return Step(before.id, row, ends, attempt, events)


def _check(change: Change) -> None:
    before, after = change.before, change.after
    if rows.fixed(before) != rows.fixed(after):
        name = next(name for name in rows.JOB_FIXED if getattr(before, name) != getattr(after, name))
        raise Conflict(f"a job keeps its {name} for life", where=before.id)
    if after.version <= before.version:
        raise Conflict(f"version {after.version} does not follow {before.version}", where=before.id)
    if change.attempt is not None and change.attempt.job_id != before.id:
        raise Conflict(f"the attempt is of job {change.attempt.job_id}", where=before.id)
    state = before.state
    for event in change.events:
        if event.kind != EventKind.JOB_STATE:
            continue
        if event.old_state != state:
            raise Conflict(f"an event leaves {event.old_state}, but the job is in {state} then", where=before.id)
        reached = _STATES.get(event.new_state or "")
        if reached is None:
            raise Conflict(f"an event reaches {event.new_state}, which is no state", where=before.id)
        check_step(state, reached, job_id=before.id)
        state = reached
    if state is not after.state:
        raise Conflict(
            f"the events lead to {state}, the row to {after.state}",
            where=before.id,
            hint="give one job.state event for every step",
        )
    if state.terminal != (after.ended_at is not None):
        raise Conflict("a job has the time of its end when it is over, and not before", where=before.id)


# --- all at once ---


def together(connection: Connection, group: Sequence[Operation], seq: int) -> list[Done]:
    """Run the group, its events numbered after `seq`; what each gives, in order.

    Raises Collision, or the refusal of one operation, when the group must run apart.

    The operations are concurrent (none is acknowledged yet), so kinds may be gathered: first the rare ones, then what
    is submitted, then changes, then the rest.
    """
    submitted = {op.key for op in group if isinstance(op, Submit) and op.key is not None}
    first = [key for op in group if isinstance(op, Apply) for key in op.keys]
    known = _stored(connection, [*submitted, *first])
    if len(set(first)) < len(first) or not {*submitted, *known}.isdisjoint(first):
        raise Collision
    done: list[Done] = []
    works: list[Work] = []
    for operation in group:
        if isinstance(operation, Other):
            one = _other(connection, operation)
            work = Work(events=tuple([event.row for event in one.events]))
        elif isinstance(operation, Submit) and operation.key in known:
            earlier = known[operation.key]
            if earlier.fingerprint != operation.job.fingerprint:
                raise Conflict(
                    f"the idempotency key {earlier.idempotency_key!r} was used for another job",
                    where=earlier.id,
                    hint="give a new key, or repeat the very same submission",
                )
            one, work = Done(earlier), Work()
        else:
            one, work = operation.done(), operation.work()
            if isinstance(operation, Submit) and operation.key is not None:
                known[operation.key] = operation.job
        done.append(one)
        works.append(work)
    if not write(works, seq, partial(_write, connection)):
        raise Collision
    return done


def _write(connection: Connection, kind: str, values: Sequence[Row]) -> int:
    return statements.run(connection, BULKS[kind], values)


def _stored(connection: Connection, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str] | None, JobRecord]:
    found = map(rows.job_of, statements.lookup(connection, schema.job, ("tenant", "idempotency_key"), keys))
    return {(job.tenant, job.idempotency_key or ""): job for job in found}


def _other(connection: Connection, operation: Other) -> Done:
    value, due = operation.run(connection)
    return Done(value, operation.events if due else ())


# --- one by one ---


def apart(database: Database, connection: Connection, group: Sequence[Operation], seq: int) -> list[Done]:
    """Run the group in order, each operation in a savepoint; one that fails gives a Done whose value is the error."""
    done = []
    for operation in group:
        one = _alone(database, connection, operation, seq)
        seq += len(one.events)
        done.append(one)
    return done


def _alone(database: Database, connection: Connection, operation: Operation, seq: int) -> Done:
    try:
        with connection.begin_nested():
            if isinstance(operation, Apply):
                return _apply_alone(connection, operation, seq)
            return together(connection, [operation], seq)[0]
    except ShoalError as error:
        return Done(error)
    except Exception as error:
        if not database.blames_value(error):
            raise
        return Done(database.failure(error))


def _apply_alone(connection: Connection, operation: Apply, seq: int) -> Done:
    applied: list[bool] = []
    events: list[Pending] = []
    for step in operation.steps:
        try:
            one = together(connection, [Apply((step,))], seq + len(events))
        except Collision:
            applied.append(False)
            continue
        applied.append(True)
        events.extend(one[0].events)
    return Done(applied, events)
