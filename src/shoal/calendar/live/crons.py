"""Cron jobs: kept, changed, and fired when they are due.

A time is settled in one transaction with the job that it gets: the position of the cron job, the job and their events
are stored together or not at all. So a server that dies at any point neither loses a job nor submits one twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import structlog
from sqlalchemy import Connection, delete, insert, select, update

from shoal.base.loops import Defects
from shoal.calendar.live.events import CalendarEvent
from shoal.calendar.live.records import CronRecord, Entry, cron_of, values_of
from shoal.calendar.live.tables import cron as table
from shoal.calendar.live.tables import cron_entry as entries
from shoal.calendar.schedule import Due, Missed, Overlap, Schedule, due, shown_at
from shoal.contract.manifest import JobManifest
from shoal.contract.records import NewEvent
from shoal.core import Conflict, Invalid, LeaseLost, NotFound, Overloaded, ShoalError, Unavailable
from shoal.extension import Beside, Server

log = structlog.get_logger("shoal.calendar")

ACTOR = "cron"
LABEL = "cron"
_AGAIN_S = 15.0
"""A job that cannot be accepted for now is tried again so often. The clock is looked at as often: it may leap."""
_LAST = 50
"""The number of versions whose entries are kept."""
_MOST_LABELS = 64


class Crons:
    """The cron jobs of all tenants. A time is missed when it is more than `late_s` ago."""

    def __init__(self, server: Server, *, late_s: float, most: int) -> None:
        self._server = server
        self._late_s, self._most = late_s, most
        self._records: dict[str, CronRecord] = {}
        self._told: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._defects = Defects(log)

    def load(self) -> None:
        rows = self._server.store.rows(select(table))
        self._records = {record.id: record for record in map(cron_of, rows)}

    # --- what there is ---

    def of(self, tenant: str | None) -> list[CronRecord]:
        found = [one for one in self._records.values() if tenant in (None, one.tenant)]
        return sorted(found, key=lambda one: (one.tenant, one.name))

    def find(self, name: str, tenant: str) -> CronRecord:
        """By its name. Raises NotFound."""
        found = self._named(name, tenant)
        if found is None:
            raise NotFound(
                f"tenant {tenant} has no cron job {name!r}", where=name, hint="`shoal cron list` lists what there is"
            )
        return found

    def _named(self, name: str, tenant: str) -> CronRecord | None:
        return next((one for one in self._records.values() if (one.tenant, one.name) == (tenant, name)), None)

    def next_at(self, record: CronRecord) -> float | None:
        return None if record.suspended else next(record.schedule.times(record.position), None)

    def due(self) -> bool:
        """Whether any has a time to come, as far as that is known without looking."""
        return any(not record.suspended or record.replaces is not None for record in self._records.values())

    def trouble(self, record: CronRecord) -> str:
        """Why its last time got no job, or gets none for now."""
        return self._told.get(record.id, record.trouble)

    def history(self, record: CronRecord) -> list[Entry]:
        """What happened lately, the newest last."""
        columns = entries.c
        query = select(columns.kind, columns.said, columns.at, columns.job, columns.due_at)
        rows = self._server.store.rows(query.where(columns.cron_id == record.id).order_by(columns.version))
        return [Entry(*row) for row in rows]

    def bundles(self) -> Iterator[tuple[str, str]]:
        """The archives of working files that their jobs will need."""
        for record in self._records.values():
            if record.job.bundle is not None:
                yield record.tenant, record.job.bundle

    # --- what people change ---

    async def add(
        self, name: str, manifest: JobManifest, schedule: Schedule, *, tenant: str, actor: str,
        overlap: Overlap, missed: Missed, again: bool, require: Callable[[CronRecord], None] = lambda _: None,
    ) -> tuple[CronRecord, bool]:  # fmt: skip
        """Make one; with `again` change the one of this name, if `require` lets it pass. Raises Invalid, Conflict, and
        as a submission would."""
        now = self._server.clock.now()
        schedule.check(now)
        await self._server.check(manifest, tenant=tenant)
        fresh = CronRecord(
            self._server.new_id("c"), tenant, name, 1, schedule.expression, schedule.zone, overlap, missed, False,
            manifest.canonical_json(), actor, now, now, now,
        )  # fmt: skip
        old = self._named(name, tenant)
        if old is not None and old.definition == fresh.definition:
            return old, False
        if old is not None and not again:
            raise Conflict(f"there is a cron job {name} already", where="name", hint="--replace changes it")
        if old is not None:
            require(old)
            changed = replace(
                old, expression=fresh.expression, zone=fresh.zone, overlap=overlap, missed=missed,
                manifest=fresh.manifest, position=now, trouble="", created_by=actor,
            )  # fmt: skip
            told = Entry(CalendarEvent.CHANGED, f"cron job {name} was changed: {schedule.expression}")
            return await self._write(changed, told, actor), False
        alone = self._server.plane is None  # a plane makes as many tenants as it likes
        if len(self.of(tenant if alone else None)) >= self._most:
            whose = f"tenant {tenant} has" if alone else "all tenants together have"
            what = f"{whose} {self._most} cron jobs already"
            raise Overloaded(what, where="calendar.most_crons", hint="remove one, or ask for a higher limit")
        told = Entry(CalendarEvent.CREATED, f"cron job {name} was made: {schedule.expression}", now)

        def run(connection: Connection) -> bool:
            connection.execute(insert(table).values(values_of(fresh)))
            _tell(connection, fresh, told)
            return True

        await self._server.store.transact(run, [_event(fresh, told, actor)])
        self._keep(fresh)
        return fresh, True

    async def set_suspended(self, record: CronRecord, suspended: bool, *, actor: str) -> CronRecord:
        """The times that pass until it is resumed get no jobs."""
        if record.suspended == suspended:
            return record
        changed = replace(record, suspended=suspended, position=max(self._server.clock.now(), record.position))
        text = f"cron job {record.name} was {'suspended' if suspended else 'resumed'}"
        return await self._write(changed, Entry(CalendarEvent.CHANGED, text), actor)

    async def remove(self, record: CronRecord, *, actor: str) -> None:
        """Its jobs stay as they are."""
        text = f"cron job {record.name} was removed"
        told = _event(record, Entry(CalendarEvent.REMOVED, text, self._server.clock.now()), actor)

        def run(connection: Connection) -> bool:
            connection.execute(delete(entries).where(entries.c.cron_id == record.id))
            return connection.execute(delete(table).where(table.c.id == record.id)).rowcount == 1

        await self._server.store.transact(run, [told])
        self._records.pop(record.id, None)
        self._told.pop(record.id, None)

    async def run_now(self, record: CronRecord, key: str, *, actor: str) -> tuple[str, bool]:
        """Its job, whatever the time. The same key twice is one job."""
        return await self._submit(record, record, f"{record.id}/{key}", None, actor, 0)

    # --- the loop ---

    async def watch(self) -> None:
        """Settle what is due, for ever."""
        while True:
            self._changed.clear()
            wait_s = await self._settle_all()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait_s)

    async def _settle_all(self) -> float:
        """How long nothing is due then."""
        wait_s = _AGAIN_S
        for record in list(self._records.values()):
            try:
                next_at = await self._settle(record)
            except LeaseLost:
                raise
            except ShoalError as error:
                self._put_off(record, error)
            except Exception as error:  # of one cron job: the others go on
                self._defects.note("a cron job failed by a defect", error, cron=record.id)
                self._told[record.id] = f"{type(error).__name__}: {error}"
            else:
                if next_at is not None:
                    wait_s = min(wait_s, next_at - self._server.clock.now())
        return max(0.01, wait_s)

    async def _settle(self, record: CronRecord) -> float | None:
        """Its next time, if it goes on."""
        if record.replaces is not None:
            record = await self._cancel_replaced(record)
        if record.suspended:
            return None
        now = self._server.clock.now()
        found = due(record.schedule, record.position, now, record.missed, self._late_s)
        if found.position == record.position:
            return found.next_at
        settled = replace(record, position=found.position, trouble="")
        if found.at is None:
            text = f"{_times(found.missed)} of cron job {record.name} passed while no server ran"
            await self._write(settled, Entry(CalendarEvent.MISSED, text))
        elif record.overlap is Overlap.SKIP and self._open(record.last_job):
            text = f"cron job {record.name}: {record.last_job}, of the time before, is not over"
            await self._write(settled, Entry(CalendarEvent.SKIPPED, text, due_at=found.at))
        else:
            await self._fire(record, settled, found)
        self._told.pop(record.id, None)
        return found.next_at

    async def _fire(self, record: CronRecord, settled: CronRecord, found: Due) -> None:
        assert found.at is not None
        try:
            await self._submit(record, settled, f"{record.id}@{found.at:.0f}", found.at, ACTOR, found.missed)
        except (Overloaded, Unavailable, LeaseLost):
            raise  # tried again until its next time
        except ShoalError as error:
            if self._is_stale(record):
                raise
            text = f"cron job {record.name}: its job was not accepted: {error}"
            told = replace(settled, trouble=str(error))
            await self._write(told, Entry(CalendarEvent.REFUSED, text, due_at=found.at))

    async def _submit(
        self, record: CronRecord, settled: CronRecord, key: str, at: float | None, actor: str, missed: int
    ) -> tuple[str, bool]:
        """The id of the job or array, and whether it is new. `at` is None for one that nobody planned."""
        before = record.last_job if at is not None and self._open(record.last_job) else None
        now = self._server.clock.now()
        if before is not None and record.overlap is Overlap.REPLACE:
            settled = replace(settled, replaces=before)
        stored = settled

        def told(job_id: str) -> Entry:
            text = f"cron job {record.name} submitted {job_id}"
            text += "" if at is None else f", due {shown_at(at, record.zone)}"
            text += f"; {_times(missed)} before it passed while no server ran" if missed else ""
            return Entry(CalendarEvent.FIRED, text, now, job_id, at)

        def run(connection: Connection, job_id: str) -> bool:
            nonlocal stored
            stored = replace(settled, version=record.version + 1, updated_at=now, last_job=job_id, last_at=now)
            return _put(connection, stored, told(job_id))

        beside = Beside(run, lambda job_id: [_event(record, told(job_id), actor)])
        self._server.fault("before-cron")
        job, created = await self._server.submit(
            _job_of(record, before),
            tenant=record.tenant,
            actor=actor if at is None else record.created_by,
            key=key,
            beside=beside,
        )
        self._server.fault("after-cron")
        job_id = job.array_id or job.id
        if created:
            self._keep(stored)
        elif at is not None:  # its tenant has used this key for the same job by itself
            await self._write(replace(settled, last_job=job_id, last_at=now), told(job_id))
        return job_id, created

    async def _cancel_replaced(self, record: CronRecord) -> CronRecord:
        store, ref = self._server.store, record.replaces or ""
        tasks = store.array_tasks(ref, finished=False) if store.array(ref) is not None else [ref]
        for job_id in tasks:
            with suppress(NotFound):
                await self._server.cancel(job_id, actor=ACTOR, cause=f"replaced by the next job of cron {record.name}")
        return await self._write(replace(record, replaces=None))

    def _open(self, ref: str | None) -> bool:
        """Whether this job, or a task of this array, is not over."""
        if ref is None:
            return False
        ends = self._server.store.ends(ref)
        return ends is not None and ends.open_jobs > 0

    def _put_off(self, record: CronRecord, error: ShoalError) -> None:
        """It is tried again soon: with what is stored now, where it was changed meanwhile."""
        if self._is_stale(record):
            self._changed.set()
            return
        if self._told.get(record.id) != str(error):
            log.warning("a cron job has to wait", cron=record.id, error=str(error))
        self._told[record.id] = str(error)

    # --- rows ---

    def _is_stale(self, record: CronRecord) -> bool:
        """Whether another version is stored than this one, which is looked up then."""
        if self._records.get(record.id) is not record:
            return True
        rows = self._server.store.rows(select(table).where(table.c.id == record.id))
        stored = cron_of(rows[0]) if rows else None
        if stored is not None and stored.version == record.version:
            return False
        if stored is None:
            self._records.pop(record.id)
        else:
            self._records[record.id] = stored
        return True

    async def _write(self, changed: CronRecord, told: Entry | None = None, actor: str = ACTOR) -> CronRecord:
        """The next version of a record. Raises Conflict where it was changed meanwhile."""
        now = self._server.clock.now()
        stored = replace(changed, version=changed.version + 1, updated_at=now)
        entry = None if told is None else replace(told, at=now)
        events = [] if entry is None else [_event(stored, entry, actor)]
        if not await self._server.store.transact(lambda connection: _put(connection, stored, entry), events):
            raise Conflict(f"cron job {changed.name} was changed meanwhile", where=changed.name, hint="try again")
        self._keep(stored)
        return stored

    def _keep(self, record: CronRecord) -> None:
        self._records[record.id] = record
        self._changed.set()


def _job_of(record: CronRecord, before: str | None) -> JobManifest:
    """What is submitted: it waits for the job of the time before, and says whose it is. Raises Invalid where a manifest
    cannot name one more job that it waits for."""
    values = record.job.values()
    if before is not None:
        values["after"] = [*values.get("after", ()), {"job": before, "when": "end"}]
    labels = values.get("labels", {})
    if LABEL not in labels and len(labels) < _MOST_LABELS:
        values["labels"] = {**labels, LABEL: record.name}
    try:
        return JobManifest.model_validate(values)
    except ValueError:
        raise Invalid(
            "its manifest waits for the most jobs possible, so it cannot wait for the one before", where="after",
            hint="--overlap skip, or name fewer jobs",
        ) from None  # fmt: skip


def _put(connection: Connection, record: CronRecord, entry: Entry | None) -> bool:
    """Whether the row was of the version before."""
    before = update(table).where(table.c.id == record.id, table.c.version == record.version - 1)
    if connection.execute(before.values(values_of(record))).rowcount != 1:
        return False
    if entry is not None:
        _tell(connection, record, entry)
    return True


def _tell(connection: Connection, record: CronRecord, entry: Entry) -> None:
    values = {
        "cron_id": record.id, "version": record.version, "at": entry.at, "kind": str(entry.kind), "said": entry.text,
        "job": entry.job, "due_at": entry.due_at,
    }  # fmt: skip
    connection.execute(insert(entries).values(values))
    old = delete(entries).where(entries.c.cron_id == record.id, entries.c.version <= record.version - _LAST)
    connection.execute(old)


def _event(record: CronRecord, entry: Entry, actor: str) -> NewEvent:
    data = {"job": entry.job, "due_at": entry.due_at} if entry.job is not None or entry.due_at is not None else {}
    return NewEvent(entry.at, entry.kind, actor, entry.text, tenant=record.tenant, data=data, owner_id=record.id)


def _times(count: int) -> str:
    return "a time" if count == 1 else f"{count} times"
