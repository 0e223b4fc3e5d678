"""Before a newer Shoal changes the tables of a home: a backup, by which the older one can have the home again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from shoal.base.home import Home
from shoal.control.home.backup import make_backup, read_backup
from shoal.core import Conflict
from shoal.store import Database, Standing, Tables, database_files, sqlite_path, standings

log = structlog.get_logger("shoal.server")

FOLDER = "backups"
_PREFIX = "before-upgrade-"


def stands(url: str, tables: Sequence[Tables]) -> list[Standing]:
    """How the sets of tables stand in the database; empty where there is none. Raises Unavailable."""
    path = sqlite_path(url)
    if path is not None and not database_files(path):
        return []
    with contextlib.closing(Database(url)) as database:
        return standings(database, tables)


def back_up_before(home: Home, url: str, tables: Sequence[Tables]) -> Path | None:
    """Where opening the database would change tables that are there, make and check a backup first: its file.

    PostgreSQL is backed up by its own means. Raises as `make_backup`, and OSError: nothing was changed then."""
    if sqlite_path(url) is None:
        return None
    found = stands(url, tables)
    if not any(one.changes for one in found):
        return None
    target = home.path / FOLDER / f"{_PREFIX}{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.tar"
    target.parent.mkdir(mode=0o700, exist_ok=True)
    make_backup(home, url, target, force=True)
    read_backup(target)
    revisions = {one.name or "store": one.revision for one in found if one.changes}
    log.info("made a backup before the upgrade", file=str(target), revisions=revisions)
    return target


def backups_before(home: Home) -> list[Path]:
    """Those that upgrades of this home have made, the newest first."""
    folder = home.path / FOLDER
    return sorted(folder.glob(f"{_PREFIX}*.tar"), reverse=True) if folder.is_dir() else []


@contextlib.contextmanager
def way_back(home: Home) -> Iterator[None]:
    """Name the backup from before a newer Shoal changed the database, where that database is refused."""
    try:
        yield
    except Conflict as refused:
        made = backups_before(home)
        if not made or "schema revision" not in refused.what:
            raise
        hint = f"{refused.hint}; or go back to before its upgrade: `shoal restore {made[0]} --force`"
        raise Conflict(refused.what, where=refused.where, hint=hint) from refused
