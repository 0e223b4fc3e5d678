"""Listens, lets clients in as far as there is room, and ends the patience with them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

from shoal.base.http.connection import Connection
from shoal.base.http.errors import TooManyConnections
from shoal.base.http.limits import Limits
from shoal.base.http.peers import Peers, network_of
from shoal.base.listening import listen
from shoal.core import Overloaded, Unavailable

_ACCEPTED_AT_ONCE = 16
"""Then others have their turn: a flood of connections must not hold up those that are there."""
_REFUSED_AT_ONCE = 16
"""Refused clients that are listened to until they have read why; beyond, they may see a reset connection."""
_NO_DESCRIPTORS_PAUSE_S = 0.1
_LAST_WORDS_S = 0.5
"""How long connections may still take, when all patience is at an end, to send why they are closed."""


Tls = Callable[[], ssl.SSLContext]


class Front(ABC):
    """An HTTP/1.1 server on the event loop that runs when it is started. `connection` makes the application's side of
    each client's connection."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.loop: asyncio.AbstractEventLoop
        self.draining = False
        self._listeners: list[socket.socket] = []
        self._peers: Peers[Connection[Any]] = Peers(limits.room())
        self._connections: set[Connection[Any]] = set()
        self._refused: set[Connection[Any]] = set()
        self._connecting: set[asyncio.Task[Any]] = set()
        self._all_gone = asyncio.Event()
        self._held = 0
        self._rests: dict[tuple[bool, bool], bytes] = {}
        self._timer: asyncio.TimerHandle | None = None

    @abstractmethod
    def connection(self, network: str) -> Connection[Any]:
        """A connection of a client from this address."""

    async def start(self, host: str = "127.0.0.1", port: int = 8000) -> int:
        """Listen; returns the port, which the system chooses for 0. Raises Unavailable if it is taken."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            listeners = listen(found)
        except OSError as error:
            raise Unavailable(f"the port cannot be listened on: {error.strerror}", where=f"{host}:{port}") from None
        for listener in listeners:
            self.serve(listener)
        return int(listeners[0].getsockname()[1])

    def serve(self, listener: socket.socket, tls: Tls | None = None) -> None:
        """Take the clients of a socket that listens already and does not block. It is closed when this stops. `tls` is
        asked for each client's context; without it, nothing is encrypted."""
        self.loop = asyncio.get_running_loop()
        if self._timer is None:
            self._sweep()
        self._listeners.append(listener)
        self.loop.add_reader(listener.fileno(), self._accept, listener, tls)

    async def stop(self, drain_s: float = 10.0) -> None:
        """Take no new connections or requests, answer those that are on their way for up to `drain_s`, then close."""
        self.draining = True
        while self._listeners:
            listener = self._listeners.pop()
            self.loop.remove_reader(listener.fileno())
            listener.close()
        for connection in [*self._connections]:
            connection.drain()
        await self._gone_within(drain_s)
        for connection in [*self._connections]:
            connection.stop()
        await self._gone_within(_LAST_WORDS_S)
        for connection in [*self._connections]:
            connection.abort()
        if self._timer is not None:
            self._timer.cancel()

    async def _gone_within(self, seconds: float) -> None:
        if self._connections:
            self._all_gone.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._all_gone.wait()
            except TimeoutError:
                return

    # Letting clients in

    def _accept(self, listener: socket.socket, tls: Tls | None) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                client, address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # it gave up while it waited
            except OSError:
                # Others took what this server keeps in reserve: let some be given back before the next try.
                self.loop.remove_reader(listener.fileno())
                self.loop.call_later(_NO_DESCRIPTORS_PAUSE_S, self._go_on, listener, tls)
                return
            client.setblocking(False)
            self._welcome(client, network_of(address), tls)

    def _go_on(self, listener: socket.socket, tls: Tls | None) -> None:
        if listener in self._listeners:
            self.loop.add_reader(listener.fileno(), self._accept, listener, tls)

    def _welcome(self, client: socket.socket, network: str, tls: Tls | None) -> None:
        connection = self.connection(network)
        if self._peers.full_for(network, client.fileno()):
            victim = self._peers.victim(network)
            if victim is not None:
                self._peers.discard(victim.network, victim)
                victim.abort()
            elif len(self._refused) < _REFUSED_AT_ONCE:
                self._refused.add(connection)
            elif tls is not None:
                client.close()
                return
            else:
                _turn_away(client, connection.failure(_NO_ROOM, self.rest(True, True)))
                return
        self._connections.add(connection)
        if connection not in self._refused:
            self._peers.add(network, connection)
        task = self.loop.create_task(self._connect(connection, client, tls))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: Connection[Any], client: socket.socket, tls: Tls | None) -> None:
        connection.secure = tls is not None
        context, patience = (None, None) if tls is None else (tls(), self.limits.head_s)
        try:
            await self.loop.connect_accepted_socket(
                lambda: connection, client, ssl=context, ssl_handshake_timeout=patience
            )
        except OSError:
            client.close()
            self.forget(connection)
            return
        if connection in self._refused:
            connection.refuse(_NO_ROOM)

    # What connections call

    def forget(self, connection: Connection[Any]) -> None:
        self._peers.discard(connection.network, connection)
        self._refused.discard(connection)
        self._connections.discard(connection)
        if not self._connections:
            self._all_gone.set()

    def hold(self, size: int) -> None:
        """Take memory for a body. Raises Overloaded."""
        if self._held + size > self.limits.held:
            raise Overloaded(f"requests of {self.limits.held} bytes in all are being worked on")
        self._held += size

    def release(self, size: int) -> None:
        self._held -= size

    def rest(self, closing: bool, modern: bool) -> bytes:
        """The headers that every answer has at present, and the empty line."""
        return self._rests[closing, modern]

    def _sweep(self) -> None:
        """Runs periodically: sets the date that all answers carry, and ends connections whose time is over."""
        date = f"Date: {formatdate(usegmt=True)}\r\n\r\n".encode()
        self._rests = {
            (False, True): date,
            (False, False): b"Connection: keep-alive\r\n" + date,
            (True, True): b"Connection: close\r\n" + date,
            (True, False): b"Connection: close\r\n" + date,
        }
        now = self.loop.time()
        for connection in [*self._connections]:
            if connection.overdue(now):
                connection.expire()
        self._timer = self.loop.call_later(self.limits.sweep_s, self._sweep)


_NO_ROOM = TooManyConnections(
    "the server has too many connections", hint="close some, or reuse one for several requests"
)


def _turn_away(client: socket.socket, answer: bytes) -> None:
    with contextlib.closing(client), contextlib.suppress(OSError):
        client.send(answer)
        client.recv(1 << 16)  # what is unread at the end would turn the answer into a reset
