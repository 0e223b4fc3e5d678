"""A server of the Open Inference Protocol whose capacity is known on paper: a FIFO queue before a few workers.

It runs in a process of its own (`running_server`), so that it never shares the interpreter with what measures it.
Service times are kept by a kernel timer, not by work: a model takes no CPU. It checks requests as a real server does.
`simulate_queue` is the same queue in virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any

import httptools
import numpy as np
import uvloop
from numpy.typing import NDArray

from shoal.measure.load.alarm import Alarm

SIZES = {"FP32": 4, "INT64": 8, "UINT8": 1}


@dataclass(frozen=True)
class Fake:
    """`models` by name and service time in seconds; they share `workers` and one queue.

    `exponential` service times, else constant ones. Every `fail_every`-th inference is answered 503, every
    `drop_every`-th by a closed connection, both 0 for never; after inference `stall_after` nothing is answered, after
    `die_after` the process is gone. `json_only` has no binary extension; `load_s` is how long a load takes;
    `queue_limit` answers 503 beyond it. Without `repository` models are neither loaded nor unloaded.
    """

    models: dict[str, float] = field(default_factory=lambda: {"fake": 0.002})
    workers: int = 1
    exponential: bool = False
    fail_every: int = 0
    drop_every: int = 0
    stall_after: int = 0
    die_after: int = 0
    json_only: bool = False
    token: str | None = None
    load_s: float = 0.0
    queue_limit: int = 0
    repository: bool = True
    seed: int = 1


@contextlib.contextmanager
def running_server(fake: Fake | None = None) -> Iterator[str]:
    """Its URL, for the time of the block."""
    command = [sys.executable, __file__, json.dumps(asdict(fake or Fake()))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def simulate_queue(
    arrivals_s: NDArray[np.float64],
    services_s: NDArray[np.float64],
    *,
    workers: int = 1,
    busy_until: list[float] | None = None,
) -> NDArray[np.float64]:
    """Latencies (n,) of a FIFO queue. `busy_until`, one time for each worker, is read and brought up to date."""
    free = [0.0] * workers if busy_until is None else busy_until
    heapq.heapify(free)
    latencies = np.empty(len(arrivals_s))
    for at, (arrival, service) in enumerate(zip(arrivals_s.tolist(), services_s.tolist(), strict=True)):
        end = max(arrival, free[0]) + service
        heapq.heapreplace(free, end)
        latencies[at] = end - arrival
    return latencies


def queue_probe(
    service_s: float, *, workers: int = 1, exponential: bool = False, seed: int = 0
) -> Callable[[float, int], NDArray[np.float64]]:
    """`sample(rate, n)`: latencies of the next n Poisson requests; a new rate begins on an empty server."""
    rng = np.random.default_rng(seed)
    now_s, free, last_rate = 0.0, [0.0] * workers, -1.0

    def sample(rate_per_s: float, n: int) -> NDArray[np.float64]:
        nonlocal now_s, free, last_rate
        if rate_per_s != last_rate:
            now_s, free, last_rate = 0.0, [0.0] * workers, rate_per_s
        arrivals = now_s + np.cumsum(rng.exponential(1 / rate_per_s, n))
        now_s = float(arrivals[-1])
        services = rng.exponential(service_s, n) if exponential else np.full(n, service_s)
        return simulate_queue(arrivals, services, workers=workers, busy_until=free)

    return sample


@dataclass
class Book:
    requests: int = 0
    queue_ns: int = 0
    compute_ns: int = 0


class Queue:
    """The workers, in real time."""

    def __init__(self, fake: Fake) -> None:
        self._fake = fake
        self._free = [0.0] * fake.workers
        self._ends: list[tuple[float, int, Callable[[], None]]] = []
        self._alarm = Alarm(self._ring)
        self._number = 0
        self._random = random.Random(fake.seed)
        self.waiting = 0

    def put(self, service_s: float, done: Callable[[float, float], None]) -> None:
        """`done(queue_s, compute_s)` is called when it is served."""
        if self._fake.exponential:
            service_s = self._random.expovariate(1 / service_s)
        now = time.monotonic()
        begin = max(now, self._free[0])
        heapq.heapreplace(self._free, begin + service_s)
        self._number += 1
        self.waiting += 1
        heapq.heappush(self._ends, (begin + service_s, self._number, lambda: done(begin - now, service_s)))
        self._alarm.set(self._ends[0][0])

    def _ring(self) -> None:
        while self._ends and self._ends[0][0] <= time.monotonic():
            self.waiting -= 1
            heapq.heappop(self._ends)[2]()
        if self._ends:
            self._alarm.set(self._ends[0][0])


class State:
    def __init__(self, fake: Fake) -> None:
        self.fake = fake
        self.queue = Queue(fake)
        self.books = {name: Book() for name in fake.models}
        self.loaded = dict.fromkeys(fake.models, True)
        self.inferences = 0


class Door(asyncio.Protocol):
    def __init__(self, state: State) -> None:
        self._state = state
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._reset()

    def _reset(self) -> None:
        self._url, self._body, self._headers = b"", b"", {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, piece: bytes) -> None:
        self._body += piece

    def on_message_complete(self) -> None:
        method, path, headers, body = self._parser.get_method(), self._url.decode(), self._headers, self._body
        self._reset()
        token = self._state.fake.token
        if token is not None and headers.get(b"authorization") != f"Bearer {token}".encode():
            return self._say(401, {"error": "who are you?"})
        try:
            self._route(method, path.split("/")[1:], headers, body)
        except (ValueError, KeyError, TypeError) as error:
            self._say(400, {"error": f"bad request: {error!r}"})
        return None

    def _route(self, method: bytes, parts: list[str], headers: dict[bytes, bytes], body: bytes) -> None:
        fake = self._state.fake
        if parts == ["v2"]:
            extensions = ["statistics", "model_repository"] + ([] if fake.json_only else ["binary_tensor_data"])
            return self._say(200, {"name": "fake", "version": "1", "extensions": extensions})
        if parts[:2] == ["v2", "health"]:
            return self._say(200, {})
        if parts[:2] == ["v2", "repository"] and fake.repository:
            return self._repository(parts[2:])
        if parts[:2] != ["v2", "models"]:
            return self._say(404, {"error": "no such path"})
        name, rest = parts[2], parts[3:]
        if rest[:1] == ["versions"]:
            if rest[1] != "1":
                return self._say(404, {"error": f"no version {rest[1]}"})
            rest = rest[2:]
        if name not in fake.models or not self._state.loaded[name]:
            return self._say(404, {"error": f"unknown model: {name!r} is not found"})
        if rest == ["infer"] and method == b"POST":
            return self._infer(name, headers, body)
        if rest == ["stats"]:
            return self._say(200, self._stats(name))
        if rest == ["ready"]:
            return self._say(200, {})
        return self._say(
            200,
            {
                "name": name, "versions": ["1"], "platform": "fake",
                "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
                "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}],
            },
        )  # fmt: skip

    def _infer(self, name: str, headers: dict[bytes, bytes], body: bytes) -> None:
        state = self._state
        check(headers, body, binary=not state.fake.json_only)
        state.inferences += 1
        fake, number = state.fake, state.inferences
        if fake.stall_after and number > fake.stall_after:
            return None
        if fake.die_after and number > fake.die_after:
            os._exit(1)
        if fake.drop_every and number % fake.drop_every == 0:
            assert self._transport is not None
            return self._transport.abort()
        if (fake.fail_every and number % fake.fail_every == 0) or (
            fake.queue_limit and state.queue.waiting >= fake.queue_limit
        ):
            return self._say(503, {"error": "not now"})

        def done(queue_s: float, compute_s: float) -> None:
            book = state.books[name]
            book.requests += 1
            book.queue_ns += int(queue_s * 1e9)
            book.compute_ns += int(compute_s * 1e9)
            self._write(200, ANSWER)

        if fake.models[name] == 0:
            return done(0.0, 0.0)
        return state.queue.put(fake.models[name], done)

    def _stats(self, name: str) -> dict[str, Any]:
        book = self._state.books[name]
        took = {
            "success": {"count": book.requests, "ns": book.queue_ns + book.compute_ns},
            "queue": {"count": book.requests, "ns": book.queue_ns},
            "compute_infer": {"count": book.requests, "ns": book.compute_ns},
        }
        row = {"name": name, "version": "1", "inference_count": book.requests, "execution_count": book.requests}
        return {"model_stats": [{**row, "inference_stats": took}]}

    def _repository(self, parts: list[str]) -> None:
        state = self._state
        if parts == ["index"]:
            return self._say(200, [{"name": name, "version": "1", "state": "READY"} for name in state.fake.models])
        name, verb = parts[1], parts[2]
        if name not in state.fake.models:
            return self._say(404, {"error": f"no model {name!r}"})

        def done() -> None:
            state.loaded[name] = verb == "load"
            self._say(200, {})

        asyncio.get_running_loop().call_later(state.fake.load_s if verb == "load" else 0.0, done)
        return None

    def _say(self, status: int, value: Any) -> None:
        self._write(status, json.dumps(value).encode())

    def _write(self, status: int, body: bytes) -> None:
        if self._transport is None:
            return
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


ANSWER = json.dumps({"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]}).encode()


def check(headers: dict[bytes, bytes], body: bytes, *, binary: bool) -> None:
    """Raises ValueError for a body that no real server would take."""
    length = headers.get(b"inference-header-content-length")
    if length is not None and not binary:
        raise ValueError("json_invalid")
    request = json.loads(body if length is None else body[: int(length)])
    left = 0 if length is None else len(body) - int(length)
    for tensor in request["inputs"]:
        elements = prod(tensor["shape"])
        if "data" in tensor:
            if len(tensor["data"]) != elements:
                raise ValueError(f"{len(tensor['data'])} elements instead of {elements}")
            continue
        size = tensor["parameters"]["binary_data_size"]
        if tensor["datatype"] in SIZES and size != elements * SIZES[tensor["datatype"]]:
            raise ValueError(f"{size} bytes for {elements} elements")
        left -= size
    if left:
        raise ValueError(f"{left} bytes too many")
    if {tensor["name"] for tensor in request["inputs"]} != {"x"}:
        raise ValueError("the inputs are not the model's")


async def serve(fake: Fake) -> None:
    state = State(fake)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Door(state), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(Fake(**json.loads(sys.argv[1]))))
