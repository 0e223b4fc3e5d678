"""Fronts on an event loop in a thread of their own, for clients that block."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from shoal.base.http import Limits
from shoal.serve.gateway.grpc import GrpcFront
from shoal.serve.gateway.http import HttpFront
from shoal.serve.gateway.shared_memory import SharedRegions
from tests.serve.fakes import FakeBackend

Work = Callable[[], Awaitable[Any]]


@dataclass
class Fronts:
    backend: FakeBackend
    shared: SharedRegions
    loop: asyncio.AbstractEventLoop
    http: HttpFront
    http_port: int = 0
    grpc_port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def run(self, work: Work, timeout_s: float = 20.0) -> Any:
        """Await something on the fronts' loop."""
        return asyncio.run_coroutine_threadsafe(work(), self.loop).result(timeout_s)  # type: ignore[arg-type]

    def connect(self) -> socket.socket:
        """A raw connection to the HTTP front, which is never waited for longer than 10 s."""
        made = socket.create_connection(("127.0.0.1", self.http_port), 10.0)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made


@contextlib.contextmanager
def serving(
    backend: FakeBackend | None = None,
    *,
    limits: Limits | None = None,
    message: int = 64 << 20,
    shared: SharedRegions | None = None,
    grpc: bool = False,
    unix: Path | None = None,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Iterator[Fronts]:
    backend = backend or FakeBackend()
    regions = shared or SharedRegions()
    loop = new_loop()
    thread = threading.Thread(target=loop.run_forever, name="fronts", daemon=True)
    thread.start()
    http = HttpFront(backend, limits=limits, metrics=lambda: b"up 1\n", shared=regions)
    rpc = GrpcFront(backend, shared=regions, message=message) if grpc else None
    fronts = Fronts(backend, regions, loop, http)
    try:
        fronts.http_port = fronts.run(lambda: http.start(port=0))
        if unix is not None:
            loop.call_soon_threadsafe(http.serve, _listener(unix))
        if rpc is not None:
            fronts.grpc_port = fronts.run(lambda: rpc.start(port=0))
        yield fronts
    finally:
        fronts.run(lambda: http.stop(0.0))
        if rpc is not None:
            fronts.run(lambda: rpc.stop(0.0))
        regions.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10.0)
        loop.close()


def _listener(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    made.setblocking(False)
    return made
