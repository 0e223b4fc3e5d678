"""The store's public face: leases, writes, and (from `Reads`) reads."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from sqlalchemy import Connection, Table, delete, literal_column, update

from shoal.contract.events import EventKind
from shoal.contract.records import (
    ArrayRecord,
    BundleRecord,
    Change,
    Event,
    JobRecord,
    MetricPoint,
    NewEvent,
    ReadPosition,
    TenantRecord,
    TokenRecord,
)
from shoal.core import Clock, Conflict, Invalid, LeaseLost, NotFound, SystemClock
from shoal.store import operations, removal, rows, schema, statements
from shoal.store.database import Database
from shoal.store.lease import control_lock
from shoal.store.migrate import migrate
from shoal.store.operations import BULKS, Other
from shoal.store.position import Position
from shoal.store.reads import Reads, lease_holder
from shoal.store.tables import Tables
from shoal.store.writer import Writer
from shoal.store.writer_threads import WriterThreads

_RELEASED = LeaseLost("control of the database was released", hint="acquire it again to write")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    sync: bool = True,
    inline: bool = False,
    tables: Sequence[Tables] = (),
    threads: WriterThreads | None = None,
) -> Store:
    """Bring the database to the newest revision and open it, with the `tables` of extensions.

    `url` is sqlite:///PATH, sqlite:// (in memory) or postgresql://...; `sync=False` gives up the flush at every commit
    (for comparisons only: a power cut may then take acknowledged writes). `inline=True` uses no threads. `threads`
    write for other stores too, and outlive this one; by default it has a thread of its own. Their commits are seen by
    readers a moment before they are on disk, but not acknowledged.
    Raises Invalid for a bad URL, Unavailable when the database cannot be reached, Conflict when it is too new.
    """
    database = Database(url, sync=sync, flush_apart=threads is not None)
    try:
        migrate(database, tables)
    except BaseException:
        database.close()
        raise
    return Store(database, clock or SystemClock(), sync=sync, inline=inline, tables=tables, threads=threads)


class Store(Reads):
    """Jobs, events, tenants, tokens, secrets and metrics, in one database; see the package's docstring.

    Writes raise Conflict (illegal step, taken key), LeaseLost (fenced), Invalid (cannot be stored) or Unavailable (disk
    full, database away); then nothing of that write is stored. Only when PostgreSQL vanishes during a commit may it be
    stored after all: versions and idempotency keys make repeating it safe. Reads raise Unavailable.
    """

    def __init__(
        self, database: Database, clock: Clock, *, sync: bool, inline: bool, tables: Sequence[Tables] = (),
        threads: WriterThreads | None = None,
    ) -> None:  # fmt: skip
        super().__init__(database, tables)
        self._clock = clock
        self._lock = control_lock(database)
        self._position = Position(database.path, sync=sync and threads is None) if database.path is not None else None
        self._own_threads = WriterThreads() if threads is None and not inline else None
        self._writer = Writer(database, self._lock, self._position, threads or self._own_threads)
        self._released = False

    # --- the control lease ---

    @property
    def epoch(self) -> int:
        """The epoch of the control lease this store holds; 0: none."""
        return self._writer.epoch

    @property
    def in_home(self) -> bool:
        """Whether the database is a file, and so on this machine's disk."""
        return self._database.path is not None

    @property
    def url(self) -> str:
        """Of the database, without its password."""
        return str(self._database)

    def acquire(self, holder: str, *, wait_s: float = 0) -> int:
        """Take the control lease, waiting at most so long for another holder to end. Returns the new epoch.

        Raises Conflict naming the present holder, and when this store has lost the lease before.
        """
        if self.epoch:
            return self.epoch
        if not self._lock.take(wait_s):
            raise self._held()
        host, pid, now = socket.gethostname(), os.getpid(), self._clock.now()

        def run(connection: Connection) -> tuple[int, bool]:
            table = schema.control_lease
            taken = update(table).values(epoch=table.c.epoch + 1, holder=holder, host=host, pid=pid, since=now)
            connection.execute(taken)
            return int(lease_holder(connection).epoch), True

        event = NewEvent(
            now, EventKind.CONTROL_LEASE_TAKEN, holder, f"{holder} took control", data={"host": host, "pid": pid}
        )
        with self._database.lock:  # no other thread writes before the new epoch stands
            if self._released:
                self._writer.admit()
            try:
                epoch: int = self._writer.write_now(Other(run, operations.pending([event])))
            except BaseException:
                self._lock.drop()
                if self._released:
                    self._writer.refuse(_RELEASED)
                raise
            self._writer.hold(epoch)
            self._released = False
        return epoch

    def release(self) -> None:
        """Give the control lease back. What is queued is refused: callers stop writing first."""
        if not self.epoch:
            return
        self._writer.refuse(_RELEASED)
        self._lock.drop()
        self._released = True

    def _held(self) -> Conflict:
        with self._database.reading() as connection:
            row = lease_holder(connection)
        since = datetime.fromtimestamp(row.since, UTC).isoformat(timespec="seconds")
        return Conflict(
            f"{row.holder or 'another process'} controls this database: pid {row.pid} on {row.host}, since {since}",
            where=str(self._database),
            hint="stop it first (shoal down), or give another database",
        )

    # --- jobs ---

    async def submit(self, job: JobRecord, events: Sequence[NewEvent]) -> JobRecord:
        """Store a new job, once per (tenant, idempotency key).

        Returns the stored job: an earlier one when the key and the fingerprint are the same. Raises Conflict when the
        key was used for another job, or the id is taken.
        """
        stored: JobRecord = await self._writer.write(operations.submit(job, events))
        return stored

    async def submit_array(
        self, array: ArrayRecord, tasks: Sequence[JobRecord], events: Sequence[NewEvent]
    ) -> JobRecord:
        """Store a new job array with all its tasks, as `submit` does a job; returns the first task as it is stored."""
        stored: JobRecord = await self._writer.write(operations.submit_array(array, tasks, events))
        return stored

    async def apply(self, change: Change) -> bool:
        """Move a job. False when the stored version is not `before.version` any more: then nothing is written.

        Raises Conflict when the step is illegal: the change's job.state events must lead from `before.state` to
        `after.state` along the table of transitions. What the job reported is not written.
        """
        applied: list[bool] = await self._writer.write(operations.apply((change,)))
        return applied[0]

    async def apply_all(self, changes: Sequence[Change]) -> list[bool]:
        """Apply many in one transaction, each guarded by its own version."""
        if not changes:
            return []
        applied: list[bool] = await self._writer.write(operations.apply(changes))
        return applied

    async def update_progress(
        self, job_id: str, progress: Mapping[str, Any], position: ReadPosition | None = None
    ) -> None:
        """Replace a job's progress, read up to this position: no event, no new version; nothing happens when there is
        no such job."""
        await self._writer.write(operations.Progress((job_id, *rows.reported_row(progress, position))))

    async def add_metrics(self, points: Sequence[MetricPoint]) -> None:
        if points:
            await self._writer.write(operations.add_metrics(points))

    # --- tables of extensions ---

    async def transact(
        self, run: Callable[[Connection], bool], events: Sequence[NewEvent] = (), *,
        owner_id: str | None = None, jobs: Sequence[JobRecord] = (), array: ArrayRecord | None = None,
    ) -> bool:  # fmt: skip
        """Write an extension's own rows together with the events that tell of it and the `jobs` that come with it (the
        tasks of `array`, if given), all in one transaction. What `run` gives: False, having changed nothing, for a step
        that is not current; then neither events nor jobs are stored.

        `run` is called by the writer, perhaps in another thread and perhaps twice, and only writes. All events are
        also those of `owner_id`. Raises Conflict for a key that is taken, and what `run` raises.
        """
        submitted = [rows.job_row(job) for job in jobs]

        def both(connection: Connection) -> tuple[bool, bool]:
            done = run(connection)
            if done and array is not None:
                statements.run(connection, BULKS["arrays"], [rows.array_row(array)])
            if done:
                statements.run(connection, BULKS["jobs"], submitted)
            return done, done

        done: bool = await self._writer.write(Other(both, operations.pending(events, owner_id)))
        return done

    # --- events ---

    async def record(self, events: Sequence[NewEvent]) -> None:
        """Store events that change nothing else."""
        if events:
            await self._writer.write(operations.record(events))

    def record_now(self, event: NewEvent) -> None:
        """The same in the caller's thread, for a store that no event loop uses yet."""
        self._writer.write_now(operations.record([event]))

    def subscribe(self, callback: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """Call `callback` after each commit with its events in order; returns how to end that.

        It runs on the event loop that subscribes, or without one on the loop that awaited the write; inline, in the
        writing caller. It must be quick; what it raises is logged.
        """
        return self._writer.subscribe(callback)

    # --- bundles ---

    async def put_bundle(self, record: BundleRecord, event: NewEvent | None = None) -> None:
        """Create or replace the tenant's record of a bundle. Raises Conflict for an unknown tenant."""
        await self._put(schema.bundle, asdict(record), *(() if event is None else (event,)))

    async def remove_bundle(self, record: BundleRecord, event: NewEvent) -> bool:
        """Remove a tenant's record of a bundle; True when no other tenant has the same content."""
        last: bool = await self._writer.write(
            Other(lambda connection: (removal.remove_bundle(connection, record), True), operations.pending([event]))
        )
        return last

    # --- removing what is over ---

    async def remove_jobs(self, job_ids: Sequence[str], event: NewEvent) -> int:
        """Remove jobs that are over with their attempts, metrics, events and idempotency keys; how many events these
        were. One that is not over stays."""
        events: int = await self._writer.write(
            Other(lambda connection: (removal.remove_jobs(connection, job_ids), True), operations.pending([event]))
        )
        return events

    async def remove_events(self, before: float, limit: int) -> int:
        """Remove at most `limit` events older than that, of no job and of nothing that lives; how many there were."""
        old = removal.old_events(before, self._living)
        events: int = await self._writer.write(
            Other(lambda connection: (removal.remove_events(connection, old, limit), False), ())
        )
        return events

    # --- tenants, tokens, secrets ---

    async def put_tenant(self, record: TenantRecord, event: NewEvent) -> None:
        """Create or replace a tenant."""
        await self._put(schema.tenant, rows.tenant_values(record), event)

    async def put_token(self, record: TokenRecord, event: NewEvent) -> None:
        """Create or replace a token. Raises Invalid unless it is given by its SHA-256, Conflict for an unknown tenant
        or a hash that another token has."""
        if not _SHA256.fullmatch(record.token_sha256):
            raise Invalid("a token is stored by its SHA-256 only", where="token_sha256", hint="64 hexadecimal digits")
        await self._put(schema.token, rows.token_values(record), event)

    async def revoke_token(self, token_id: str, event: NewEvent) -> None:
        """Raises NotFound for an unknown token; one that was revoked before stays as it was."""
        table = schema.token

        def run(connection: Connection) -> tuple[None, bool]:
            revoke = update(table).where(table.c.id == token_id, table.c.revoked_at.is_(None))
            if connection.execute(revoke.values(revoked_at=event.at)).rowcount:
                return None, True
            if connection.scalar(table.select().where(table.c.id == token_id)) is None:
                raise NotFound(f"there is no token {token_id!r}", hint="list the tokens to see their ids")
            return None, False

        await self._writer.write(Other(run, operations.pending([event])))

    async def put_secret(self, tenant: str, name: str, ciphertext: bytes, event: NewEvent) -> None:
        """Create or replace a secret, already encrypted. Raises Conflict for an unknown tenant."""
        values = {"tenant": tenant, "name": name, "ciphertext": ciphertext, "created_at": event.at}
        await self._put(schema.secret, values, event)

    async def delete_secret(self, tenant: str, name: str, event: NewEvent) -> bool:
        """False, and no event, when there was none."""
        table = schema.secret

        def run(connection: Connection) -> tuple[bool, bool]:
            gone = connection.execute(delete(table).where(table.c.tenant == tenant, table.c.name == name)).rowcount > 0
            return gone, gone

        deleted: bool = await self._writer.write(Other(run, operations.pending([event])))
        return deleted

    async def drain_node(self, name: str, because: str, event: NewEvent) -> None:
        """Remember that a node is drained, or why anew."""
        await self._put(schema.drained_node, {"name": name, "because": because, "created_at": event.at}, event)

    async def undrain_node(self, name: str, event: NewEvent) -> bool:
        """False, and no event, when it was not drained."""
        table = schema.drained_node

        def run(connection: Connection) -> tuple[bool, bool]:
            gone = connection.execute(delete(table).where(table.c.name == name)).rowcount > 0
            return gone, gone

        undrained: bool = await self._writer.write(Other(run, operations.pending([event])))
        return undrained

    async def _put(self, table: Table, values: Mapping[str, Any], *events: NewEvent) -> None:
        dialect = import_module("sqlalchemy.dialects." + ("sqlite" if self._database.is_sqlite else "postgresql"))
        keys = [column.name for column in table.primary_key]
        replaced: dict[str, Any] = {name: literal_column(f"excluded.{name}") for name in values if name not in keys}
        statement = dialect.insert(table).values(**values).on_conflict_do_update(index_elements=keys, set_=replaced)

        def run(connection: Connection) -> tuple[None, bool]:
            connection.execute(statement)
            return None, True

        await self._writer.write(Other(run, operations.pending(events)))

    # ---

    def release_memory(self) -> None:
        """As `Database.release_memory`."""
        self._database.release_memory()

    def close(self) -> None:
        """Write what is queued, give back the lease, and close all connections. May be repeated."""
        self._writer.close()
        if self._own_threads is not None:
            self._own_threads.close()
        self._lock.drop()
        self._database.close()
        if self._position is not None:
            self._position.close()
