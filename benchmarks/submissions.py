"""Durable submissions over HTTP, with tokens and quotas on and a flush of the disk before each answer.

Measures the rate and latency of `POST /v1/jobs` from many connections, then kills the server (`kill -9`) under load,
starts it again and looks for every acknowledged job. The baseline in the same run writes jobs one transaction at a
time, without HTTP.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

from common import Row, Server, parser, report, server

from shoal.base.statistics import quantile

TARGET = 1500
BLOCKER = {"name": "blocker", "command": ["sleep", "600"], "resources": {"accelerators": {"type": "any", "count": 1}}}
"""Holds the one slot, so that what is submitted waits: no process of a job runs beside the server."""


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--connections", type=int, default=32)
    arguments.add_argument("--seconds", type=float, default=8.0)
    options = arguments.parse_args()
    with server(slots=1) as one:
        client = one.client()
        client.create_tenant("bench", quota={"accelerators": 1, "queued_jobs": 10_000_000}, sandbox="none")
        token = client.create_token("bench").token
        blocker = json.dumps(BLOCKER).encode()
        before_s = one.cpu_s()
        steady = asyncio.run(load(one.url, token, options.connections, options.seconds, first=blocker))
        cpu_s = one.cpu_s() - before_s
        acknowledged, killed = steady.ids, asyncio.run(load_and_kill(one, token, options.connections))
        one.start()
        lost = len(set(acknowledged + killed) - stored(one.home))
    serial = one_by_one(500)
    rate = len(steady.ids) / steady.seconds
    rows = [
        Row("durable submissions", rate, "/s", f">= {TARGET}", rate >= TARGET),
        Row("  latency p50", quantile(steady.latencies_s, 0.5) * 1000, "ms"),
        Row("  latency p99", quantile(steady.latencies_s, 0.99) * 1000, "ms"),
        Row("  CPU of the server per job", cpu_s / len(steady.ids) * 1000, "ms"),
        Row("  errors", steady.errors, "", "0", steady.errors == 0),
        Row("acknowledged before kill -9", len(acknowledged) + len(killed), "jobs"),
        Row("  of these lost", lost, "jobs", "0", lost == 0),
        Row("one transaction each, no HTTP (baseline)", serial, "/s"),
        Row("ratio to that baseline", rate / serial, "x"),
    ]
    return report("durable submissions over HTTP", rows, as_json=options.json)


class Result:
    def __init__(self) -> None:
        self.ids: list[str] = []
        self.latencies_s: list[float] = []
        self.errors = 0
        self.seconds = 0.0


async def load(url: str, token: str, connections: int, seconds: float, first: bytes | None = None) -> Result:
    result = Result()
    if first is not None:
        await one_connection(url, token, result, until=0.0, bodies=[first])
        result = Result()
    began = time.perf_counter()
    await asyncio.gather(
        *(one_connection(url, token, result, until=began + seconds, number=n) for n in range(connections))
    )
    result.seconds = time.perf_counter() - began
    return result


async def load_and_kill(one: Server, token: str, connections: int) -> list[str]:
    """Submit until the server is killed in the middle of it; returns what it had acknowledged."""
    result = Result()
    until = time.perf_counter() + 30
    clients = [
        asyncio.create_task(one_connection(one.url, token, result, until=until, number=1000 + n))
        for n in range(connections)
    ]
    await asyncio.sleep(1.0)
    one.kill()
    await asyncio.gather(*clients, return_exceptions=True)
    return result.ids


async def one_connection(
    url: str, token: str, result: Result, *, until: float, number: int = 0, bodies: list[bytes] | None = None
) -> None:
    """A bare HTTP/1.1 client: the load must not cost more than the server."""
    place = urllib.parse.urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    count = 0
    while bodies or time.perf_counter() < until:
        count += 1
        body = bodies.pop() if bodies else manifest(number, count)
        writer.write(
            b"POST /v1/jobs HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            + f"Authorization: Bearer {token}\r\nIdempotency-Key: {number}-{count}-{len(body)}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        sent = time.perf_counter()
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        answer = await reader.readexactly(length)
        if head.startswith(b"HTTP/1.1 201"):
            result.ids.append(json.loads(answer)["id"])
            result.latencies_s.append(time.perf_counter() - sent)
        else:
            result.errors += 1
    writer.close()


def manifest(number: int, count: int) -> bytes:
    job = {
        "name": f"train-{number}-{count}",
        "command": ["python", "train.py", "--epochs", "10"],
        "env": {"DATA": "/data/digits"},
        "resources": {"accelerators": {"type": "any", "count": 1}, "cpus": 1, "memory": "1GiB"},
        "restart": {"limits": {"user": 1}},
    }
    return json.dumps(job).encode()


def stored(home: Path) -> set[str]:
    with sqlite3.connect(home / "shoal.db") as connection:
        return {row[0] for row in connection.execute("SELECT id FROM job")}


def one_by_one(count: int) -> float:
    """Jobs per second when every job is a transaction of its own, flushed, in a bare SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "one.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE job (id TEXT PRIMARY KEY, body TEXT)")
        connection.execute("CREATE TABLE event (seq INTEGER PRIMARY KEY, job TEXT)")
        began = time.perf_counter()
        for number in range(count):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO job VALUES (?, ?)", (str(number), manifest(0, number).decode()))
            connection.execute("INSERT INTO event (job) VALUES (?)", (str(number),))
            connection.execute("COMMIT")
        return count / (time.perf_counter() - began)


if __name__ == "__main__":
    sys.exit(main())
