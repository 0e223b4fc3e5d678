"""The last decision, which survives a restart of server and cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, Connection, Double, Integer, Table, Text, delete, insert, select

from shoal.store import Store, Tables, new_metadata

metadata = new_metadata()

decision = Table(
    "cache_decision",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at", Double, nullable=False),
    Column("gap", Double),
    Column("body", Text, nullable=False),
)

TABLES = Tables("cache", metadata)


def last_decision(store: Store) -> dict[str, Any] | None:
    found = store.rows(select(decision.c.body).order_by(decision.c.at.desc()).limit(1))
    return json.loads(found[0][0]) if found else None


async def keep_decision(store: Store, told: Mapping[str, Any]) -> None:
    """In place of the one before."""

    def write(connection: Connection) -> bool:
        connection.execute(delete(decision))
        connection.execute(insert(decision).values(id=1, at=told["at"], gap=told["gap"], body=json.dumps(told)))
        return True

    await store.transact(write, ())
