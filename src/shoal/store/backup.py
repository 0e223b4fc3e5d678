"""A consistent copy of a SQLite database, while a server writes to it or not."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from shoal.core import Unavailable


def copy_database(source: Path, target: Path) -> None:
    """One read of one state; writers go on meanwhile. The copy has no log, and mode 0600."""
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as reading,
            contextlib.closing(sqlite3.connect(target)) as writing,
        ):
            reading.backup(writing)
            writing.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise Unavailable(f"the database cannot be copied: {error}", where=str(source)) from error


def check_database(database: Path) -> str | None:
    """What is wrong with the file, in SQLite's words; None when it is whole."""
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        return str(error)
    return None if verdict == "ok" else str(verdict)
