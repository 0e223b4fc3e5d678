"""What an HTTP server itself costs: empty answers of Shoal's front beside uvicorn's (httptools and uvloop).

The same empty ASGI application runs behind both, each server in a process of its own; `Shoal, no ASGI` is the way in
which the inference gateway answers. A round asks each server in turn: 16 connections that each wait for their answer
before they ask again, for requests per second and for the processor time that the server took for each; then one
connection, for the median time. Reported are medians over the rounds and the ratio's median, so that what slows the
machine down slows all. uvicorn is installed with `pip install 'shoal[dev]'`; the product does not use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from common import Row, median, parser, report

from shoal.base.statistics import quantile

GET = b"GET /healthz HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"
OURS, PLAIN, THEIRS = "Shoal", "Shoal, no ASGI", "uvicorn"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


async def empty(scope: dict, receive: object, send: object) -> None:  # noqa: ARG001
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"ok"})


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    arguments.add_argument("--serve", choices=[OURS, PLAIN, THEIRS], help="be one of the servers")
    options = arguments.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    found: dict[str, list[tuple[float, float, float]]] = {OURS: [], PLAIN: [], THEIRS: []}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(server(name)) for name in found}
        for _ in range(options.rounds):
            for name, (port, pid) in servers.items():
                found[name].append((*throughput(port, pid, options.seconds), latency(port, options.seconds / 2)))
    rows = []
    for name, rounds in found.items():
        rate, cpu, p50 = (median([one[at] for one in rounds]) for at in range(3))
        rows += [
            Row(f"{name}: empty answers, 16 connections", rate, "/s"),
            Row(f"{name}: server's processor time for each", cpu * 1e6, "us"),
            Row(f"{name}: one connection, p50", p50 * 1e3, "ms"),
        ]
    for at, (what, up) in enumerate((("answers/s", True), ("processor time", False), ("p50", False))):
        pairs = zip(found[OURS], found[THEIRS], strict=True)
        ratio = median([ours[at] / theirs[at] if up else theirs[at] / ours[at] for ours, theirs in pairs])
        rows.append(Row(f"Shoal against uvicorn, {what} (more is better)", ratio, "x", "> 1", ratio > 1))
    return report("empty answers over HTTP/1.1", rows, as_json=options.json)


@contextlib.contextmanager
def server(name: str) -> Iterator[tuple[int, int]]:
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__)), "--serve", name], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.wait()


def serve(name: str) -> None:
    import uvloop

    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    listener.setblocking(False)
    print(listener.getsockname()[1], flush=True)
    if name == THEIRS:
        import uvicorn

        config = uvicorn.Config(
            empty, http="httptools", loop="uvloop", ws="none", lifespan="off", access_log=False, server_header=False
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(uvicorn.Server(config).serve(sockets=[listener]))
        return
    from shoal.base.http import Limits
    from shoal.base.http.answers import document
    from shoal.base.http.asgi import AsgiFront
    from shoal.base.http.connection import Connection
    from shoal.base.http.front import Front
    from shoal.base.http.head import Head

    class Plain(Connection[Head]):
        def admit(self, head: Head) -> Head:
            return head

        def handle(self, call: Head, body: object) -> None:  # noqa: ARG002
            self._send(document(200, b"ok", b"text/plain", self._rest()))

        def failure(self, error: Exception, rest: bytes) -> bytes:
            return document(500, str(error).encode(), b"text/plain", rest)

    class PlainFront(Front):
        def connection(self, network: str) -> Plain:
            return Plain(self, network)

    async def run() -> None:
        plain = PlainFront(Limits())
        made = AsgiFront(empty, Limits(), lambda error: (500, [], repr(error).encode())) if name == OURS else plain
        made.serve(listener)
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def throughput(port: int, pid: int, seconds: float, connections: int = 16) -> tuple[float, float]:
    """Answers a second, and the processor time of the server for each."""
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(connections):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.sendall(GET)
            selector.register(one, selectors.EVENT_READ)
        before, began, count = processor_s(pid), time.monotonic(), 0
        until = began + seconds
        while time.monotonic() < until:
            for key, _ in selector.select():
                key.fileobj.recv(4096)  # an answer of 150 bytes is never cut
                key.fileobj.sendall(GET)
                count += 1
        took = time.monotonic() - began
        return count / took, (processor_s(pid) - before) / count


def latency(port: int, seconds: float) -> float:
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times: list[float] = []
        until = time.monotonic() + seconds
        while not times or time.monotonic() < until:
            began = time.perf_counter()
            one.sendall(GET)
            one.recv(4096)
            times.append(time.perf_counter() - began)
        return quantile(times, 0.5)


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


if __name__ == "__main__":
    sys.exit(main())
