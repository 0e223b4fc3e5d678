"""Brings a database to the newest revision, in one transaction and under its lock, before anybody uses it."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError

from shoal.core import Conflict
from shoal.store.database import Database
from shoal.store.schema import HEAD, NO_HOLDER, control_lease, metadata

MIGRATIONS = Path(__file__).parent / "migrations"
# Any constant: PostgreSQL's advisory locks are numbers, apart for each database.
_MIGRATION_LOCK = 0x53686F616C00


def migrate(database: Database) -> None:
    """Create or upgrade the tables. Raises Conflict for a database that a newer Shoal wrote."""
    if database.in_memory:  # it lives in the one connection that is kept, and is always new
        with database.lock, database.writer().begin():
            _create(database.writer())
        return
    connection = database.connect()
    try:
        if _revision(connection) != HEAD:
            connection.rollback()
            _migrate_locked(connection, database)
    except DBAPIError as error:
        raise database.failure(error) from error
    finally:
        connection.close()


def _migrate_locked(connection: Connection, database: Database) -> None:
    if database.is_sqlite:
        # Some changes of a table copy it, which the tables that refer to it must not notice.
        connection.connection.cursor().execute("PRAGMA foreign_keys = OFF")
    with connection.begin():
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        # Read again: another process may have done it while this one waited for the lock.
        revision = _revision(connection)
        if revision is None:
            _create(connection)
        elif revision != HEAD:
            _upgrade(connection, revision, str(database))


def _revision(connection: Connection) -> str | None:
    """None: an empty database; "": one at the very start of the migrations."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or ""


def _create(connection: Connection) -> None:
    """All tables at once, marked as what the migrations would have made (a test compares them)."""
    metadata.create_all(connection)
    connection.execute(control_lease.insert(), NO_HOLDER)
    connection.execute(
        text(
            "CREATE TABLE alembic_version "
            "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})


def _upgrade(connection: Connection, revision: str, where: str) -> None:
    # Imported here: it takes longer than the rest of opening, and a current database needs none of it.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    try:
        ScriptDirectory.from_config(config).get_revision(revision or "base")
    except CommandError as error:
        raise Conflict(
            f"the database has schema revision {revision!r}, which this Shoal does not know (its newest is {HEAD!r})",
            where=where,
            hint="a newer Shoal has used it: upgrade this one, or give another database",
        ) from error
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
