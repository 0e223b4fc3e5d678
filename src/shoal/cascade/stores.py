"""Stores of features that are looked up by key: Redis, SQLite, PostgreSQL, HTTP. Each fetches many keys in one request.

What goes wrong with a store (away, too slow, an answer that is too short) is an OSError, which serving turns into 503
or an approximate answer; it is never silent.
"""

from __future__ import annotations

import base64
import functools
import math
import os
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from shoal.core import Invalid

Clock = Callable[[], float]
MOST_SQL_KEYS = 500
"""In one statement: SQLite allows 999 variables."""


class Store(Protocol):
    """Values by key."""

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """As many values as keys; None for one that is not there. Raises OSError."""
        ...


@functools.cache
def open_store(url: str, deadline_s: float) -> Store:
    """One connection for a process. Raises Invalid for any other address than these:

    `redis://host:port/0`, `unix:///path` (Redis); `sqlite:///path?table=T`, `postgresql://host/database?table=T`
    (columns `key` and `value`, its bytes); `http://host/path` (POST {"keys": []}, answered by {"values": [base64 or
    null]}).
    """
    parts = urlsplit(url)
    match parts.scheme:
        case "redis" | "rediss" | "unix":
            return RedisStore(url, deadline_s)
        case "sqlite" | "postgresql":
            query = parse_qs(parts.query)
            (table,) = query.pop("table", ["features"])
            if not table.isidentifier():
                raise Invalid(f"{table!r} is no name of a table", where="store")
            if parts.scheme == "sqlite":
                return SqliteStore(parts.path, table, deadline_s)
            return PostgresStore(parts._replace(query=urlencode(query, doseq=True)).geturl(), table, deadline_s)
        case "http" | "https":
            return HttpStore(url, deadline_s)
    raise Invalid(
        f"no store of the kind {parts.scheme!r}",
        where="store",
        hint="redis://, unix://, sqlite://, postgresql:// or http://",
    )


class RedisStore:
    """One MGET for all keys.

    Connections are used directly: the client's own way to them takes as long as the request. Each is used by one thread
    at a time. One that had been idle may have been closed by the server, so a new one is tried then.
    """

    def __init__(self, url: str, deadline_s: float) -> None:
        try:
            import redis
        except ImportError:
            raise Invalid("look-ups in Redis need the package redis", where="store", hint="pip install redis") from None
        self._errors = redis.exceptions.RedisError
        self._closed = redis.exceptions.ConnectionError
        self._pool = redis.ConnectionPool.from_url(url, socket_timeout=deadline_s, socket_connect_timeout=deadline_s)
        self._idle: list[Any] = []
        self._process = os.getpid()

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        if not keys:
            return []
        if self._process != os.getpid():  # the connections are those of the process before the fork
            self._idle, self._process = [], os.getpid()
        try:
            with suppress(IndexError):
                try:
                    return self._ask(self._idle.pop(), keys)
                except self._closed:
                    self._idle.clear()
            return self._ask(self._pool.make_connection(), keys)
        except self._errors as error:
            raise OSError(f"Redis: {error}") from None

    def _ask(self, connection: Any, keys: Sequence[str]) -> list[bytes | None]:
        try:
            connection.send_command("MGET", *keys)
            values: list[bytes | None] = connection.read_response()
        except BaseException:
            connection.disconnect()
            raise
        self._idle.append(connection)
        return checked(values, len(keys))


class SqliteStore:
    def __init__(self, path: str, table: str, deadline_s: float) -> None:
        self._address = f"file:{quote(path)}?mode=ro"
        self._deadline_s = deadline_s
        self._open: sqlite3.Connection | None = None
        self._table = table

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        found: dict[str, bytes] = {}
        try:
            for begin in range(0, len(keys), MOST_SQL_KEYS):
                some = keys[begin : begin + MOST_SQL_KEYS]
                marks = ",".join("?" * len(some))
                statement = f"SELECT key, value FROM {self._table} WHERE key IN ({marks})"  # noqa: S608  # an identifier
                found |= dict(self._connection().execute(statement, list(some)))
        except sqlite3.Error as error:
            raise OSError(f"SQLite: {error}") from None
        return [found.get(key) for key in keys]

    def _connection(self) -> sqlite3.Connection:
        if self._open is None:
            self._open = sqlite3.connect(self._address, uri=True, timeout=self._deadline_s, check_same_thread=False)
        return self._open


class PostgresStore:
    """One statement for all keys, on one connection. A password is better in a `.pgpass` file than in the address,
    which stands in the artefact."""

    def __init__(self, url: str, table: str, deadline_s: float) -> None:
        try:
            import psycopg
        except ImportError:
            raise Invalid(
                "look-ups in PostgreSQL need the package psycopg", where="store", hint="pip install 'psycopg[binary]'"
            ) from None
        self._error, self._closed = psycopg.Error, psycopg.OperationalError
        patience_s = max(1, math.ceil(deadline_s))
        limit = f"-c statement_timeout={max(1, int(deadline_s * 1000))}"
        self._connect: Callable[[], Any] = functools.partial(
            psycopg.connect, url, autocommit=True, connect_timeout=patience_s, options=limit
        )
        self._statement = f'SELECT key, value FROM "{table}" WHERE key = ANY(%s)'  # noqa: S608  # an identifier
        self._open: Any = None

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        try:
            if self._open is not None:
                try:
                    return self._ask(keys)
                except self._closed:
                    if not self._open.closed:  # too slow, and not gone
                        raise
            self._open = self._connect()
            return self._ask(keys)
        except self._error as error:
            raise OSError(f"PostgreSQL: {error}") from None

    def _ask(self, keys: Sequence[str]) -> list[bytes | None]:
        rows = self._open.execute(self._statement, [list(keys)], binary=True)
        found: dict[str, bytes] = dict(rows.fetchall())
        return [found.get(key) for key in keys]


class HttpStore:
    def __init__(self, url: str, deadline_s: float) -> None:
        import httpx

        self._url = url
        self._errors = (httpx.HTTPError, ValueError, KeyError, TypeError)
        self._client = httpx.Client(timeout=deadline_s)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        try:
            response = self._client.post(self._url, json={"keys": list(keys)})
            response.raise_for_status()
            values = [None if one is None else base64.b64decode(one) for one in response.json()["values"]]
        except self._errors as error:
            raise OSError(f"HTTP store: {error}") from None
        return checked(values, len(keys))


def checked(values: list[bytes | None], wanted: int) -> list[bytes | None]:
    """Raises OSError for an answer that is too short or too long."""
    if len(values) != wanted:
        raise OSError(f"the store answered {len(values)} values to {wanted} keys")
    return values


class CachedStore:
    """A store with the values of hot keys at hand: at most `most_bytes` of them, each for `ttl_s`. A new value takes
    the place of the one used longest ago only if its key is asked for more often for its size."""

    def __init__(self, store: Store, most_bytes: int, ttl_s: float, clock: Clock = time.monotonic) -> None:
        self._store = store
        self._most = most_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._values: OrderedDict[str, tuple[bytes | None, float]] = OrderedDict()
        self._asked: dict[str, int] = {}
        self._bytes = 0
        self.hits = 0
        self.misses = 0

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        now = self._clock()
        found: dict[str, bytes | None] = {}
        for key in keys:
            self._asked[key] = self._asked.get(key, 0) + 1
            kept = self._values.get(key)
            if kept is not None and now - kept[1] < self._ttl_s:
                found[key] = kept[0]
                self._values.move_to_end(key)
        missing = list(dict.fromkeys(key for key in keys if key not in found))
        self.hits += len(keys) - len(missing)
        self.misses += len(missing)
        if missing:
            for key, value in zip(missing, self._store.get_many(missing), strict=True):
                found[key] = value
                self._admit(key, value, now)
        if len(self._asked) > 8 * max(len(self._values), 1000):  # old counts fade, and take no memory for ever
            self._asked = {key: count // 2 for key, count in self._asked.items() if count > 1}
        return [found[key] for key in keys]

    def _admit(self, key: str, value: bytes | None, now: float) -> None:
        size = self._size(key, value)
        self._drop(key)
        while self._bytes + size > self._most and self._values:
            victim = next(iter(self._values))
            worth = self._asked.get(victim, 0) / self._size(victim, self._values[victim][0])
            if self._asked[key] / size <= worth:
                return
            self._drop(victim)
        if self._bytes + size <= self._most:
            self._values[key] = value, now
            self._bytes += size

    def _drop(self, key: str) -> None:
        kept = self._values.pop(key, None)
        if kept is not None:
            self._bytes -= self._size(key, kept[0])

    @staticmethod
    def _size(key: str, value: bytes | None) -> int:
        return len(key) + len(value or b"") + 150  # what Python's objects take beside


def with_cache(store: Store, most_bytes: int, ttl_s: float) -> Store:
    return CachedStore(store, most_bytes, ttl_s) if most_bytes else store


def plain_key(parts: Sequence[Any]) -> str:
    """The key of a row: its values joined by colons; whole floats as integers, so that 7 and 7.0 are one key."""
    return ":".join(map(key_part, parts))


def key_part(one: Any) -> str:
    return str(int(one)) if isinstance(one, float) and one.is_integer() else str(one)
