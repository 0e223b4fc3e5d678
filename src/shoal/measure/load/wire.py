"""HTTP/1.1 as a load generator needs it: requests encoded beforehand, responses parsed in C, connections kept.

One request at a time goes over a connection; the pool opens another whenever none is idle, so that no request ever
waits behind a slower one on our side of the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from shoal.core import Invalid, Unavailable
from shoal.measure.types import Failure

_SWEEP_S = 0.05
"""How often requests are looked through for those that have timed out."""

Ended = Callable[[Any, int, float, bytes], None]
"""`ended(token, status, at_s, body)`: an HTTP status or a `Failure`, in `time.monotonic` seconds, and what the answer
held, if that was wanted."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens. `prefix` goes before every path; it is empty for a server of its own."""

    host: str
    port: int
    secure: bool = False
    prefix: str = ""

    @classmethod
    def parse(cls, url: str) -> Address:
        """Raises Invalid for what is not an http(s) URL of a server."""
        hint = "write it as http://host:port"
        if "@" in url.rpartition("://")[2].partition("/")[0]:  # before any error that shows the address
            raise Invalid("credentials do not belong into an address", where="url", hint="give a token instead")
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            secure = parts.scheme == "https"
            port = (443 if secure else 80) if parts.port is None else parts.port
        except ValueError as error:
            raise Invalid(f"{url!r} is not an address: {error}", where="url", hint=hint) from None
        if not url.isascii() or not url.isprintable() or " " in url:
            raise Invalid(f"{url!r} holds characters that an address cannot have", where="url", hint=hint)
        if parts.scheme not in ("http", "https") or not parts.hostname or not port or parts.query or parts.fragment:
            raise Invalid(f"{url!r} is not an address of a server", where="url", hint=hint)
        return cls(parts.hostname, port, secure, parts.path.rstrip("/").removesuffix("/v2"))

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.prefix}"


def head(address: Address, method: str, path: str, *, length: int = 0, headers: dict[str, str] | None = None) -> bytes:
    """A request's head. Raises Invalid where a header could break out of its line."""
    lines = [f"{method} {address.prefix}{path} HTTP/1.1", f"Host: {address.authority}"]
    if method != "GET":
        lines.append(f"Content-Length: {length}")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    for line in lines:
        if not line.isascii() or not line.isprintable():
            raise Invalid(f"the header {line.partition(':')[0]!r} holds characters that HTTP does not allow")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


class Connection(asyncio.Protocol):
    """One connection, and the one request that may be on it."""

    __slots__ = (
        "_body", "_complete", "_ended", "_keep", "_parser", "_pool", "_status", "_token", "_transport", "_want_body",
    )  # fmt: skip

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._ended: Ended | None = None
        self._token: Any = None
        self._status = 0
        self._complete = self._keep = False
        self._want_body = False
        self._body = b""

    def send(self, request: bytes, token: Any, ended: Ended, want_body: bool) -> None:
        assert self._transport is not None
        self._token, self._ended, self._want_body = token, ended, want_body
        self._complete, self._body = False, b""
        self._transport.write(request)

    def fail(self, why: Failure) -> None:
        """Give the request up, and the connection with it: a late answer could be taken for the next one's."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        ended, self._ended = self._ended, None
        self._pool.forget(self)
        if ended is not None:
            ended(self._token, why, time.monotonic(), b"")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance

    def data_received(self, data: bytes) -> None:
        at_s = time.monotonic()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            return self.fail(Failure.GARBLED)
        if not self._complete:
            return None
        ended = self._ended
        if ended is None:
            return self.fail(Failure.GARBLED)  # a response without a request
        self._ended = None
        if self._keep:
            self._pool.release(self)
        else:
            self._pool.forget(self)
            if self._transport is not None:
                self._transport.close()
                self._transport = None
        ended(self._token, self._status, at_s, self._body)
        return None

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self.fail(Failure.LOST)

    def on_body(self, piece: bytes) -> None:
        if self._want_body:
            self._body += piece

    def on_message_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._status < 200:
            return  # an interim answer; the real one is still to come
        self._keep = self._parser.should_keep_alive()  # the parser knows it only now
        self._complete = True


class Pool:
    """Connections to one server. `timeout_s` is how long an answer is waited for."""

    def __init__(self, address: Address, *, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._ssl = ssl.create_default_context() if address.secure else None
        self._peer: tuple[str, int] | None = None
        self._idle: list[Connection] = []
        self._busy: dict[Connection, float] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Handle | None = None
        self.opened = 0

    async def open(self) -> None:
        """Find the server and make a first connection. Raises Unavailable."""
        try:
            found = await self._loop.getaddrinfo(self.address.host, self.address.port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise Unavailable(
                f"the name {self.address.host!r} cannot be resolved: {error.strerror}",
                where=str(self.address),
                hint="check the address",
            ) from None
        problem: Exception | None = None
        for peer in dict.fromkeys(one[4][:2] for one in found):
            self._peer = (str(peer[0]), int(peer[1]))
            try:
                self._idle.append(await self._connect())
            except (OSError, TimeoutError) as error:
                problem = error
            else:
                return
        why = "it does not answer in time" if isinstance(problem, TimeoutError) else getattr(problem, "strerror", None)
        raise Unavailable(
            f"no server can be reached: {why or problem}",
            where=str(self.address),
            hint="is it running, and is it there?",
        ) from None

    def send(self, request: bytes, token: Any, ended: Ended, *, want_body: bool = False) -> None:
        """`ended` is called exactly once, never from within this call."""
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)
        if not self._idle:
            task = self._loop.create_task(self._open_for(request, token, ended, want_body))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
            return
        connection = self._idle.pop()
        self._busy[connection] = time.monotonic() + self._timeout_s
        connection.send(request, token, ended, want_body)

    def release(self, connection: Connection) -> None:
        """The connection's answer is complete: the one used last is used next, so that spare ones may age."""
        self._busy.pop(connection, None)
        self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        if self._busy.pop(connection, None) is None:
            with contextlib.suppress(ValueError):
                self._idle.remove(connection)

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in list(self._opening):
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for connection in [*self._idle, *self._busy]:
            connection.fail(Failure.LOST)

    async def _open_for(self, request: bytes, token: Any, ended: Ended, want_body: bool) -> None:
        deadline_s = time.monotonic() + self._timeout_s
        try:
            connection = await self._connect()
        except TimeoutError:
            return ended(token, Failure.TIMEOUT, time.monotonic(), b"")
        except OSError:
            return ended(token, Failure.CONNECT, time.monotonic(), b"")
        except asyncio.CancelledError:
            ended(token, Failure.CONNECT, time.monotonic(), b"")
            raise
        self._busy[connection] = deadline_s
        connection.send(request, token, ended, want_body)
        return None

    async def _connect(self) -> Connection:
        assert self._peer is not None, "open() comes first"
        host, port = self._peer
        name = self.address.host if self._ssl is not None else None
        async with asyncio.timeout(self._timeout_s):
            _, connection = await self._loop.create_connection(
                lambda: Connection(self), host, port, ssl=self._ssl, server_hostname=name
            )
        self.opened += 1
        return connection

    def _sweep(self) -> None:
        now = time.monotonic()
        for connection in [one for one, deadline_s in self._busy.items() if deadline_s <= now]:
            connection.fail(Failure.TIMEOUT)
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)
