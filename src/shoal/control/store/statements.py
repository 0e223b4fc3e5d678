"""Many rows in one statement.

The drivers give up the interpreter's lock around every statement, and a busy event loop may keep it for milliseconds
each time. So hundreds of rows go in a few statements, of few sizes (powers of two, and three times these): their
texts are made once, and SQLite keeps them prepared. The SQL is the part that SQLite and PostgreSQL share.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count, islice, repeat
from typing import Any

from sqlalchemy import Connection, Double, Integer, LargeBinary, Table
from sqlalchemy.exc import DBAPIError

Row = tuple[Any, ...]

_Make = Callable[[Table, tuple[str, ...], int, str], str]
"""Gives the statement for a table, its columns, a number of rows and a dialect."""

_SIZES = tuple(sorted((factor << power for power in range(9) for factor in (1, 3)), reverse=True))
"""Rows per statement, at most 768: a job has 30 columns, and both databases take 32,766 parameters."""


def insert(connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Insert all rows; each holds the values of `columns` in their order."""
    _run(connection, _insert_sql, table, tuple(columns), rows)


def upsert(connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Insert rows or replace those with the same primary key; no two rows may have the same key."""
    _run(connection, _upsert_sql, table, tuple(columns), rows)


def update(
    connection: Connection,
    table: Table,
    keys: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[Row],
    keep: frozenset[str] = frozenset(),
) -> int:
    """Set `columns` where all `keys` equal; a row holds the values of both, and no two match the same stored row.

    A column in `keep` keeps its value where the row has None. Returns how many stored rows were changed.
    """
    make = _update_maker(tuple(keys), keep)
    return _run(connection, make, table, (*keys, *columns), rows)


def lookup(connection: Connection, table: Table, keys: tuple[str, ...], values: Sequence[Row]) -> list[Row]:
    """The stored rows, all columns, whose `keys` are among `values`; one may come more than once."""
    found: list[Row] = []
    for start in range(0, len(values), _SIZES[0]):
        chunk = list(values[start : start + _SIZES[0]])
        size = next(size for size in reversed(_SIZES) if size >= len(chunk))
        chunk += chunk[-1:] * (size - len(chunk))
        parameters = tuple(value for row in chunk for value in row)
        sql = _lookup_sql(table, keys, size, connection.dialect.name)
        found.extend(map(tuple, _execute(connection, sql, parameters)))
    return found


def _run(connection: Connection, make: _Make, table: Table, columns: tuple[str, ...], rows: Sequence[Row]) -> int:
    changed = 0
    done = 0
    for size in _SIZES:
        while len(rows) - done >= size:
            values = [value for row in rows[done : done + size] for value in row]
            changed += _execute(connection, make(table, columns, size, connection.dialect.name), tuple(values)).rowcount
            done += size
    return changed


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


def _values(columns: int, size: int, dialect: str) -> str:
    marks = repeat("?") if dialect == "sqlite" else (f"${number}" for number in count(1))
    return ", ".join(f"({', '.join(islice(marks, columns))})" for _ in range(size))


@cache
def _lookup_sql(table: Table, keys: tuple[str, ...], size: int, dialect: str) -> str:
    columns = ", ".join(f"{table.name}.{name}" for name in table.c.keys())  # noqa: SIM118 - not a mapping
    # A join: SQLite would answer a row value IN (VALUES ...) by reading the whole table.
    same = " AND ".join(f"{table.name}.{key} = v.column{n}" for n, key in enumerate(keys, start=1))
    rows = _values(len(keys), size, dialect)
    return f"SELECT {columns} FROM (VALUES {rows}) AS v JOIN {table.name} ON {same}"  # noqa: S608


@cache
def _insert_sql(table: Table, columns: tuple[str, ...], size: int, dialect: str) -> str:
    return f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES {_values(len(columns), size, dialect)}"  # noqa: S608


@cache
def _upsert_sql(table: Table, columns: tuple[str, ...], size: int, dialect: str) -> str:
    keys = [column.name for column in table.primary_key]
    replaced = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in keys)
    return f"{_insert_sql(table, columns, size, dialect)} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {replaced}"


@cache
def _update_maker(keys: tuple[str, ...], keep: frozenset[str]) -> _Make:
    @cache
    def make(table: Table, columns: tuple[str, ...], size: int, dialect: str) -> str:
        # Both databases name the columns of a VALUES list column1, column2, ...; PostgreSQL takes one that is NULL in
        # every row for text, hence the casts.
        given = {name: f"CAST(v.column{n} AS {_sql_type(table, name)})" for n, name in enumerate(columns, start=1)}
        new = {name: f"COALESCE({given[name]}, {table.name}.{name})" if name in keep else given[name] for name in given}
        # The last of two equal names is the new value (a version is both key and column).
        changes = ", ".join(f"{name} = {new[name]}" for name in dict.fromkeys(columns[len(keys) :]))
        guards = " AND ".join(
            f"{table.name}.{name} = CAST(v.column{n} AS {_sql_type(table, name)})"
            for n, name in enumerate(keys, start=1)
        )
        rows = _values(len(columns), size, dialect)
        return f"UPDATE {table.name} SET {changes} FROM (VALUES {rows}) AS v WHERE {guards}"  # noqa: S608

    return make


def _sql_type(table: Table, column: str) -> str:
    kind = table.c[column].type
    if isinstance(kind, Double):
        return "DOUBLE PRECISION"
    if isinstance(kind, Integer):
        return "BIGINT"
    if isinstance(kind, LargeBinary):
        raise TypeError(f"{table.name}.{column}: bytes are not updated in bulk")
    return "TEXT"
