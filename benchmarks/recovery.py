"""How long until all is well again after `kill -9` of the server, of all of `shoal up`, of a supervisor, and of a rank.

Server: from the kill until the next one, which its parent starts, answers ready with the running job adopted, and until
it has shown that job; a client connects all the while, and may not be refused. `shoal up`: from the start of the new
process until the same. Supervisor and rank: from the kill until the restarted user code has written its
first line.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import Row, Server, cpu_of, median, parser, report, server

from shoal.base.processes import start_ticks

SCRIPT = (
    "import os,sys,time; open(sys.argv[1],'a').write(f'{time.time()} {os.getpid()} {os.getppid()}\\n'); time.sleep(600)"
)
KILLS = 3
"""Of one server and those after it: its parent gives up at the fifth within a minute."""


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=3, help=f"starts of all of it, each with {KILLS} killed servers")
    options = arguments.parse_args()
    with server(slots=2) as one:
        client = one.client()
        client.create_tenant("bench", sandbox="none")
        note = one.home / "lines"
        job = client.submit(
            {"name": "long", "tenant": "bench", "command": [sys.executable, "-c", SCRIPT, str(note)],
             "restart": {"limits": {"user": 1000, "infrastructure": 1000}, "backoff": "0s"}, "grace": "1s"}
        )  # fmt: skip
        lines(note, 1)
        colds, early, servers, refused = [], [], [], 0
        for _ in range(options.runs):
            colds.append(kill_all(one, client, job.id))
            with connecting(one.url) as asked:
                early.append(kill_server(one, client, job.id))
                wait_until_loaded(one)
                servers += [kill_server(one, client, job.id) for _ in range(KILLS)]
            refused += asked.refused
        kept = memory_mib(one.parent), memory_mib(one.pid)
        supervisors = [kill_process(note, 2) for _ in range(7)]
        ranks = [kill_process(note, 1) for _ in range(7)]
        alive = client.job(job.id).state
        client.cancel(job.id)
        client.wait(job.id, timeout_s=30)
    ready_s, shown_s = (median([getattr(one, name) for one in servers]) for name in ("ready_s", "shown_s"))
    cold_s = median([one.ready_s for one in colds])
    rows = [
        Row("server killed: ready, work adopted", ready_s, "s", "<= 0.5", ready_s <= 0.5),
        Row("  slowest", max(one.ready_s for one in servers), "s"),
        Row("  CPU until it is ready", median([one.cpu_s for one in servers]), "s"),
        Row("  the first request answered", shown_s, "s", "<= 0.5", shown_s <= 0.5),
        Row("  slowest", max(one.shown_s for one in servers), "s"),
        Row("  the same in its first ten seconds: ready", median([one.ready_s for one in early]), "s"),
        Row("  the first request answered", median([one.shown_s for one in early]), "s"),
        Row("  connections refused meanwhile", refused, "", "0", refused == 0),
        Row("all of `shoal up` killed, started again: ready", cold_s, "s", "<= 1.5", cold_s <= 1.5),
        Row("  slowest", max(one.ready_s for one in colds), "s"),
        Row("  the first request answered", median([one.shown_s for one in colds]), "s"),
        Row("  CPU of the server and its parent until it is ready", median([one.cpu_s for one in colds]), "s"),
        Row("memory of the parent, its share of common pages (PSS)", kept[0], "MiB"),
        Row("  of the server", kept[1], "MiB"),
        Row("supervisor killed: job restarted, first line", median(supervisors), "s", "<= 1", median(supervisors) <= 1),
        Row("  slowest", max(supervisors), "s"),
        Row("rank killed: job restarted, first line", median(ranks), "s", "<= 2", median(ranks) <= 2),
        Row("  slowest", max(ranks), "s"),
        Row("job still running at the end", alive == "RUNNING", "", "1", alive == "RUNNING"),
    ]
    return report("recovery after kill -9", rows, as_json=options.json)


@dataclass(frozen=True, slots=True)
class Back:
    """How long after the kill, or after its start, a server was ready and had shown the running job, and its CPU until
    it was ready."""

    ready_s: float
    shown_s: float
    cpu_s: float


def kill_server(one: Server, client: Any, job_id: str) -> Back:
    """The server alone."""
    before, began = one.pid, time.perf_counter()
    os.kill(before, signal.SIGKILL)
    while start_ticks(before) is not None:
        time.sleep(0.0005)
    ready_s, cpu_s = one.wait_ready(began), one.cpu_s()
    assert client.job(job_id).state == "RUNNING", "the job did not survive its server"
    return Back(ready_s, time.perf_counter() - began, cpu_s)


def kill_all(one: Server, client: Any, job_id: str) -> Back:
    one.kill()
    began = time.perf_counter()
    ready_s, cpu_s = one.start(), one.cpu_s() + cpu_of(one.parent)
    assert client.job(job_id).state == "RUNNING", "the job did not survive its server"
    return Back(ready_s, time.perf_counter() - began, cpu_s)


def wait_until_loaded(one: Server) -> None:
    """Until the parent has imported what the server has, which it does after ten seconds: only its CPU shows that."""
    now = first = cpu_of(one.parent)
    while now - first < 0.05 or now != cpu_of(one.parent):
        now = cpu_of(one.parent)
        time.sleep(1.0)


@dataclass(slots=True)
class Asked:
    refused: int = 0


@contextmanager
def connecting(url: str) -> Iterator[Asked]:
    """Somebody who connects a hundred times a second."""
    asked, over = Asked(), threading.Event()
    host, _, port = url.removeprefix("http://").partition(":")

    def connect() -> None:
        while not over.wait(0.01):
            try:
                socket.create_connection((host, int(port)), 60).close()
            except ConnectionRefusedError:
                asked.refused += 1

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        yield asked
    finally:
        over.set()
        thread.join()


def memory_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


def kill_process(note: Path, column: int) -> float:
    """Kill the process (1) or its supervisor (2); returns seconds until the next attempt's first line."""
    before = lines(note, 1)
    pid = int(before[-1].split()[column])
    began = time.time()
    os.kill(pid, signal.SIGKILL)
    after = lines(note, len(before) + 1)
    time.sleep(0.3)
    return float(after[len(before)].split()[0]) - began


def lines(note: Path, at_least: int, *, wait_s: float = 30.0) -> list[str]:
    until = time.time() + wait_s
    while time.time() < until:
        found = note.read_text().splitlines() if note.exists() else []
        if len(found) >= at_least:
            return found
        time.sleep(0.005)
    raise SystemExit(f"fewer than {at_least} starts within {wait_s} s")


if __name__ == "__main__":
    sys.exit(main())
