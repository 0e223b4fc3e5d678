"""A set of tables with a history of its own: the store's, and those that extensions bring."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Index, MetaData, Select, Text, TextClause

NAMING = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
}

# Byte order on both databases, so that prefixes and listings by id mean the same everywhere.
Key = Text().with_variant(Text(collation="C"), "postgresql")


_WHERE = "where"


def new_metadata() -> MetaData:
    """Empty; constraints are named the same on every database."""
    return MetaData(naming_convention=NAMING)


def index_where(name: str, *columns: str, where: TextClause, unique: bool = False) -> Index:
    """An index of the rows that meet a condition. It serves a query only that repeats the condition word for word."""
    return Index(name, *columns, unique=unique, info={_WHERE: where})


def state_conditions(metadata: MetaData, dialect: str) -> None:
    """Say the conditions of its indexes to the database that is to have them. To name a database's own option loads
    SQLAlchemy's whole support of it: no server needs that of PostgreSQL beside SQLite's."""
    for table in metadata.tables.values():
        for index in table.indexes:
            if _WHERE in index.info:
                index.dialect_kwargs[f"{dialect}_where"] = index.info[_WHERE]


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables that an extension reads and writes, in the control plane's database: `Store.rows`, `Store.transact`.

    `name` is the extension's. A new database gets what `metadata` says and the revision `head`; an older one is brought
    there by the Alembic revisions in the folder `versions`, which tables that never changed need not have. `living`
    selects the ids of what is not over yet and may own jobs: events of these are kept, however old.
    """

    name: str
    metadata: MetaData
    head: str = "0001"
    versions: Path | None = None
    living: Select[Any] | None = None

    @property
    def version_table(self) -> str:
        """Where a database keeps its revision of these tables."""
        return f"alembic_version_{self.name}" if self.name else "alembic_version"
