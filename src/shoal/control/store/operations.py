"""What can be written, and how a group of such operations becomes one transaction.

An operation is made by its caller, with its rows ready, so that a value that cannot be stored fails there. `together`
runs a whole group in a handful of statements and expects no conflict; when it meets one, the writer rolls back and
runs the same operations by `apart`, where each stands or falls alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection

from shoal.control.lifecycle import JobState, check_step
from shoal.control.records import Change, JobRecord, MetricPoint, NewEvent
from shoal.control.store import rows, schema, statements
from shoal.control.store.database import Database
from shoal.control.store.statements import Row
from shoal.core import Conflict, ShoalError

_STATES = {state.value: state for state in JobState}


class Pending(NamedTuple):
    """An event with its row made, all but the sequence number."""

    event: NewEvent
    row: Row


def pending(events: Iterable[NewEvent], service_id: str | None = None) -> tuple[Pending, ...]:
    """`service_id`: whose replica the events are of; they are its events as well."""
    if service_id is not None:
        events = [event._replace(service_id=service_id) for event in events]
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
    row: Row
    events: tuple[Pending, ...]
    weight = 1

    @property
    def key(self) -> tuple[str, str] | None:
        return None if self.job.idempotency_key is None else (self.job.tenant, self.job.idempotency_key)


class Step(NamedTuple):
    """A checked Change."""

    job_id: str
    row: Row
    attempt: Row | None
    events: tuple[Pending, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    steps: tuple[Step, ...]

    @property
    def weight(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True)
class AddMetrics:
    rows: tuple[Row, ...]

    @property
    def weight(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Progress:
    job_id: str
    text: str
    weight = 1


@dataclass(frozen=True, slots=True)
class Other:
    """Rare writes: `run` writes and returns its value, and whether `events` are due."""

    run: Callable[[Connection], tuple[Any, bool]]
    events: tuple[Pending, ...]
    weight = 1


Operation = Submit | Apply | AddMetrics | Progress | Other


def submit(job: JobRecord, events: Iterable[NewEvent]) -> Submit:
    return Submit(job, rows.job_row(job), pending(events, job.service_id))


def apply(changes: Iterable[Change]) -> Apply:
    """Raises Conflict when a change is no legal step, before anything is written."""
    return Apply(tuple([_step(change) for change in changes]))


def record(events: Iterable[NewEvent]) -> Other:
    return Other(lambda _connection: (None, True), pending(events))


def add_metrics(points: Iterable[MetricPoint]) -> AddMetrics:
    return AddMetrics(tuple(rows.metric_row(point) for point in points))


def _step(change: Change) -> Step:
    _check(change)
    return Step(
        change.before.id,
        rows.change_row(change.before, change.after),
        None if change.attempt is None else rows.attempt_row(change.attempt),
        pending(change.events, change.before.service_id),
    )


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
        if event.kind != "job.state":
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


# --- all at once ---


def together(connection: Connection, group: Sequence[Operation], seq: int) -> list[Done]:
    """Run the group, its events numbered after `seq`; what each gives, in order.

    Raises Collision, or the refusal of one operation, when the group must run apart.

    The operations are concurrent (none is acknowledged yet), so kinds may be gathered: first what is submitted, then
    changes, then the rest in their order.
    """
    submits = [operation for operation in group if isinstance(operation, Submit)]
    submitted = iter(_submit_all(connection, submits)) if submits else iter(())
    steps = [step for operation in group if isinstance(operation, Apply) for step in operation.steps]
    if steps:
        _apply_all(connection, steps)
    done = []
    for operation in group:
        if isinstance(operation, Submit):
            done.append(next(submitted))
        elif isinstance(operation, Apply):
            events = [event for step in operation.steps for event in step.events]
            done.append(Done([True] * len(operation.steps), events))
        elif isinstance(operation, Other):
            done.append(_other(connection, operation))
        else:
            done.append(Done(None))
    points = [row for operation in group if isinstance(operation, AddMetrics) for row in operation.rows]
    if points:
        statements.insert(connection, schema.metric, rows.METRIC_COLUMNS, points)
    latest = {operation.job_id: operation.text for operation in group if isinstance(operation, Progress)}
    if latest:
        statements.update(connection, schema.job, ("id",), ("progress",), list(latest.items()))
    _insert_events(connection, [event for one in done for event in one.events], seq)
    return done


def _insert_events(connection: Connection, events: Sequence[Pending], seq: int) -> None:
    numbered = [(number, *event.row) for number, event in enumerate(events, seq + 1)]
    statements.insert(connection, schema.event, rows.EVENT_COLUMNS, numbered)


def _submit_all(connection: Connection, submits: Sequence[Submit]) -> list[Done]:
    keys = list({submit.key for submit in submits if submit.key is not None})
    known = _stored(connection, keys)
    fresh: list[Row] = []
    done: list[Done] = []
    for submit in submits:
        earlier = known.get(submit.key) if submit.key is not None else None
        if earlier is not None:
            if earlier.fingerprint != submit.job.fingerprint:
                raise Collision
            done.append(Done(earlier))
            continue
        if submit.key is not None:
            known[submit.key] = submit.job
        fresh.append(submit.row)
        done.append(Done(submit.job, submit.events))
    statements.insert(connection, schema.job, rows.NEW_JOB_COLUMNS, fresh)
    return done


def _stored(connection: Connection, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str] | None, JobRecord]:
    found = map(rows.job_of, statements.lookup(connection, schema.job, ("tenant", "idempotency_key"), keys))
    return {(job.tenant, job.idempotency_key or ""): job for job in found}


def _apply_all(connection: Connection, steps: Sequence[Step]) -> None:
    # A statement sees no change of its own, so a job's second step in the group goes in the next wave.
    waves: list[list[Row]] = []
    seen: dict[str, int] = {}
    for step in steps:
        wave = seen.get(step.job_id, 0)
        seen[step.job_id] = wave + 1
        if wave == len(waves):
            waves.append([])
        waves[wave].append(step.row)
    for wave_rows in waves:
        if _update_jobs(connection, wave_rows) != len(wave_rows):
            raise Collision
    attempts = {step.attempt[:2]: step.attempt for step in steps if step.attempt is not None}
    statements.upsert(connection, schema.attempt, rows.ATTEMPT_COLUMNS, list(attempts.values()))


def _update_jobs(connection: Connection, values: Sequence[Row]) -> int:
    return statements.update(
        connection, schema.job, ("id", "version"), rows.JOB_CHANGING, values, keep=frozenset({"progress"})
    )


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
            if isinstance(operation, Submit):
                done = _submit_alone(connection, operation)
            elif isinstance(operation, Apply):
                done = _apply_alone(connection, operation)
            else:
                return together(connection, [operation], seq)[0]
            _insert_events(connection, done.events, seq)
            return done
    except ShoalError as error:
        return Done(error)
    except Exception as error:
        if not database.blames_value(error):
            raise
        return Done(database.failure(error))


def _submit_alone(connection: Connection, operation: Submit) -> Done:
    earlier = _stored(connection, [operation.key]).get(operation.key) if operation.key is not None else None
    if earlier is None:
        statements.insert(connection, schema.job, rows.NEW_JOB_COLUMNS, [operation.row])
        return Done(operation.job, operation.events)
    if earlier.fingerprint != operation.job.fingerprint:
        raise Conflict(
            f"the idempotency key {operation.job.idempotency_key!r} was used for another job",
            where=earlier.id,
            hint="give a new key, or repeat the very same submission",
        )
    return Done(earlier)


def _apply_alone(connection: Connection, operation: Apply) -> Done:
    applied: list[bool] = []
    events: list[Pending] = []
    for step in operation.steps:
        current = _update_jobs(connection, [step.row]) == 1
        applied.append(current)
        if not current:
            continue
        if step.attempt is not None:
            statements.upsert(connection, schema.attempt, rows.ATTEMPT_COLUMNS, [step.attempt])
        events.extend(step.events)
    return Done(applied, events)
