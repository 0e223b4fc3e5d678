"""The HTTP front: listens, and keeps its connections in bounds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path

from shoal.core import Conflict, Overloaded, Unavailable
from shoal.serve.gateway.backend import Backend
from shoal.serve.gateway.http.connection import Connection
from shoal.serve.gateway.http.limits import HttpLimits
from shoal.serve.gateway.http.routes import Desk
from shoal.serve.gateway.shared_memory import SharedRegions
from shoal.serve.protocol.regions import NoRegions, Regions

_BACKLOG = 1024
_LAST_WORDS_S = 0.5
"""How long connections may still take, when all patience is at an end, to send why they are closed."""


class HttpFront:
    """Serves a backend over HTTP/1.1, on the event loop that runs when it is started.

    `metrics` gives the text of GET /metrics, which only the operator may read; `shared` are the shared memory regions
    of tenants on this machine, None if there are to be none.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        limits: HttpLimits | None = None,
        metrics: Callable[[], bytes] | None = None,
        shared: SharedRegions | None = None,
    ) -> None:
        self.limits = limits or HttpLimits()
        self.desk = Desk(backend, shared, metrics)
        self.regions: Regions = shared if shared is not None else NoRegions()
        self.loop: asyncio.AbstractEventLoop
        self._servers: list[asyncio.AbstractServer] = []
        self._files: list[Path] = []
        self._connections: set[Connection] = set()
        self._all_gone = asyncio.Event()
        self._held = 0
        self._rests: dict[tuple[bool, bool], bytes] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 8000) -> int:
        """Listen; returns the port, which the system chooses for 0. Raises Unavailable if it is taken."""
        self._wake()
        try:
            server = await self.loop.create_server(lambda: Connection(self), host, port, backlog=_BACKLOG)
        except OSError as error:
            raise Unavailable(f"the port cannot be listened on: {error.strerror}", where=f"{host}:{port}") from None
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def start_unix(self, path: Path, *, mode: int = 0o600) -> None:
        """Listen on a socket file, which only its owner may use unless `mode` says otherwise.

        One that a dead server left is replaced; raises Conflict if a live one listens there.
        """
        self._wake()
        if _is_listened_to(path):
            raise Conflict("another server listens here", where=str(path), hint="stop it, or choose another path")
        path.unlink(missing_ok=True)
        server = await self.loop.create_unix_server(
            lambda: Connection(self), str(path), backlog=_BACKLOG, start_serving=False
        )
        self._servers.append(server)
        self._files.append(path)
        path.chmod(mode)  # before anybody can connect
        await server.start_serving()

    async def stop(self, drain_s: float = 10.0) -> None:
        """Take no new connections or requests, answer those that are on their way for up to `drain_s`, then close."""
        self.desk.draining = True
        for server in self._servers:
            server.close()
        for path in self._files:
            path.unlink(missing_ok=True)
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

    # What connections call

    def welcome(self, connection: Connection) -> bool:
        """Keep an eye on the connection; False if it is one too many."""
        self._connections.add(connection)
        return len(self._connections) <= self.limits.connections

    def forget(self, connection: Connection) -> None:
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

    def _wake(self) -> None:
        self.loop = asyncio.get_running_loop()
        if self._timer is None:
            self._sweep()

    def _sweep(self) -> None:
        """Now and then: what time it is for everybody, and whose patience is at an end."""
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


def _is_listened_to(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True
