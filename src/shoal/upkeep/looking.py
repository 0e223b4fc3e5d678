"""Reading of a home's database, of whatever revision: only read, and by the few columns that every release has."""

from __future__ import annotations

import contextlib
from pathlib import Path

from sqlalchemy import inspect, text

from shoal.store import Database, database_files, sqlite_path
from shoal.upkeep.plan import LiveWork, then_of

_ASKED = {
    "job": "SELECT id, tenant, name, state FROM job WHERE ended_at IS NULL AND owner_id IS NULL ORDER BY id",
    "service": "SELECT id, tenant, name, state FROM service WHERE state <> 'STOPPED' ORDER BY id",
    "plane": "SELECT id, tenant, name, state FROM plane ORDER BY id",
}


def kept_in(url: str) -> list[LiveWork]:
    """Jobs that people submitted, services and planes that are not over. Blocks. Raises Unavailable."""
    found = []
    with contextlib.closing(Database(url)) as database, database.reading() as connection:
        for kind, question in _ASKED.items():
            if not inspect(connection).has_table(kind):
                continue
            for row in connection.execute(text(question)):
                found_id, tenant, name, state = (str(one) for one in row)
                found.append(LiveWork(kind, found_id, tenant, name, state, then_of(kind, state)))
    return found


def size_of(url: str) -> int:
    """Bytes of the database's files; 0 for one that is not here."""
    path = sqlite_path(url)
    return 0 if path is None else sum(one.stat().st_size for one in database_files(path))


def nearest(folder: Path) -> Path:
    """The folder, or the first above it that is there."""
    return next(one for one in (folder, *folder.parents) if one.exists())
