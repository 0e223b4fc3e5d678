"""A web server that misbehaves on request, an S3 behind a slow network, and a cache beside them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from shoal.cache.daemon import Connection, Daemon, Planning, Settings, SharedCache
from shoal.cache.store import Limits, Store

CHUNK = 64 * 1024
FUSE = os.access("/dev/fuse", os.R_OK | os.W_OK) and shutil.which("fusermount3") is not None


class Web:
    """Objects by path. `behaviour[path]` is one of: `500`, `503`, `403`, `short`, `long`, `endless`, `slow`, `loop`,
    `no version`, `no range`, `weak`. `secret[path]` is the authorisation that it asks for. `gets` counts by path."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.behaviour: dict[str, str] = {}
        self.secret: dict[str, str] = {}
        self.gets: dict[str, int] = {}
        self.heads: dict[str, int] = {}
        self.on_get: Callable[[str], None] = lambda _path: None
        self.delay_s = 0.0
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_HEAD(self) -> None:
                web.heads[self.path] = web.heads.get(self.path, 0) + 1
                self.answer(body=False)

            def do_GET(self) -> None:
                web.gets[self.path] = web.gets.get(self.path, 0) + 1
                time.sleep(web.delay_s)
                self.answer(body=True)
                web.on_get(self.path)

            def answer(self, *, body: bool) -> None:
                how, data = web.behaviour.get(self.path, ""), web.objects.get(self.path)
                if self.path in web.secret and self.headers.get("authorization") != web.secret[self.path]:
                    return self.end(403)
                if how in ("500", "503", "403"):
                    return self.end(int(how))
                if how == "loop":
                    return self.end(302, {"location": self.path})
                if data is None:
                    return self.end(404)
                tag = f'"{hashlib.md5(data).hexdigest()}"'
                if self.headers.get("if-match") not in (None, tag):
                    return self.end(412)
                status, headers, part = 200, {"etag": ("W/" if how == "weak" else "") + tag}, data
                if how == "no version":
                    headers = {}
                if (wanted := self.headers.get("range")) and how != "no range":
                    first, _, last = wanted.removeprefix("bytes=").partition("-")
                    part = data[int(first) : int(last) + 1]
                    status = 206
                    headers["content-range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
                return self.send(status, headers, part, how if body else "head")

            def send(self, status: int, headers: dict[str, str], part: bytes, how: str) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if how == "long":
                    self.send_header("connection", "close")
                else:
                    self.send_header("content-length", str(len(part)))
                self.end_headers()
                try:
                    if how == "short":
                        self.wfile.write(part[:-1])
                        self.close_connection = True
                    elif how in ("long", "endless"):
                        self.wfile.write(part + b"more" * (1 if how == "long" else 100_000))
                        self.close_connection = True
                    elif how == "slow":
                        for at in range(len(part)):
                            self.wfile.write(part[at : at + 1])
                            time.sleep(1)
                    elif how != "head":
                        self.wfile.write(part)
                except OSError:
                    self.close_connection = True

            def end(self, status: int, headers: dict[str, str] | None = None) -> None:
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """A client that went away."""

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def put(self, path: str, data: bytes) -> str:
        self.objects[path] = data
        return self.url + path

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Delay:
    """A TCP proxy: so many seconds of round trip, and a rate that all connections share."""

    def __init__(self, port: int, round_trip_s: float, bytes_per_s: float = 0.0) -> None:
        self._target = port
        self._delay = round_trip_s / 2
        self._rate = bytes_per_s
        self._free_at = 0.0
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()

        def run() -> None:
            asyncio.set_event_loop(self._loop)
            self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
            self.port = self._server.sockets[0].getsockname()[1]
            ready.set()
            self._loop.run_forever()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        ready.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(
            self._pipe(reader, back, 0.0), self._pipe(there, writer, self._rate), return_exceptions=True
        )

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: float) -> None:
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

        async def read() -> None:
            while True:
                data = await reader.read(1 << 16)
                at = self._loop.time() + self._delay
                if rate and data:
                    self._free_at = at = max(self._free_at, at) + len(data) / rate
                await late.put((at, data))
                if not data:
                    return

        reading = asyncio.create_task(read())
        while True:
            at, data = await late.get()
            await asyncio.sleep(max(0.0, at - self._loop.time()))
            if not data:
                break
            writer.write(data)
            await writer.drain()
        await reading
        writer.close()

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            for task in asyncio.all_tasks():
                if task is not asyncio.current_task():
                    task.cancel()

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


@contextmanager
def cache(root: Path, *, size: int = 32 * CHUNK, files: int = 10_000, planning: Planning | None = None,
          secret: bytes | None = None, chunk_bytes: int = CHUNK, **more: Any) -> Iterator[Daemon]:  # fmt: skip
    """A daemon whose rounds come when they are asked for."""
    store = Store(root, Limits(size, files), chunk_bytes=chunk_bytes)
    made = Daemon(SharedCache(store, Settings(planning or Planning(round_s=3600.0), **more)), secret)
    made.start()
    try:
        yield made
    finally:
        made.close()


def ask(daemon: Daemon, do: str, **given: Any) -> Any:
    connection = Connection(daemon.cache.store.root)
    try:
        return connection.ask(do, **given)
    finally:
        connection.close()
