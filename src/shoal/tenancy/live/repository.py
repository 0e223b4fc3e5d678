"""Planes in the shared server's database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Executable,
    Table,
    Text,
    UniqueConstraint,
    delete,
    insert,
    select,
    update,
)  # fmt: skip

from shoal.contract.records import NewEvent
from shoal.store import Key, Store, Tables, new_metadata
from shoal.tenancy.records import PlaneRecord, PlaneState

metadata = new_metadata()

plane = Table(
    "plane",
    metadata,
    Column("id", Key, primary_key=True),
    Column("name", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("busy", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    UniqueConstraint("name", name="uq_plane_name"),
)

TABLES = Tables("tenancy", metadata, living=select(plane.c.id))
_plane = plane.c


class PlaneRepository:
    def __init__(self, store: Store) -> None:
        self._store = store

    def planes(self) -> list[PlaneRecord]:
        """By name."""
        return [_record(row) for row in self._store.rows(select(plane).order_by(_plane.name))]

    async def add(self, record: PlaneRecord, event: NewEvent) -> None:
        """Raises Conflict for a name that is taken."""
        await self._write(record, insert(plane).values(_values(record)), event)

    async def change(self, record: PlaneRecord, *events: NewEvent) -> None:
        await self._write(record, update(plane).where(_plane.id == record.id).values(_values(record)), *events)

    async def remove(self, record: PlaneRecord, event: NewEvent) -> None:
        await self._write(record, delete(plane).where(_plane.id == record.id), event)

    async def _write(self, record: PlaneRecord, statement: Executable, *events: NewEvent) -> None:
        def run(connection: Connection) -> bool:
            connection.execute(statement)
            return True

        await self._store.transact(run, events, owner_id=record.id)


def _values(record: PlaneRecord) -> dict[str, Any]:
    return {
        **{field.name: getattr(record, field.name) for field in fields(record)},
        "state": record.state.value,
        "busy": int(record.busy),
    }


def _record(row: Sequence[Any]) -> PlaneRecord:
    id_, name, tenant, state, busy, created_at, updated_at = row
    return PlaneRecord(id_, name, tenant, PlaneState(state), bool(busy), created_at, updated_at)
