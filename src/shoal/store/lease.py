"""The right to control a database: one process holds it, by a lock that ends with the process.

SQLite's is a lock on a file beside the database, PostgreSQL's an advisory lock of a session of its own. The lock says
which process may start. Every transaction checks the epoch in table `control_lease`: this stops a process that has lost
the lock without noticing.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from shoal.base.locks import lock_file
from shoal.store.database import Database, server_hung_up

_CONTROL_LOCK = 0x53686F616C01


_NOTICE_SOON = {
    "tcp_keepalives_idle": "1", "tcp_keepalives_interval": "1", "tcp_keepalives_count": "2", "tcp_user_timeout": "3000",
}  # fmt: skip
"""PostgreSQL gives up the lock of a holder whose machine has vanished, without a word, within about three seconds."""


class Lock(Protocol):
    def take(self, wait_s: float) -> bool:
        """Wait at most `wait_s`; False when another holder has the lock."""
        ...

    def lost(self) -> bool:
        """True when a lock that was taken has gone."""
        ...

    def drop(self) -> None: ...


def control_lock(database: Database) -> Lock:
    if not database.is_sqlite:
        return _AdvisoryLock(database)
    if database.path is None:
        return _NoLock()
    return _FileLock(database.path.with_name(database.path.name + ".lock"))


class _FileLock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self, wait_s: float) -> bool:
        self._file = lock_file(self._path, wait_s=wait_s)
        return self._file is not None

    def lost(self) -> bool:
        return False

    def drop(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class _AdvisoryLock:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._session: Connection | None = None

    def take(self, wait_s: float) -> bool:
        session = self._database.connect()
        try:
            for name, value in _NOTICE_SOON.items():
                session.execute(text("SELECT set_config(:name, :value, false)"), {"name": name, "value": value})
            taken = self._ask(session, wait_s)
            session.commit()
        except BaseException as error:
            session.close()
            if isinstance(error, DBAPIError):
                raise self._database.failure(error) from error
            raise
        if taken:
            self._session = session
        else:
            session.close()
        return taken

    def _ask(self, session: Connection, wait_s: float) -> bool:
        if wait_s <= 0:
            return bool(session.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _CONTROL_LOCK}))
        session.execute(text("SELECT set_config('lock_timeout', :limit, true)"), {"limit": f"{int(wait_s * 1000)}ms"})
        try:
            session.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _CONTROL_LOCK})
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != "55P03":  # lock_not_available
                raise
            session.rollback()
            return False
        return True

    def lost(self) -> bool:
        return self._session is None or server_hung_up(self._session)

    def drop(self) -> None:
        if self._session is not None:
            with contextlib.suppress(DBAPIError):
                self._session.invalidate()
                self._session.close()
            self._session = None


class _NoLock:
    """A database in memory has no other process to fear."""

    def take(self, wait_s: float) -> bool:  # noqa: ARG002 - the protocol's
        return True

    def lost(self) -> bool:
        return False

    def drop(self) -> None:
        return
