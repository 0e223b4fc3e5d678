"""A connection to a server: HTTP/1.1 on a socket, one time limit for a whole call, and no copies of tensors."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httptools
import orjson

from shoal.core import Invalid, Unavailable
from shoal.serve.protocol import errors
from shoal.serve.types import Buffer

Told = TypeVar("Told")

_PIECE = 64 << 10
"""Bytes received at once."""


class NoConnection(Unavailable):
    """No server listens there, or it refuses us. Nothing was sent."""


class ConnectionBroken(Unavailable):
    """The connection broke, or the answer took too long: whether the request was worked on is not known."""


@dataclass(frozen=True, slots=True)
class Server:
    """A TCP port, with TLS or without, or else the socket file `path`; the paths of calls begin with `prefix`."""

    host: str
    port: int = 0
    tls: bool = False
    prefix: str = ""
    path: str = ""

    @classmethod
    def of(cls, url: str) -> Server:
        """From `http://HOST:PORT[/PREFIX]`, `https://...` or `unix:///PATH`. Raises Invalid."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise Invalid(f"{url!r:.200} is no URL: {error}") from None
        if parts.scheme == "unix" and parts.path:
            return cls("localhost", path=parts.path)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            hint = "as in http://127.0.0.1:8000 or unix:///run/shoal.sock"
            raise Invalid(f"{url!r:.200} is no server's URL", hint=hint)
        tls = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if tls else 80), tls, parts.path.rstrip("/"))

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"

    def connect(self, patience_s: float) -> socket.socket:
        """Raises OSError."""
        with ExitStack() as stack:
            if self.path:
                made = stack.enter_context(socket.socket(socket.AF_UNIX))
                made.settimeout(patience_s)
                made.connect(self.path)
            else:
                made = stack.enter_context(socket.create_connection((self.host, self.port), patience_s))
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self.tls:
                    made = ssl.create_default_context().wrap_socket(made, server_hostname=self.host)
            stack.pop_all()
            return made


@dataclass(frozen=True, slots=True)
class Answer:
    """`header_length` is how long the JSON in the body is if it is not all."""

    body: bytes
    header_length: int | None

    def json(self, kind: type[Told]) -> Told:
        """The body, a JSON object or array. Raises Unavailable if it is none."""
        with suppress(orjson.JSONDecodeError):
            found = orjson.loads(self.body)
            if isinstance(found, kind):
                return found
        raise Unavailable(f"the server's answer is no JSON {'array' if kind is list else 'object'}")


class Channel:
    """`reusable` between calls; not after one that broke off."""

    def __init__(self, server: Server, token: str | None, patience_s: float) -> None:
        """Raises NoConnection."""
        self.reusable = True
        self._server = server
        self._token = token
        self._buffer = memoryview(bytearray(_PIECE))
        try:
            self._socket = server.connect(patience_s)
        except OSError as error:
            raise NoConnection(f"no connection: {error}", where=str(server)) from None

    def is_open(self) -> bool:
        """False once the server hung up. (Nothing else can be readable between calls.)"""
        return not select.select([self._socket], [], [], 0)[0]

    def call(
        self, method: str, path: str, header: bytes = b"", binary: Sequence[Buffer] = (), *, patience_s: float
    ) -> Answer:
        """Send `header`, then `binary`. Raises what the server refuses the call with, and ConnectionBroken."""
        self.reusable = False
        until = time.monotonic() + patience_s
        reading = _Reading()
        broken: OSError | None = None
        try:
            self._send([self._head(method, path, header, binary), *binary], until)
        except OSError as error:
            broken = error  # the server may have hung up on us with an answer: too large, say
        while not reading.done:
            try:
                self._socket.settimeout(max(until - time.monotonic(), 0.001))
                count = self._socket.recv_into(self._buffer)
            except OSError as error:
                raise ConnectionBroken(f"no answer: {broken or error}", where=str(self._server)) from None
            if not count:
                raise ConnectionBroken("the server hung up without an answer", where=str(self._server))
            reading.feed(self._buffer[:count])
        self.reusable = reading.keep_alive and broken is None
        return reading.answer()

    def close(self) -> None:
        self._socket.close()

    def _head(self, method: str, path: str, header: bytes, binary: Sequence[Buffer]) -> bytes:
        host = f"[{self._server.host}]" if ":" in self._server.host else self._server.host
        lines = [
            f"{method} {self._server.prefix}{path} HTTP/1.1",
            f"Host: {host}",
            f"Content-Length: {len(header) + sum(map(len, binary))}",
        ]
        if self._token is not None:
            lines.append(f"Authorization: Bearer {self._token}")
        if binary:
            lines.append(f"Inference-Header-Content-Length: {len(header)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + header

    def _send(self, pieces: list[Buffer], until: float) -> None:
        self._socket.settimeout(max(until - time.monotonic(), 0.001))
        if isinstance(self._socket, ssl.SSLSocket):
            for piece in pieces:
                self._socket.sendall(piece)
            return
        while pieces:
            sent = self._socket.sendmsg(pieces)
            while pieces and sent >= len(pieces[0]):
                sent -= len(pieces.pop(0))
            if sent:
                pieces[0] = memoryview(pieces[0])[sent:]


class _Reading:
    """Takes what is received; complete once `done`."""

    def __init__(self) -> None:
        self.done = False
        self.keep_alive = False
        self._status = 0
        self._fields: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._parser: Any = httptools.HttpResponseParser(self)

    def feed(self, data: Buffer) -> None:
        """Raises Unavailable if this is not HTTP."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise Unavailable(f"what answers does not speak HTTP/1.1: {error}") from None
        if self.done:
            self._parser = None  # it holds this object: without a cycle, both are freed at once

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields[name.lower()] = value

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._status == 100:
            self._fields.clear()
            return
        self.done = True
        self.keep_alive = self._parser.should_keep_alive()

    def answer(self) -> Answer:
        """Raises what the server refused the call with."""
        body = b"".join(self._body)
        if self._status != 200:
            raise errors.rebuild(self._status, body, self._number(b"retry-after"))
        return Answer(body, self._number(b"inference-header-content-length"))

    def _number(self, name: bytes) -> int | None:
        value = self._fields.get(name, b"")
        return int(value) if value.isdigit() else None
