"""Removing what is over: finished jobs with all that belongs to them, other old events, bundles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, func, insert, or_, select, true, update

from shoal.contract.records import BundleRecord
from shoal.store import schema

_event, _job = schema.event.c, schema.job.c


def old_events(before: float, living: Sequence[Select[Any]]) -> ColumnElement[bool]:
    """Events older than that which belong to no job, nor to what is among the `living`. The newest event always stays,
    for the next one's number follows from it."""
    newest = select(func.max(_event.seq)).scalar_subquery()
    of_nothing_live = or_(_event.owner_id.is_(None), and_(true(), *(_event.owner_id.not_in(ids) for ids in living)))
    return (_event.at < before) & _event.job_id.is_(None) & of_nothing_live & (_event.seq < newest)


def remove_jobs(connection: Connection, job_ids: Sequence[str]) -> int:
    """Remove those of the jobs that are over; how many events went with them."""
    over = select(_job.id).where(_job.id.in_(job_ids), schema.FINISHED)
    ids = list(connection.scalars(over))
    if not ids:
        return 0
    events = _drop_events(connection, _event.job_id.in_(ids))
    connection.execute(delete(schema.metric).where(schema.metric.c.job_id.in_(ids)))
    connection.execute(delete(schema.attempt).where(schema.attempt.c.job_id.in_(ids)))
    arrays = set(connection.scalars(select(_job.array_id).where(_job.id.in_(ids), _job.array_id.is_not(None))))
    connection.execute(delete(schema.job).where(_job.id.in_(ids)))
    if arrays:
        left = select(_job.id).where(_job.array_id == schema.job_array.c.id, schema.IN_ARRAY).exists()
        connection.execute(delete(schema.job_array).where(schema.job_array.c.id.in_(arrays), ~left))
    return events


def remove_events(connection: Connection, old: ColumnElement[bool], limit: int) -> int:
    """Remove up to this number of the `old` events, the oldest first; returns how many there were."""
    oldest = select(_event.seq).where(old).order_by(_event.seq).limit(limit)
    return _drop_events(connection, _event.seq.in_(list(connection.scalars(oldest))))


def remove_bundle(connection: Connection, bundle: BundleRecord) -> bool:
    """True when no other tenant has the same content."""
    table = schema.bundle
    connection.execute(delete(table).where(table.c.tenant == bundle.tenant, table.c.digest == bundle.digest))
    return not connection.scalar(select(func.count()).select_from(table).where(table.c.digest == bundle.digest))


def _drop_events(connection: Connection, which: ColumnElement[bool]) -> int:
    highest = connection.scalar(select(func.max(_event.seq)).where(which))
    if highest is None:
        return 0
    known: Any = connection.scalar(select(schema.removed_events.c.seq))
    if known is None:
        connection.execute(insert(schema.removed_events).values(id=1, seq=highest))
    elif known < highest:
        connection.execute(update(schema.removed_events).values(seq=highest))
    return int(connection.execute(delete(schema.event).where(which)).rowcount)
