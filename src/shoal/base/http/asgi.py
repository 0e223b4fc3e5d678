"""Any ASGI 3 application behind the front: streamed bodies both ways, with backpressure; no lifespan, no WebSockets.

A request that offers another protocol has `scope["extensions"]["upgrade"]`, an `Upgrade`: an application may take the
connection from HTTP by it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

from shoal.base.http import answers
from shoal.base.http.connection import Connection, Doing
from shoal.base.http.errors import Malformed, TooSlow
from shoal.base.http.front import Front
from shoal.base.http.head import Head
from shoal.base.http.limits import Limits
from shoal.base.http.peers import local_user
from shoal.base.http.receiver import Buffer
from shoal.base.http.tunnel import Tunnel, scratch

log = logging.getLogger("shoal.http")

Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]
Failure = Callable[[Exception], tuple[int, list[tuple[bytes, bytes]], bytes]]
"""How a refusal of the server itself looks: status, headers, body."""

_MOST_QUEUED = 64 << 10
"""Bytes of a body that wait for the application before the sender has to."""

LOCAL_USER = "shoal.local_user"
"""In the scope of a request that came by a local socket: the user id of who connected. No header can put it there."""

_BODYLESS = frozenset({204, 304})
_ASGI = {"version": "3.0", "spec_version": "2.3"}


class AsgiFront(Front):
    def __init__(self, app: App, limits: Limits, failure: Failure) -> None:
        super().__init__(limits)
        self.app = app
        self.failure = failure
        self.tasks: set[asyncio.Task[None]] = set()
        """The loop holds tasks only weakly, and an application may work on after its answer."""

    def connection(self, network: str) -> AsgiConnection:
        return AsgiConnection(self, network)


class AsgiConnection(Connection["Exchange"]):
    collects = False

    def __init__(self, front: AsgiFront, network: str) -> None:
        super().__init__(front, network)
        self._asgi = front
        self._waited_since = 0.0
        self._received = 0
        self._paused_at = 0.0
        self._drained: asyncio.Future[None] | None = None
        self._scope_of: Head | None = None
        self._scope_made: Message = {}
        self._tunnel: Tunnel | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._addresses = tuple(_pair(transport.get_extra_info(name)) for name in ("peername", "sockname"))
        user = local_user(transport.get_extra_info("socket"))
        self._user = {} if user is None else {LOCAL_USER: user}

    def admit(self, head: Head) -> Exchange:
        return Exchange(self, head, self._scope(head))

    def handle(self, call: Exchange, body: Buffer) -> None:  # noqa: ARG002 - it comes in pieces
        self._received = 0
        call.task = self._start(call, self._run(call))
        self._asgi.tasks.add(call.task)
        self._waited_since = self._since

    def failure(self, error: Exception, rest: bytes) -> bytes:
        status, headers, body = self._asgi.failure(error)
        headers = [*headers, (b"content-length", b"%d" % len(body))]
        return answers.head(status, headers, rest) + body

    def pass_on(self) -> None:
        call = self._call
        assert call is not None
        try:
            data = self._receiver.piece()
        except Exception as error:
            self._fail_call(call, error)
            return
        self._received += len(data)
        call.came(data, more=self._receiver.streaming)
        if self._receiver.streaming and call.queued >= _MOST_QUEUED:
            self._pause()
            self._paused_at = self._front.loop.time()

    def get_buffer(self, size_hint: int) -> memoryview:
        return scratch() if self._tunnel is not None else super().get_buffer(size_hint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._tunnel is not None:
            self._tunnel.client_sent(bytes(scratch()[:nbytes]))
        else:
            super().buffer_updated(nbytes)

    def eof_received(self) -> bool:
        return self._tunnel.client_ended() if self._tunnel is not None else super().eof_received()

    def pause_writing(self) -> None:
        if self._tunnel is not None:
            self._tunnel.client_blocked(True)
        else:
            super().pause_writing()

    @property
    def idle(self) -> bool:
        return self._tunnel is None and super().idle

    def drain(self) -> None:
        super().drain()
        if self._tunnel is not None:
            self._tunnel.close()

    def overdue(self, now: float) -> bool:
        if self._tunnel is not None:
            return False
        if self._doing is not Doing.ANSWER:
            return super().overdue(now)
        if not self._receiver.streaming or self._paused:
            return False  # it is the application that takes its time
        limits = self._front.limits
        return now - self._waited_since > limits.body_s + self._received / limits.slowest_bytes_per_s

    def expire(self) -> None:
        call = self._call
        if self._doing is Doing.ANSWER and call is not None:
            self._fail_call(call, TooSlow("the request came too slowly"))
        else:
            super().expire()

    def stop(self) -> None:
        if self._tunnel is not None or (self._call is not None and self._call.started):
            self.abort()  # half an answer must not look like a whole one
        else:
            super().stop()

    def connection_lost(self, error: Exception | None) -> None:
        call, self._call = self._call, None
        self._task = None  # it is told, not cancelled: an application may have something to finish
        if call is not None:
            call.hang_up()
        if self._tunnel is not None:
            self._tunnel.client_lost()
        self._wake()
        super().connection_lost(error)

    def resume_writing(self) -> None:
        if self._tunnel is not None:
            self._tunnel.client_blocked(False)
            return
        super().resume_writing()
        self._wake()

    # What an exchange calls

    def wants(self) -> None:
        """The application waits for the next piece of the body."""
        if self._receiver.streaming:
            self._say_continue()
            if self._paused:
                self._waited_since += self._front.loop.time() - self._paused_at
                self._resume()

    def begin_answer(self, call: Exchange, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        """The head of an answer."""
        if self._receiver.streaming:
            # Answered before its body was there: where the next request begins will never be known.
            self._closing = self._receiver.lost = True
        if call.ends_by_closing:
            self._closing = True
        return answers.head(status, headers, self._rest())

    async def write(self, data: bytes) -> None:
        """Send a part of an answer; returns once the client is not too far behind."""
        self._transport.write(data)
        if self._doing is Doing.DRAIN:
            self._drained = self._front.loop.create_future()
            await self._drained

    def switch(self, call: Exchange, protocol: bytes, tunnel: Tunnel) -> None:
        """Answer that another protocol is spoken from here on, and pass all bytes through the tunnel."""
        if self._call is not call:
            raise RuntimeError("the connection is not at this request")
        self._call = self._task = None
        self._tunnel = tunnel
        head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocol + b"\r\n\r\n"
        tunnel.greet(self._transport, head)
        tunnel.client_made(self._transport, self._receiver.rest())
        self._resume()

    def end_answer(self, data: bytes) -> None:
        if data:
            self._done(data)
        else:
            self._done()
        self._advance()

    # Inside

    def _wake(self) -> None:
        waiting, self._drained = self._drained, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _run(self, call: Exchange) -> None:
        try:
            await self._asgi.app(call.scope, call.receive, call.send)
        except asyncio.CancelledError:
            if self._call is call:  # not by this connection, which gives up its call first
                self._transport.abort()
            raise
        except Exception as error:
            self._fail_call(call, error)
        else:
            if self._call is call:
                self._fail_call(call, RuntimeError("the application ended without a whole answer"))
        finally:
            self._asgi.tasks.discard(call.task)

    def _fail_call(self, call: Exchange, error: Exception) -> None:
        if self._call is not call:
            log.warning("an application failed after its answer, or after its client had gone", exc_info=error)
        elif call.started:
            log.error("an answer broke off", exc_info=error)
            self._transport.abort()
        else:
            if self._receiver.streaming:
                self._closing = self._receiver.lost = True
            self._fail(error)
            self._advance()

    def _scope(self, head: Head) -> Message:
        if head is not self._scope_of:  # mostly it is the same head again
            raw, _, query = head.target.partition(b"?")
            if not raw.startswith(b"/") and raw != b"*":
                raise Malformed("the request's target is no path", where=f"{raw!r:.80}")
            self._scope_of = head
            self._scope_made = {
                "type": "http",
                "asgi": _ASGI,
                "http_version": "1.1" if head.modern else "1.0",
                "method": head.method,
                "scheme": "https" if self.secure else "http",
                "path": unquote(raw.decode("latin-1")),
                "raw_path": raw,
                "query_string": query,
                "root_path": "",
                "client": self._addresses[0],
                "server": self._addresses[1],
                **self._user,
            }
        return {**self._scope_made, "headers": [*head.headers], "state": {}}


class Exchange:
    """One request and its answer, as an ASGI application sees them."""

    task: asyncio.Task[None]

    # Most requests have no body and one piece of answer: what these do not need is made once, here.
    started = False
    queued = 0
    ends_by_closing = False
    _told = False
    _gone = False
    _chunked = False
    _silent = False
    _left: int | None = None
    _start: Message | None = None
    _waiting: asyncio.Future[None] | None = None

    def __init__(self, connection: AsgiConnection, head: Head, scope: Message) -> None:
        self.scope = scope
        self._connection = connection
        self._head = head
        self._complete = head.length == 0
        if head.length == 0 and head.modern and (offered := head.get(b"upgrade")) is not None:
            scope["extensions"] = {"upgrade": Upgrade(self, offered)}
        self._pieces: deque[bytes] | None = deque() if head.length else None

    # What the connection calls

    def came(self, data: bytes, *, more: bool) -> None:
        if data and self._pieces is not None:
            self._pieces.append(data)
            self.queued += len(data)
        self._complete = not more
        self._wake()

    @property
    def gone(self) -> bool:
        return self._gone

    def hang_up(self) -> None:
        self._gone = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # What the application calls

    def switch(self, protocol: bytes, tunnel: Tunnel) -> None:
        self._gone = True
        self._connection.switch(self, protocol, tunnel)
        self._wake()

    async def receive(self) -> Message:
        while not self._gone:
            if self._pieces or (self._complete and not self._told):
                data = self._pieces.popleft() if self._pieces else b""
                self.queued -= len(data)
                self._told = self._complete and not self._pieces
                return {"type": "http.request", "body": data, "more_body": not self._told}
            if not self._told:
                self._connection.wants()
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Raises RuntimeError for messages out of order; does nothing once the client has gone."""
        if self._gone:
            return
        kind = message["type"]
        if kind == "http.response.start" and self._start is None:
            self._start = message
        elif kind == "http.response.body" and self._start is not None:
            await self._send_body(self._start, bytes(message.get("body", b"")), message.get("more_body", False))
        else:
            raise RuntimeError(f"{kind} is out of order")

    async def _send_body(self, start: Message, body: bytes, more: bool) -> None:
        begin = b"" if self.started else self._begin(start, body, more)
        self.started = True
        if self._silent:
            body = b""
        elif self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the answer's body is not as long as its Content-Length says")
        elif self._chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if not more:
                body += b"0\r\n\r\n"
        if more:
            if begin or body:
                await self._connection.write(begin + body)
        else:
            self._gone = True
            self._connection.end_answer(begin + body)
            self._wake()

    def _begin(self, start: Message, body: bytes, more: bool) -> bytes:
        """The answer's head, in which it says how its body ends."""
        status: int = start["status"]
        length: bytes | None = None
        headers: list[tuple[bytes, bytes]] = []
        for name, value in start.get("headers", ()):
            lower = name.lower()
            if lower == b"content-length":
                length = value
            elif lower in _OURS:
                continue
            headers.append((lower, value))
        bodyless = status in _BODYLESS or status < 200
        self._silent = bodyless or self._head.method == "HEAD"
        if length is not None:
            self._left = int(length)
        elif not more and not bodyless:
            self._left = len(body)
            headers.append((b"content-length", b"%d" % len(body)))
        elif self._silent:
            pass
        elif self._head.modern:
            self._chunked = True
            headers.append((b"transfer-encoding", b"chunked"))
        else:
            self.ends_by_closing = True
        return self._connection.begin_answer(self, status, headers)


class Upgrade:
    """What a client offers to speak instead of HTTP, and how the offer is taken."""

    def __init__(self, exchange: Exchange, offered: bytes) -> None:
        self._exchange = exchange
        self.offered = tuple(word.strip() for word in offered.lower().split(b","))

    def accept(self, protocol: bytes, tunnel: Tunnel) -> None:
        """Take the connection. Nothing else may be answered then; where the client has gone, the tunnel ends."""
        if self._exchange.gone:
            tunnel.close()
        else:
            self._exchange.switch(protocol, tunnel)


_OURS = frozenset({b"connection", b"transfer-encoding", b"date", b"keep-alive"})


def _pair(address: object) -> tuple[str, int] | None:
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None
