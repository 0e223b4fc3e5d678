"""Tables of environments that were made, and of the jobs that run with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Double, Table, Text, delete, insert, select, update

from shoal.contract.records import NewEvent
from shoal.store import Key, Store, Tables, new_metadata

metadata = new_metadata()

_made = Table(
    "environment_made",
    metadata,
    Column("id", Key, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("folder", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("files", BigInteger, nullable=False),
    Column("made_at", Double, nullable=False),
    Column("used_at", Double, nullable=False),
)

_pin = Table(
    "environment_pin",
    metadata,
    Column("job_id", Key, primary_key=True),
    Column("folder", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False),
)

TABLES = Tables("environment", metadata)


@dataclass(frozen=True, slots=True)
class Made:
    """An environment that is there. `folder` is the name of the tenant's folder, `source` what it was made from."""

    tenant: str
    folder: str
    kind: str
    key: str
    source: str
    bytes: int
    files: int
    made_at: float
    used_at: float

    @property
    def id(self) -> str:
        return f"{self.folder}/{self.kind}/{self.key}"


@dataclass(frozen=True, slots=True)
class Pin:
    """What a job runs with, in all its attempts."""

    folder: str
    kind: str
    key: str

    @property
    def id(self) -> str:
        return f"{self.folder}/{self.kind}/{self.key}"


class Repository:
    """Both tables, also in memory: they are asked on the event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.made: dict[str, Made] = {}
        self.pins: dict[str, Pin] = {}

    def open(self) -> None:
        self.made = {one.id: one for one in (Made(*row[1:]) for row in self._store.rows(select(_made)))}
        self.pins = {str(row[0]): Pin(*row[1:]) for row in self._store.rows(select(_pin))}

    async def keep(self, made: Made) -> None:
        """In place of one with the same id."""
        row: dict[str, Any] = {"id": made.id, **{name: getattr(made, name) for name in Made.__dataclass_fields__}}

        def write(connection: Connection) -> bool:
            connection.execute(delete(_made).where(_made.c.id == made.id))
            connection.execute(insert(_made).values(row))
            return True

        await self._store.transact(write)
        self.made[made.id] = made

    async def pin(self, job_id: str, pin: Pin, now: float, event: NewEvent) -> None:
        """The job runs with this from now on, which is used now."""

        def write(connection: Connection) -> bool:
            connection.execute(delete(_pin).where(_pin.c.job_id == job_id))
            connection.execute(insert(_pin).values(job_id=job_id, folder=pin.folder, kind=pin.kind, key=pin.key))
            connection.execute(update(_made).where(_made.c.id == pin.id).values(used_at=now))
            return True

        await self._store.transact(write, [event])
        self.pins[job_id] = pin
        if (made := self.made.get(pin.id)) is not None:
            self.made[pin.id] = replace(made, used_at=now)

    async def unpin(self, job_ids: Iterable[str]) -> None:
        gone = [one for one in job_ids if one in self.pins]

        def write(connection: Connection) -> bool:
            connection.execute(delete(_pin).where(_pin.c.job_id.in_(gone)))
            return True

        if gone:
            await self._store.transact(write)
        for one in gone:
            self.pins.pop(one, None)

    async def drop(self, id_: str, event: NewEvent) -> None:
        def write(connection: Connection) -> bool:
            connection.execute(delete(_made).where(_made.c.id == id_))
            return True

        await self._store.transact(write, [event])
        self.made.pop(id_, None)

    def of(self, tenant: str | None) -> list[Made]:
        """A tenant's, or all; the one that was used last first."""
        found = [one for one in self.made.values() if tenant in (None, one.tenant)]
        return sorted(found, key=lambda one: (-one.used_at, one.id))

    def used(self) -> set[str]:
        """The ids of those that jobs run with, or will."""
        return {one.id for one in self.pins.values()}
