"""One database behind a URL: its connections, its two dialects, and its failures in Shoal's words."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    ProgrammingError,
    StatementError,
)

from shoal.base import extras
from shoal.base.files import flush_folder
from shoal.core import Conflict, DiskFull, Invalid, ShoalError, Unavailable

_BUSY_TIMEOUT_MS = 10_000
# Pages of 4 KiB: a checkpoint each 16 MiB keeps the log short without a checkpoint per group.
_CHECKPOINT_PAGES = 4_000
# The writer comes back to the newest jobs and to index pages all over: it should not read those again each time.
# A hundred stores would fill the memory so: what those read again is in the system's own cache.
_WRITER_CACHE_KIB, _WRITER_CACHE_OF_MANY_KIB = 64 << 10, 256
_LOG_LIMIT_BYTES = 64 << 20
_READER_MMAP_BYTES = 128 << 20
# Statements of hundreds of rows take hundreds of kilobytes each. One store is faster with all of them; a hundred stores
# are not, and together they would fill the memory.
_STATEMENTS, _STATEMENTS_OF_MANY = 256, 4
# PostgreSQL's codes of an undefined column and table.
_MISSING = ("42703", "42P01")


class Database:
    """Makes connections: one kind that writes, and a pool that can only read.

    A database in memory has a single connection, which readers share with the writer under `lock`. `flush_apart` is for
    one of many: a commit to SQLite is on disk only after `flush`, so that many are flushed at once.
    """

    def __init__(self, url: str, *, sync: bool = True, flush_apart: bool = False) -> None:
        self.url = _parse(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.path: Path | None = None
        if self.is_sqlite and self.url.database not in (None, "", ":memory:"):
            self.path = Path(str(self.url.database)).absolute()
        self.in_memory = self.is_sqlite and self.path is None
        self.lock = threading.RLock()
        """Held by the thread that uses the writing connection."""
        self._flush_apart = sync and flush_apart and self.path is not None
        statements = _STATEMENTS_OF_MANY if flush_apart else _STATEMENTS
        self._cache_kib = _WRITER_CACHE_OF_MANY_KIB if flush_apart else _WRITER_CACHE_KIB
        self._connecting = {"check_same_thread": False, "cached_statements": statements}
        self._sync = sync and not self._flush_apart
        self._log: int | None = None
        self._writers = self._sqlite_writers() if self.is_sqlite else self._postgresql_writers()
        self._writer: Connection | None = None
        self._readers = self._reading_engine()

    def __str__(self) -> str:
        """As a person would write it: without SQLAlchemy's name of the driver, and without the password."""
        return self.url.set(drivername=self.url.get_backend_name()).render_as_string(hide_password=True)

    # --- connections ---

    def connect(self) -> Connection:
        """A writing connection of the caller's own. Raises Unavailable."""
        try:
            if self.path is not None:
                _make_private(self.path)
            return self._writers.connect()
        except (DBAPIError, OSError) as error:
            raise self.failure(error) from error

    def writer(self) -> Connection:
        """The one writing connection, made anew if it was lost. Hold `lock`."""
        if self._writer is not None and server_hung_up(self._writer):
            self.discard_writer()
        if self._writer is None:
            self._writer = self.connect()
        return self._writer

    def discard_writer(self) -> None:
        """Forget a connection whose state is doubtful. Hold `lock`."""
        if self._writer is None or self.in_memory:
            return
        self._close_log()
        with contextlib.suppress(DBAPIError):
            self._writer.invalidate()
            self._writer.close()
        self._writer = None

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees what is committed, in the caller's thread; failures come out as Unavailable."""
        try:
            if self.in_memory:
                with self.lock, self.writer().begin():
                    yield self.writer()
            else:
                with self._readers.connect() as connection:
                    yield connection
        except DBAPIError as error:
            raise self.failure(error) from error

    def release_memory(self) -> None:
        """Give up what SQLite keeps for the next statements: pages, and statements of hundreds of rows with the last
        values that they were given. These go with their connection alone. Waits for what is being written."""
        with self.lock:
            if self.is_sqlite:
                self.discard_writer()

    def close(self) -> None:
        with self.lock:
            if self._writer is not None:
                with contextlib.suppress(DBAPIError):
                    self._writer.close()
                self._writer = None
            self._close_log()
        self._readers.dispose()
        self._writers.dispose()

    def _close_log(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def flush(self) -> None:
        """What was committed is on disk when this returns. Raises OSError."""
        if not self._flush_apart or self.path is None:
            return
        if self._log is None:  # SQLite locks other files of the database: this one may be opened and closed
            self._log = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            flush_folder(self.path.parent)
        os.fdatasync(self._log)

    # --- failures ---

    def blames_value(self, error: Exception) -> bool:
        """True when a driver refuses what one operation says, rather than being unable to serve."""
        if isinstance(error, IntegrityError | DataError):
            return True
        if not isinstance(error, DBAPIError):
            return isinstance(error, StatementError | OverflowError | TypeError | ValueError)
        if self.is_sqlite:
            return isinstance(error, InterfaceError | ProgrammingError)
        # What the server says has a state; without one the driver did not know how to say the value.
        return isinstance(error, ProgrammingError) and getattr(error.orig, "sqlstate", None) is None

    def failure(self, error: Exception) -> ShoalError:
        """What a driver's error means to a caller: the caller's mistake, or a database that cannot serve now."""
        text = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        if isinstance(error, IntegrityError):
            return Conflict(
                f"the database refused the write: {text}", hint="it refers to something that is missing, or exists"
            )
        if self.blames_value(error):
            return Invalid(f"the database cannot keep this value: {text}")
        if "disk is full" in text or "No space left" in text or "DiskFull" in type(error).__name__:
            return DiskFull("the disk is full", where=str(self), hint="free some space; nothing was written")
        if "is not a database" in text or "malformed" in text:
            return Unavailable(
                f"the database is damaged: {text}", where=str(self),
                hint="put a backup in its place (`shoal restore FILE --force` keeps the damaged one), or begin anew in "
                "another home: `shoal up --home DIRECTORY`",
            )  # fmt: skip
        if _lacks_schema(error, text):
            return Unavailable(
                f"the tables of the database are not those of this Shoal: {text}", where=str(self),
                hint="another version of Shoal made it: make a backup with that version (`shoal backup FILE`), and go "
                "on with it, or give another database",
            )  # fmt: skip
        hint = (
            "check that the file and its directory can be written; then repeat the request"
            if self.is_sqlite
            else "check that PostgreSQL runs and the URL is right; then repeat the request under the same key"
        )
        return Unavailable(f"the database is not available: {text}", where=str(self), hint=hint)

    # --- dialects ---

    def _reading_engine(self) -> Engine:
        if self.in_memory:
            return self._writers
        return self._sqlite_readers() if self.is_sqlite else self._postgresql_readers()

    def _sqlite_writers(self) -> Engine:
        engine = create_engine(self.url, poolclass=NullPool, connect_args=self._connecting)

        @event.listens_for(engine, "connect")
        def configure(connection: Any, _record: Any) -> None:
            # None: the driver begins no transactions of its own; the hook below does.
            connection.isolation_level = None
            _use_log(connection)
            _pragmas(
                connection,
                synchronous="FULL" if self._sync else "NORMAL",
                cache_size=-self._cache_kib,
                foreign_keys="ON",
                wal_autocheckpoint=_CHECKPOINT_PAGES,
                journal_size_limit=_LOG_LIMIT_BYTES,
            )

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        return engine

    def _sqlite_readers(self) -> Engine:
        engine = create_engine(self.url, pool_size=8, max_overflow=24, connect_args=self._connecting)

        @event.listens_for(engine, "connect")
        def configure(connection: Any, _record: Any) -> None:
            connection.isolation_level = None
            _pragmas(connection, busy_timeout=_BUSY_TIMEOUT_MS, mmap_size=_READER_MMAP_BYTES, query_only="ON")

        return engine

    def _postgresql_writers(self) -> Engine:
        commit = "on" if self._sync else "off"
        return _postgresql(self.url, f"-c synchronous_commit={commit}", poolclass=NullPool)

    def _postgresql_readers(self) -> Engine:
        return _postgresql(
            self.url,
            "-c default_transaction_read_only=on",
            pool_size=8,
            max_overflow=24,
            pool_pre_ping=True,
            isolation_level="AUTOCOMMIT",
        )


def server_hung_up(connection: Connection) -> bool:
    """True when PostgreSQL has closed an idle connection. Looks at the socket only: a server that is well says
    nothing to an idle client, so bytes that wait there are its farewell (or a notice, then it is asked)."""
    if connection.dialect.name != "postgresql":
        return False
    driver: Any = connection.connection.driver_connection
    if driver is None or driver.closed:
        return True
    poll = select.poll()
    poll.register(driver.fileno(), select.POLLIN)
    if not poll.poll(0):
        return False
    try:
        connection.exec_driver_sql("SELECT 1")
        connection.rollback()
    except DBAPIError:
        return True
    return False


def _parse(url: str) -> URL:
    hint = "use sqlite:///PATH or postgresql://USER@HOST/DATABASE"
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise Invalid("the database URL cannot be read", where="db", hint=hint) from error
    backend = parsed.drivername.partition("+")[0]
    if backend == "sqlite":
        return parsed.set(drivername="sqlite+pysqlite")
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise Invalid(f"Shoal keeps no data in {backend!r}", where="db", hint=hint)


def _postgresql(url: URL, options: str, **arguments: Any) -> Engine:
    given = url.query.get("options", "")
    if isinstance(given, tuple):
        given = " ".join(given)
    url = url.update_query_dict({"options": f"{given} {options}".strip()})
    try:
        return create_engine(url, **arguments)
    except ModuleNotFoundError as error:
        raise Invalid("the PostgreSQL driver is not installed", where="db", hint=extras.install("postgres")) from error


def _pragmas(connection: Any, **values: str | int) -> None:
    cursor = connection.cursor()
    for name, value in values.items():
        cursor.execute(f"PRAGMA {name} = {value}")
    cursor.close()


def _use_log(connection: Any) -> None:
    """Write-ahead logging. SQLite does not wait by itself where several processes begin a new log at once."""
    import sqlite3

    end = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            _pragmas(connection, busy_timeout=_BUSY_TIMEOUT_MS, journal_mode="WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _make_private(path: Path) -> None:
    """The database's file exists with mode 0600 before SQLite opens it; its log and index take the same mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _lacks_schema(error: Exception, text: str) -> bool:
    """Whether a table or column is missing: the revision is known, and what it says is not there."""
    if getattr(getattr(error, "orig", None), "sqlstate", None) in _MISSING:
        return True
    return any(said in text for said in ("no such column", "no such table", "has no column named"))
