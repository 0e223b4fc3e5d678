"""Everything that is asked of the store. Synchronous, safe from any thread, and never in the writer's way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import orjson
from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    and_,
    bindparam,
    func,
    or_,
    select,
    true,
    tuple_,
    union_all,
)

from shoal.contract.lifecycle import ErrorCode, JobOrder, JobState, Outcome
from shoal.contract.records import (
    ArrayRecord,
    AttemptRecord,
    BundleRecord,
    Ends,
    Event,
    FinishedJob,
    JobEnd,
    JobFilter,
    JobRecord,
    MetricPoint,
    TenantRecord,
    TokenRecord,
    Usage,
)
from shoal.store import rows, schema
from shoal.store.database import Database
from shoal.store.removal import old_events
from shoal.store.tables import Tables

_IDS_PER_QUERY = 500
_FOUND_LIMIT = 100
_HIGHEST = chr(0x10FFFF)

_job = schema.job.c
_array = schema.job_array
_BY_ID = select(schema.job).where(_job.id == bindparam("id"))
_NEWEST_FIRST = (_job.submitted_at.desc(), _job.id.desc())


class Reads:
    def __init__(self, database: Database, tables: Sequence[Tables] = ()) -> None:
        self._database = database
        self._living = [one.living for one in tables if one.living is not None]

    def rows(self, query: Select[Any]) -> list[Any]:
        """What an extension asks of its own tables."""
        return self._all(query)

    # --- bundles ---

    def bundle(self, tenant: str, digest: str) -> BundleRecord | None:
        table = schema.bundle
        found = self._all(select(table).where(table.c.tenant == tenant, table.c.digest == digest))
        return BundleRecord(*found[0]) if found else None

    def bundles(self, tenant: str | None = None) -> list[BundleRecord]:
        """Those of a tenant, or all; the one that was used longest ago first."""
        query = select(schema.bundle).order_by(schema.bundle.c.used_at, schema.bundle.c.digest)
        if tenant is not None:
            query = query.where(schema.bundle.c.tenant == tenant)
        return [BundleRecord(*row) for row in self._all(query)]

    # --- jobs ---

    def job(self, job_id: str) -> JobRecord | None:
        found = self._all(_BY_ID, {"id": job_id})
        return rows.job_of(found[0]) if found else None

    def jobs_by_id(self, job_ids: Collection[str]) -> dict[str, JobRecord]:
        """Those of them that there are."""
        return {row[0]: rows.job_of(row) for row in self._chunked(select(schema.job), _job.id, job_ids)}

    def jobs(self, job_filter: JobFilter) -> list[JobRecord]:
        """In the order asked for. A `before_id` that is no job's lists nothing."""
        query = select(schema.job).limit(job_filter.limit)
        if job_filter.tenant is not None:
            query = query.where(_job.tenant == job_filter.tenant)
        if job_filter.states is not None:
            query = query.where(_job.state.in_(sorted(state.value for state in job_filter.states)))
            if not any(state.terminal for state in job_filter.states):
                query = query.where(schema.UNFINISHED)
        if job_filter.name is not None:
            query = query.where(_named(job_filter.name))
        if job_filter.since > 0:
            query = query.where(_job.submitted_at >= job_filter.since)
        if not job_filter.owned:
            query = query.where(_job.owner_id.is_(None))
        query = _ordered(query, job_filter.order, job_filter.before_id)
        return [rows.job_of(row) for row in self._all(query)]

    def job_by_key(self, tenant: str, idempotency_key: str) -> JobRecord | None:
        found = self._all(select(schema.job).where(_job.tenant == tenant, _job.idempotency_key == idempotency_key))
        return rows.job_of(found[0]) if found else None

    def jobs_by_key(self, tenant: str, keys: Collection[str]) -> list[JobRecord]:
        """Those of a tenant that were submitted with one of these idempotency keys."""
        query = select(schema.job).where(_job.tenant == tenant)
        return [rows.job_of(row) for row in self._chunked(query, _job.idempotency_key, keys)]

    def unfinished_jobs(self) -> list[JobRecord]:
        """All that are not in a final state, suspended ones included, in the order of their submission."""
        query = select(schema.job).where(schema.UNFINISHED).order_by(_job.submitted_at, _job.id)
        with self._database.reading() as connection, closing(connection.execute(query)) as found:
            # The driver's own rows: there may be a hundred thousand.
            return list(map(rows.job_of, found.cursor.fetchall()))

    def find_jobs(self, prefix_or_name: str, tenant: str | None) -> list[JobRecord]:
        """The job with this id alone; else all with this name or an id that begins so, newest first."""
        in_range = and_(_job.id >= prefix_or_name, _job.id < prefix_or_name + _HIGHEST)
        query = select(schema.job).where(or_(_job.name == prefix_or_name, in_range))
        if tenant is not None:
            query = query.where(_job.tenant == tenant)
        found = [rows.job_of(row) for row in self._all(query.order_by(*_NEWEST_FIRST).limit(_FOUND_LIMIT))]
        return [job for job in found if job.id == prefix_or_name] or found

    def job_counts(self) -> dict[tuple[str, JobState], int]:
        """How many jobs each tenant has in each state; pairs without any are absent."""
        count = select(_job.tenant, _job.state, func.count()).group_by(_job.tenant, _job.state)
        both = union_all(count.where(schema.FINISHED), count.where(schema.UNFINISHED))
        return {(tenant, JobState(state)): jobs for tenant, state, jobs in self._all(both)}

    def usage(self, owner_id: str, since: float) -> list[Usage]:
        """What the jobs of an owner that were submitted since then ran for, those of equal resources and size together;
        what runs now counts from its end on."""
        size = func.coalesce(_job.size, _job.ranks)
        sums = (func.count(), func.sum(_job.ran_s))
        query = select(_job.resources, size, *sums).where(
            _job.owner_id == owner_id, _job.submitted_at >= since, _job.ran_s > 0
        )
        found = self._all(query.group_by(_job.resources, size))
        return [Usage(rows.resources_of(text), ranks, jobs, ran_s) for text, ranks, jobs, ran_s in found]

    def finished_jobs(self, limit: int) -> list[FinishedJob]:
        """Those that are over, the one that ended first first."""
        columns = (_job.id, _job.tenant, _job.ended_at, _job.updated_at, _job.attempt, _job.array_id)
        found = self._all(select(*columns).where(schema.FINISHED).order_by(_job.ended_at, _job.id).limit(limit))
        return [FinishedJob(id_, owner, ended or at, tries, array) for id_, owner, ended, at, tries, array in found]

    def last_ends(self, limit: int) -> list[JobEnd]:
        """How the jobs ended that did so last, of no owner; the one that ended first first."""
        columns = (_job.id, _job.attempt, _job.tenant, _job.name, _job.manifest, _job.resources, _job.ended_at)
        query = select(*columns).where(schema.FINISHED, _job.owner_id.is_(None))
        over = query.order_by(_job.ended_at.desc()).limit(limit).subquery().c
        one = schema.attempt.c
        last = and_(over.id == one.job_id, over.attempt == one.number)
        asked = select(over.tenant, over.name, over.manifest, over.resources, one.outcome, one.error_code, one.ranks)
        return [_end(*row) for row in self._all(asked.where(last).order_by(over.ended_at))]

    # --- job arrays ---

    def array(self, array_id: str) -> ArrayRecord | None:
        found = self._all(select(_array).where(_array.c.id == array_id))
        return ArrayRecord(*found[0]) if found else None

    def find_arrays(self, ref: str, tenant: str | None) -> list[ArrayRecord]:
        """The array with this id, or all of this name, newest first."""
        query = select(_array).where(or_(_array.c.id == ref, _array.c.name == ref))
        if tenant is not None:
            query = query.where(_array.c.tenant == tenant)
        newest = query.order_by(_array.c.submitted_at.desc(), _array.c.id.desc()).limit(_FOUND_LIMIT)
        return [ArrayRecord(*row) for row in self._all(newest)]

    def array_counts(self, array_ids: Collection[str]) -> dict[str, dict[JobState, int]]:
        """How many tasks of each array are in which state; those without any task are absent."""
        found: dict[str, dict[JobState, int]] = {}
        query = select(_job.array_id, _job.state, func.count()).where(schema.IN_ARRAY)
        for array_id, state, count in self._chunked(
            query.group_by(_job.array_id, _job.state), _job.array_id, array_ids
        ):
            found.setdefault(array_id, {})[JobState(state)] = count
        return found

    def array_tasks(self, array_id: str, *, finished: bool = True) -> list[str]:
        """The ids of its tasks in the order of their indices; without those that are over if not `finished`."""
        query = select(_job.id).where(_job.array_id == array_id, schema.IN_ARRAY)
        if not finished:
            query = query.where(schema.UNFINISHED)
        return [row[0] for row in self._all(query.order_by(_job.submitted_at))]

    def folded(self, asked: JobFilter) -> tuple[list[JobRecord], list[ArrayRecord]]:
        """The newest jobs and job arrays, `asked.limit` of both together; tasks of arrays are not among the jobs."""
        after: list[ColumnElement[bool]] = [true(), true()]
        tables = (schema.job, _array)
        if asked.before_id is not None:
            at = [self._all(select(one.c.submitted_at, one.c.id).where(one.c.id == asked.before_id)) for one in tables]
            position = next((found[0] for found in at if found), (0.0, ""))
            after = [tuple_(one.c.submitted_at, one.c.id) < tuple(position) for one in tables]
        queries = [select(one).where(older) for one, older in zip(tables, after, strict=True)]
        if asked.tenant is not None:
            queries = [query.where(one.c.tenant == asked.tenant) for query, one in zip(queries, tables, strict=True)]
        if asked.since > 0:
            queries = [
                query.where(one.c.submitted_at >= asked.since) for query, one in zip(queries, tables, strict=True)
            ]
        queries[0] = queries[0].where(_job.array_id.is_(None))
        if not asked.owned:
            queries[0] = queries[0].where(_job.owner_id.is_(None))
        newest = [
            self._all(query.order_by(one.c.submitted_at.desc(), one.c.id.desc()).limit(asked.limit))
            for query, one in zip(queries, tables, strict=True)
        ]
        jobs, arrays = [rows.job_of(row) for row in newest[0]], [ArrayRecord(*row) for row in newest[1]]
        both: list[JobRecord | ArrayRecord] = [*jobs, *arrays]
        shown = sorted([(one.submitted_at, one.id) for one in both], reverse=True)[: asked.limit]
        least = shown[-1] if shown else (0.0, "")
        return (
            [job for job in jobs if (job.submitted_at, job.id) >= least],
            [array for array in arrays if (array.submitted_at, array.id) >= least],
        )

    def ends(self, ref: str) -> Ends | None:
        """How far the job or the job array of this id is; None if there is neither."""
        job = self.job(ref)
        if job is not None:
            return Ends(int(not job.state.terminal), job.state.terminal and job.state is not JobState.SUCCEEDED)
        counts = self.array_counts([ref]).get(ref)
        if counts is None:
            return None
        over = sum(count for state, count in counts.items() if state.terminal)
        return Ends(sum(counts.values()) - over, over > counts.get(JobState.SUCCEEDED, 0))

    # --- attempts ---

    def attempts(self, job_id: str) -> list[AttemptRecord]:
        """In the order of their numbers."""
        table = schema.attempt.c
        query = select(schema.attempt).where(table.job_id == job_id).order_by(table.number)
        return [rows.attempt_of(row) for row in self._all(query)]

    def current_attempts(self, job_ids: Collection[str]) -> dict[str, AttemptRecord]:
        """The attempt each job is in, or was in last; a job that has none yet is absent."""
        table = schema.attempt.c
        current = and_(_job.id == table.job_id, _job.attempt == table.number)
        query = select(schema.attempt).join(schema.job, current)
        return {row[0]: rows.attempt_of(row) for row in self._chunked(query, table.job_id, job_ids)}

    # --- events ---

    def events(
        self, after: int = 0, *, tenant: str | None = None, job_id: str | None = None, owner_id: str | None = None,
        limit: int = 1000,
    ) -> list[Event]:  # fmt: skip
        """The first `limit` events with a higher sequence number than `after`, in order; those of an owner include
        its jobs'."""
        table = schema.event.c
        query = select(schema.event).where(table.seq > after).order_by(table.seq).limit(limit)
        if tenant is not None:
            query = query.where(table.tenant == tenant)
        if job_id is not None:
            query = query.where(table.job_id == job_id)
        if owner_id is not None:
            query = query.where(table.owner_id == owner_id)
        return [rows.event_of(row) for row in self._all(query)]

    def count_events(self, before: float, job_ids: Collection[str] = ()) -> int:
        """How many `remove_events` and, for these jobs, `remove_jobs` would remove."""
        count, job_id = select(func.count()).select_from(schema.event), schema.event.c.job_id
        old = self._all(count.where(old_events(before, self._living)))[0][0]
        return int(old + sum(row[0] for row in self._chunked(count, job_id, job_ids)))

    def removed_seq(self) -> int:
        """Up to which event some were removed; 0: none ever was."""
        found = self._all(select(schema.removed_events.c.seq))
        return int(found[0][0]) if found else 0

    def last_seq(self) -> int:
        """The sequence number of the newest event; 0 when there is none."""
        return int(self._all(select(func.max(schema.event.c.seq)))[0][0] or 0)

    # --- tenants, tokens, secrets ---

    def tenants(self) -> list[TenantRecord]:
        query = select(schema.tenant).order_by(schema.tenant.c.name)
        return [rows.tenant_of(row) for row in self._all(query)]

    def tokens(self) -> list[TokenRecord]:
        """Revoked ones included, oldest first."""
        query = select(schema.token).order_by(schema.token.c.created_at, schema.token.c.id)
        return [rows.token_of(row) for row in self._all(query)]

    def secret(self, tenant: str, name: str) -> bytes | None:
        """The ciphertext as it was put."""
        table = schema.secret.c
        found = self._all(select(table.ciphertext).where(table.tenant == tenant, table.name == name))
        return bytes(found[0][0]) if found else None

    def secret_names(self, tenant: str) -> list[tuple[str, float]]:
        """Each name with the Unix time it was last put."""
        table = schema.secret.c
        query = select(table.name, table.created_at).where(table.tenant == tenant).order_by(table.name)
        return [(name, created_at) for name, created_at in self._all(query)]

    # --- nodes ---

    def drained_nodes(self) -> dict[str, str]:
        """Why, by name."""
        table = schema.drained_node.c
        return dict(self._all(select(table.name, table.because).order_by(table.name)))

    # --- metrics ---

    def metrics(self, job_id: str, *, name: str | None = None, limit: int = 1000) -> list[MetricPoint]:
        """The newest `limit` points, in the order they arrived."""
        table = schema.metric.c
        query = select(*(table[column] for column in rows.METRIC_COLUMNS)).where(table.job_id == job_id)
        if name is not None:
            query = query.where(table.name == name)
        return [rows.metric_of(row) for row in reversed(self._all(query.order_by(table.id.desc()).limit(limit)))]

    # ---

    def _all(self, query: Select[Any] | CompoundSelect[Any], values: Mapping[str, Any] | None = None) -> list[Any]:
        with self._database.reading() as connection:
            return list(connection.execute(query, values).all())

    def _chunked(self, query: Select[Any], column: ColumnElement[Any], values: Iterable[str]) -> Iterator[Any]:
        wanted = list(values)
        with self._database.reading() as connection:
            for start in range(0, len(wanted), _IDS_PER_QUERY):
                chunk = wanted[start : start + _IDS_PER_QUERY]
                yield from connection.execute(query.where(column.in_(chunk))).all()


def _end(
    tenant: str, name: str, manifest: str, asked: str, outcome: str | None, code: str | None, ranks: str
) -> JobEnd:
    given = orjson.loads(manifest)
    return JobEnd(
        tenant, name, given.get("command") or [given["entrypoint"]], rows.resources_of(asked),
        None if outcome is None else Outcome(outcome), None if code is None else ErrorCode(code),
        max((rank.get("memory_bytes", 0) for rank in orjson.loads(ranks)), default=0),
    )  # fmt: skip


def _named(pattern: str) -> ColumnElement[bool]:
    """Whether a job's name is the pattern, or matches it. Names are in lower case: SQLite's LIKE ignores the case."""
    if not any(sign in pattern for sign in "*?"):
        return _job.name == pattern
    literal = pattern.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return _job.name.like(literal.replace("*", "%").replace("?", "_"), escape="!")


def _ordered(query: Select[Any], order: JobOrder, before_id: str | None) -> Select[Any]:
    """The query in this order, from the job after that one."""
    position = schema.job.alias().c
    newest = select(position.submitted_at, position.id).where(position.id == before_id).scalar_subquery()
    older = tuple_(_job.submitted_at, _job.id) < newest
    if order is JobOrder.SUBMITTED:
        return (query if before_id is None else query.where(older)).order_by(*_NEWEST_FIRST)
    rising = order in (JobOrder.NAME, JobOrder.STATE)
    first = _order_key(_job, order)
    query = query.order_by(first.asc() if rising else first.desc(), *_NEWEST_FIRST)
    if before_id is None:
        return query
    start = select(_order_key(position, order)).where(position.id == before_id).scalar_subquery()
    return query.where(or_(first > start if rising else first < start, and_(first == start, older)))


def _order_key(columns: Any, order: JobOrder) -> ColumnElement[Any]:
    keys: dict[JobOrder, ColumnElement[Any]] = {
        JobOrder.SUBMITTED: columns.submitted_at,
        JobOrder.STARTED: func.coalesce(columns.started_at, 0.0),
        JobOrder.ENDED: func.coalesce(columns.ended_at, 0.0),
        JobOrder.RAN: columns.ran_s,
        JobOrder.WAITED: columns.waited_s,
        JobOrder.NAME: columns.name,
        JobOrder.STATE: columns.state,
    }
    return keys[order]


def lease_holder(connection: Connection) -> Any:
    """The row of the control lease: epoch, holder, host, pid, since."""
    return connection.execute(select(schema.control_lease)).one()


def read_tokens(url: str) -> list[TokenRecord]:
    """Those of a database that need not be open: it stays as it is, also one of an earlier version."""
    database = Database(url)
    try:
        return Reads(database).tokens()
    finally:
        database.close()
