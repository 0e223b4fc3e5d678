"""The newest acknowledged sequence number, in a small file beside SQLite's database.

A database whose write-ahead log was removed or cut opens without a complaint, at an older state. This file is written
after each commit, so it is never ahead of what was committed, and a database that ends before it has lost something.
After a power cut it may be up to `_FLUSH_EVERY_S` behind, and notice that much less.
"""

from __future__ import annotations

import binascii
import contextlib
import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from shoal.core import Unavailable
from shoal.store.database import Database

_FLUSH_EVERY_S = 1.0
_SIZE = 64


def position_file(database: Path) -> Path:
    return database.with_name(database.name + ".position")


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite database; None for any other."""
    database = Database(url)
    database.close()
    return database.path


def database_files(database: Path) -> list[Path]:
    """What there is of it: the database, its log and index, its position."""
    parts = [database, *sorted(database.parent.glob(f"{database.name}-*")), position_file(database)]
    return [file for file in parts if file.exists()]


def read_position(database: Path) -> int:
    """0: none was written, or it cannot be read."""
    try:
        number, _, check = position_file(database).read_bytes().strip().partition(b" ")
    except FileNotFoundError:
        return 0
    return int(number) if check == _check(number) else 0


def _check(number: bytes) -> bytes:
    return b"%08x" % binascii.crc32(number)


class Position:
    """Keeps the file. `sync=False`: it is never flushed."""

    def __init__(self, database: Path, *, sync: bool) -> None:
        self.seq = read_position(database)
        self._sync = sync
        self._flushed_at = 0.0
        self._file: int | None = None
        with contextlib.suppress(OSError):  # a full disk: the next write to the database reports it
            self._file = os.open(position_file(database), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def note(self, seq: int) -> None:
        """This number was committed."""
        if seq <= self.seq or self._file is None:
            return
        self.seq = seq
        number = b"%d" % seq
        with contextlib.suppress(OSError):
            os.pwrite(self._file, (number + b" " + _check(number)).ljust(_SIZE - 1) + b"\n", 0)
            now = time.monotonic()
            if self._sync and now >= self._flushed_at + _FLUSH_EVERY_S:
                self._flushed_at = now
                os.fdatasync(self._file)

    def close(self) -> None:
        if self._file is not None:
            if self._sync:
                with contextlib.suppress(OSError):
                    os.fdatasync(self._file)
            os.close(self._file)
            self._file = None


@dataclass(frozen=True, slots=True)
class Loss:
    """What a database has lost. `found` is its last sequence number, None when there is no database at all."""

    database: Path
    acknowledged: int
    found: int | None

    def error(self) -> Unavailable:
        if self.found is None:
            what = f"the database is missing: sequence {self.acknowledged} was acknowledged in it"
        else:
            what = (
                f"sequence {self.acknowledged} was acknowledged, the database ends at {self.found}: "
                "its write-ahead log is missing or cut, or an older copy was put in its place"
            )
        return Unavailable(what, where=str(self.database), hint=WAYS_OUT)


WAYS_OUT = (
    "put shoal.db and shoal.db-wal back as they were, or restore a backup: `shoal restore FILE`; "
    "to go on without what is lost: `shoal up --accept-data-loss`, which keeps a copy of what is there"
)


def find_loss(url: str) -> Loss | None:
    """Compare a SQLite database with its position, and change neither. Raises Unavailable for a damaged one."""
    database = Database(url)
    try:
        if database.path is None:
            return None
        # In this order: a server that is at work meanwhile only gets further.
        acknowledged, found = read_position(database.path), last_sequence(database.path)
    except sqlite3.DatabaseError as error:
        raise database.failure(error) from error
    finally:
        database.close()
    return Loss(database.path, acknowledged, found) if (found or 0) < acknowledged else None


def last_sequence(database: Path) -> int | None:
    """None: there is no database. Opened for reading only, so that closing it moves nothing out of the log. Events that
    retention removed count by the highest of their numbers, which it keeps in `removed_events`."""
    if not database.exists() or not database.stat().st_size:
        return None
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        highest = [
            connection.execute(f"SELECT max(seq) FROM {table}").fetchone()[0] or 0  # noqa: S608 - our own two names
            for table in ("event", "removed_events")
            if table in tables
        ]
        return max(highest, default=0)
