"""Brings a database to the newest revision, in one transaction and under its lock, before it is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError

from shoal.core import Conflict
from shoal.store.database import Database
from shoal.store.schema import HEAD, NO_HOLDER, control_lease, metadata
from shoal.store.tables import Tables, state_conditions

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

MIGRATIONS = Path(__file__).parent / "migrations"
# Any constant: PostgreSQL's advisory locks are numbers, apart for each database.
_MIGRATION_LOCK = 0x53686F616C00

OWN = Tables("", metadata, HEAD, MIGRATIONS / "versions")
"""The store's tables."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a set of tables stands in a database: `revision` None: it is not there yet. `steps` are the revisions that
    opening the database would run, in order; None: the revision is not known here, and it would be refused."""

    name: str
    revision: str | None
    head: str
    steps: tuple[str, ...] | None = ()

    @property
    def changes(self) -> bool:
        """Whether opening it changes tables that are there."""
        return self.revision is not None and bool(self.steps)


def standings(database: Database, more: Sequence[Tables] = ()) -> list[Standing]:
    """How the store's tables and `more` stand in a database, which is only read. Raises Unavailable."""
    try:
        with database.reading() as connection:
            return [_standing(connection, tables) for tables in (OWN, *more)]
    except DBAPIError as error:
        raise database.failure(error) from error


def _standing(connection: Connection, tables: Tables) -> Standing:
    revision = _revision(connection, tables)
    if revision is None or revision == tables.head:
        return Standing(tables.name, revision, tables.head)
    from alembic.util import CommandError

    scripts = _scripts(tables)
    try:
        scripts.get_revision(revision or "base")
    except CommandError:
        return Standing(tables.name, revision, tables.head, None)
    between = list(scripts.iterate_revisions("head", revision or "base"))
    return Standing(tables.name, revision, tables.head, tuple(one.revision for one in reversed(between)))


def migrate(database: Database, more: Sequence[Tables] = ()) -> None:
    """Create or upgrade the store's tables and `more`. Raises Conflict for a database of a revision that is not
    known here: of a newer version, or of one that was never released."""
    sets = (OWN, *more)
    if database.in_memory:  # it lives in the one connection that is kept, and is always new
        with database.lock, database.writer().begin():
            for tables in sets:
                _create(database.writer(), tables)
        return
    connection = database.connect()
    try:
        if any(_revision(connection, tables) != tables.head for tables in sets):
            connection.rollback()
            _migrate_locked(connection, database, sets)
    except DBAPIError as error:
        raise database.failure(error) from error
    finally:
        connection.close()


def _migrate_locked(connection: Connection, database: Database, sets: Sequence[Tables]) -> None:
    if database.is_sqlite:
        # Some changes of a table copy it, which the tables that refer to it must not notice.
        connection.connection.cursor().execute("PRAGMA foreign_keys = OFF")
    with connection.begin():
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        for tables in sets:
            # Read again: another process may have done it while this one waited for the lock.
            revision = _revision(connection, tables)
            if revision is None:
                _create(connection, tables)
            elif revision != tables.head:
                _upgrade(connection, tables, revision, str(database))


def _revision(connection: Connection, tables: Tables) -> str | None:
    """None: a database without these tables; "": one at the very start of their migrations."""
    if not inspect(connection).has_table(tables.version_table):
        return None
    return connection.execute(text(f"SELECT version_num FROM {tables.version_table}")).scalar() or ""  # noqa: S608


def _create(connection: Connection, tables: Tables) -> None:
    """All tables at once, marked as what the migrations would have made (a test compares them)."""
    state_conditions(tables.metadata, connection.dialect.name)
    tables.metadata.create_all(connection, checkfirst=False)
    if tables is OWN:
        connection.execute(control_lease.insert(), NO_HOLDER)
    version = tables.version_table
    connection.execute(
        text(
            f"CREATE TABLE {version} "
            f"(version_num VARCHAR(32) NOT NULL, CONSTRAINT {version}_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(text(f"INSERT INTO {version} VALUES (:head)"), {"head": tables.head})  # noqa: S608


def _config(tables: Tables) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", str(tables.versions or ""))
    return config


def _scripts(tables: Tables) -> ScriptDirectory:
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(_config(tables))


def _upgrade(connection: Connection, tables: Tables, revision: str, where: str) -> None:
    # Imported here: it takes longer than the rest of opening, and a current database needs none of it.
    from alembic import command
    from alembic.util import CommandError

    config, scripts = _config(tables), _scripts(tables)
    try:
        scripts.get_revision(revision or "base")
    except CommandError as error:
        of = f" of the tables of {tables.name}" if tables.name else ""
        known = sorted({tables.head, *(script.revision for script in scripts.walk_revisions())})
        raise Conflict(
            f"the database has schema revision {revision!r}{of}, which this Shoal does not know (it knows "
            f"{', '.join(known)})",
            where=where,
            hint="a newer Shoal made it, or an older one that was not released: make a backup with the Shoal that made "
            "it (`shoal backup FILE`), then use that Shoal or a newer one, or give another database",
        ) from error
    config.attributes.update(connection=connection, tables=tables)
    command.upgrade(config, "head")
