"""Tables of artifacts, of contents, and of attempts whose files are still to be taken."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence, Set
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from shoal.contract.records import NewEvent
from shoal.results.keeping.retention import Kept
from shoal.store import Key, Store, Tables, new_metadata

metadata = new_metadata()

_artifact = Table(
    "results_artifact",
    metadata,
    Column("id", Key, primary_key=True),
    Column("tenant", Key, nullable=False),
    Column("job", Key, nullable=False),
    Column("job_name", Key, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("name", Key, nullable=False),
    Column("digest", Key, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("taken_at", Double, nullable=False),
    Column("pinned", Boolean, nullable=False),
    Column("by", Text, nullable=False),
    Index("ix_results_artifact_job", "job"),
    Index("ix_results_artifact_job_name", "tenant", "job_name"),
)

_content = Table(
    "results_content",
    metadata,
    Column("tenant", Key, primary_key=True),
    Column("digest", Key, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
)

_pending = Table(
    "results_pending",
    metadata,
    Column("job", Key, primary_key=True),
    Column("attempt", Integer, primary_key=True),
)

TABLES = Tables("results", metadata)

_COLUMNS = [one.name for one in fields(Kept)]
_MOST_IDS = 500
RECENT = 50


@dataclass(slots=True)
class Used:
    """What a tenant takes."""

    bytes: int = 0
    files: int = 0


class Repository:
    """The tables; contents and what tenants take are also in memory. Contents of a tenant, and artifacts, are changed
    by one task at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.contents: dict[tuple[str, str], int] = {}
        self.used: defaultdict[str, Used] = defaultdict(Used)
        self.sizes: defaultdict[str, Counter[int]] = defaultdict(Counter)
        """How many contents of a tenant have a size."""
        self.recent: defaultdict[str, deque[Kept]] = defaultdict(lambda: deque(maxlen=RECENT))
        """A tenant's newest artifacts, the newest first."""
        self.pending: set[tuple[str, int]] = set()
        self._ids: set[str] = set()

    def open(self) -> None:
        rows = self._store.rows(select(_content))
        self.contents = {(str(tenant), str(digest)): int(size) for tenant, digest, size in rows}
        self.used.clear()
        self.sizes.clear()
        for (tenant, _), size in self.contents.items():
            self.used[tenant].bytes += size
            self.sizes[tenant][size] += 1
        self._ids = set()
        self.recent.clear()
        for one in reversed(self.all()):
            self._ids.add(one.id)
            self.recent[one.tenant].appendleft(one)
            self.used[one.tenant].files += 1
        self.pending = {(str(job), int(attempt)) for job, attempt in self._store.rows(select(_pending))}

    # --- reading: blocks ---

    def all(self, tenant: str | None = None) -> list[Kept]:
        return self._kept(_artifact.c.tenant == tenant if tenant is not None else _artifact.c.id.is_not(None))

    def get(self, id_: str) -> Kept | None:
        return next(iter(self._kept(_artifact.c.id == id_)), None)

    def of_job(self, job: str) -> list[Kept]:
        return self._kept(_artifact.c.job == job)

    def of_name(self, tenant: str | None, job_name: str) -> list[Kept]:
        named = _artifact.c.job_name == job_name
        return self._kept(named & (_artifact.c.tenant == tenant) if tenant is not None else named)

    def of_prefix(self, tenant: str | None, prefix: str) -> list[Kept]:
        begun = _artifact.c.job.startswith(prefix, autoescape=True)
        return self._kept(begun & (_artifact.c.tenant == tenant) if tenant is not None else begun)

    def uploads(self, tenant: str | None) -> list[Kept]:
        return self.of_name(tenant, "")

    def _kept(self, condition: Any) -> list[Kept]:
        columns = [_artifact.c[name] for name in _COLUMNS]
        query = select(*columns).where(condition).order_by(_artifact.c.taken_at.desc(), _artifact.c.name)
        return [Kept(*row) for row in self._store.rows(query)]

    # --- writing ---

    async def begin(self, job: str, attempt: int) -> None:
        """Files of this attempt are to be taken."""
        row = {"job": job, "attempt": attempt}

        def write(connection: Connection) -> bool:
            connection.execute(delete(_pending).where(_pending.c.job == job, _pending.c.attempt == attempt))
            connection.execute(insert(_pending).values(row))
            return True

        await self._store.transact(write)
        self.pending.add((job, attempt))

    async def done(self, job: str, attempt: int, events: Sequence[NewEvent]) -> None:
        """They are taken."""

        def write(connection: Connection) -> bool:
            connection.execute(delete(_pending).where(_pending.c.job == job, _pending.c.attempt == attempt))
            return True

        await self._store.transact(write, events)
        self.pending.discard((job, attempt))

    async def add(self, one: Kept, events: Sequence[NewEvent] = ()) -> None:
        """Its content is there. One of the same id is replaced, and stays pinned."""
        row = {name: getattr(one, name) for name in _COLUMNS}
        new = (one.tenant, one.digest) not in self.contents

        def write(connection: Connection) -> bool:
            was = connection.execute(select(_artifact.c.pinned).where(_artifact.c.id == one.id)).scalar()
            connection.execute(delete(_artifact).where(_artifact.c.id == one.id))
            connection.execute(insert(_artifact).values({**row, "pinned": bool(was) or one.pinned}))
            if new:
                connection.execute(insert(_content).values(tenant=one.tenant, digest=one.digest, bytes=one.bytes))
            return True

        await self._store.transact(write, events)
        if new:
            self.contents[one.tenant, one.digest] = one.bytes
            self.used[one.tenant].bytes += one.bytes
            self.sizes[one.tenant][one.bytes] += 1
        self._leave_out(one.tenant, {one.id})
        self.recent[one.tenant].appendleft(one)
        if one.id not in self._ids:
            self._ids.add(one.id)
            self.used[one.tenant].files += 1

    async def pin(self, one: Kept, events: Sequence[NewEvent]) -> None:
        """Keep whether it is pinned."""

        def write(connection: Connection) -> bool:
            connection.execute(update(_artifact).where(_artifact.c.id == one.id).values(pinned=one.pinned))
            return True

        await self._store.transact(write, events)
        self.recent[one.tenant] = deque(
            [one if known.id == one.id else known for known in self.recent[one.tenant]], maxlen=RECENT
        )

    def _leave_out(self, tenant: str, ids: Set[str]) -> None:
        self.recent[tenant] = deque([one for one in self.recent[tenant] if one.id not in ids], maxlen=RECENT)

    async def remove(self, tenant: str, gone: Sequence[Kept], events: Sequence[NewEvent]) -> list[str]:
        """Forget artifacts of a tenant, and the contents that none names any more: their digests, to be removed."""
        ids, freed = [one.id for one in gone], list[str]()

        def write(connection: Connection) -> bool:
            freed.clear()
            for at in range(0, len(ids), _MOST_IDS):
                connection.execute(delete(_artifact).where(_artifact.c.id.in_(ids[at : at + _MOST_IDS])))
            freed.extend(_unused(connection, tenant))
            for at in range(0, len(freed), _MOST_IDS):
                some = _content.c.digest.in_(freed[at : at + _MOST_IDS])
                connection.execute(delete(_content).where(_content.c.tenant == tenant, some))
            return True

        await self._store.transact(write, events)
        self._leave_out(tenant, set(ids))
        for one in gone:
            if one.id in self._ids:
                self._ids.discard(one.id)
                self.used[tenant].files -= 1
        for digest in freed:
            size = self.contents.pop((tenant, digest), 0)
            self.used[tenant].bytes -= size
            self.sizes[tenant][size] -= 1
        return freed


def _unused(connection: Connection, tenant: str) -> list[str]:
    named = select(_artifact.c.digest).where(_artifact.c.tenant == tenant)
    unused = select(_content.c.digest).where(_content.c.tenant == tenant, _content.c.digest.not_in(named))
    return [str(row[0]) for row in connection.execute(unused)]
