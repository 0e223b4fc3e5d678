"""Statements for many rows of a table. The SQL is the part that SQLite and PostgreSQL share."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Double, Integer, LargeBinary, Table
from sqlalchemy.exc import DBAPIError

from shoal.store.bulk import MOST, Bulk, Row


def run(connection: Connection, bulk: Bulk, rows: Sequence[Row]) -> int:
    """Returns how many stored rows were made or changed."""
    numbered = connection.dialect.name != "sqlite"
    return sum(_execute(connection, *each).rowcount for each in bulk.statements(rows, numbered=numbered))


def lookup(connection: Connection, table: Table, keys: tuple[str, ...], values: Sequence[Row]) -> list[Row]:
    """The stored rows, all columns, whose `keys` are among `values`; one may come more than once."""
    found: list[Row] = []
    numbered = connection.dialect.name != "sqlite"
    for start in range(0, len(values), MOST):
        statement = _lookup(table, keys).one(values[start : start + MOST], numbered=numbered)
        found.extend(map(tuple, _execute(connection, *statement)))
    return found


def one(connection: Connection, sql: str) -> tuple[Any, ...]:
    """The only row of a query without values."""
    return tuple(_execute(connection, sql, ()).fetchone())


def insert(table: Table, columns: Sequence[str]) -> Bulk:
    """Insert rows; each holds the values of `columns` in their order."""
    return Bulk(f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ", len(columns))  # noqa: S608


def upsert(table: Table, columns: Sequence[str]) -> Bulk:
    """Insert rows or replace those with the same primary key; no two rows may have the same key."""
    keys = [column.name for column in table.primary_key]
    replaced = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in keys)
    return insert(table, columns)._replace(tail=f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {replaced}")


def update(table: Table, keys: Sequence[str], columns: Sequence[str]) -> Bulk:
    """Set `columns` where all `keys` equal; a row holds the values of both, and no two match the same stored row."""
    # Both databases name the columns of a VALUES list column1, column2, ...; PostgreSQL takes one that is NULL in
    # every row for text, hence the casts.
    names = (*keys, *columns)
    new = {name: f"CAST(v.column{n} AS {_sql_type(table, name)})" for n, name in enumerate(names, start=1)}
    # The last of two equal names is the new value (a version is both key and column).
    changes = ", ".join(f"{name} = {new[name]}" for name in dict.fromkeys(columns))
    guards = " AND ".join(
        f"{table.name}.{name} = CAST(v.column{n} AS {_sql_type(table, name)})" for n, name in enumerate(keys, start=1)
    )
    return Bulk(f"UPDATE {table.name} SET {changes} FROM (VALUES ", len(names), f") AS v WHERE {guards}")  # noqa: S608


@cache
def _lookup(table: Table, keys: tuple[str, ...]) -> Bulk:
    columns = ", ".join(f"{table.name}.{name}" for name in table.c.keys())  # noqa: SIM118 - not a mapping
    # A join: SQLite would answer a row value IN (VALUES ...) by reading the whole table.
    same = " AND ".join(f"{table.name}.{key} = v.column{n}" for n, key in enumerate(keys, start=1))
    return Bulk(f"SELECT {columns} FROM (VALUES ", len(keys), f") AS v JOIN {table.name} ON {same}")  # noqa: S608


def _execute(connection: Connection, sql: str, parameters: Row) -> Any:
    """A cursor with the result."""
    # By the driver itself: SQLAlchemy's own layers would take a fifth of the time of a small statement.
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        try:
            return driver.execute(sql, parameters)
        except sqlite3.Error as error:
            raise DBAPIError.instance(sql, None, error, sqlite3.Error, dialect=connection.dialect) from error
    # psycopg's usual cursor takes a statement of thousands of placeholders apart in Python each time, which costs
    # several times what the server needs for it.
    from psycopg import Error, RawCursor

    try:
        return RawCursor(driver).execute(sql.encode(), parameters)
    except Error as error:
        raise DBAPIError.instance(sql, None, error, Error, dialect=connection.dialect) from error


def _sql_type(table: Table, column: str) -> str:
    kind = table.c[column].type
    if isinstance(kind, Double):
        return "DOUBLE PRECISION"
    if isinstance(kind, Integer):
        return "BIGINT"
    if isinstance(kind, LargeBinary):
        raise TypeError(f"{table.name}.{column}: bytes are not updated in bulk")
    return "TEXT"
