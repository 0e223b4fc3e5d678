"""Index of the store's files: which part of which version of which object. A SQLite file beside them.

The files are the truth about what is there, the index about what it means: a file that no row knows is removed, and a
row without its file too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS object (
  key TEXT PRIMARY KEY, url TEXT NOT NULL, part_of TEXT NOT NULL, tag TEXT NOT NULL, size INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS chunk (
  key TEXT NOT NULL, number INTEGER NOT NULL, hash TEXT NOT NULL, bytes INTEGER NOT NULL, PRIMARY KEY (key, number));
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One version of an object: `key` names it in the store, `part_of` is the URL of its data set."""

    key: str
    url: str
    part_of: str
    tag: str
    size: int


class Index:
    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._open()
        except sqlite3.DatabaseError:  # damaged: what it knew is fetched again
            path.unlink()
            self._open()

    def _open(self) -> None:
        self._db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        self._db.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {_SCHEMA}")

    def close(self) -> None:
        self._db.close()

    def objects(self) -> Iterator[ObjectInfo]:
        for row in self._db.execute("SELECT key, url, part_of, tag, size FROM object").fetchall():
            yield ObjectInfo(*row)

    def chunks(self) -> Iterator[tuple[str, int, str, int]]:
        """(key, number, hash, bytes)"""
        yield from self._db.execute("SELECT key, number, hash, bytes FROM chunk").fetchall()

    def add(self, info: ObjectInfo, number: int, digest: str, count: int) -> None:
        with self._transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?, ?)",
                (info.key, info.url, info.part_of, info.tag, info.size),
            )
            self._db.execute("INSERT OR REPLACE INTO chunk VALUES (?, ?, ?, ?)", (info.key, number, digest, count))

    def remove_hash(self, digest: str) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM chunk WHERE hash = ?", (digest,))

    def remove_object(self, key: str) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM object WHERE key = ?", (key,))
            self._db.execute("DELETE FROM chunk WHERE key = ?", (key,))

    def fact(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def set_fact(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))

    def _transaction(self) -> sqlite3.Connection:
        self._db.execute("BEGIN IMMEDIATE")
        return self._db
