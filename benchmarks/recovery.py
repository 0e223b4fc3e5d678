"""How long until all is well again after `kill -9` of the server, of a supervisor, and of a rank.

Server: from the start of the new process until it answers ready with the running job adopted, and until it has shown
that job: its routes are loaded by then, which probes do not wait for. Supervisor and rank:
from the kill until the restarted user code has written its first line.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import Row, Server, median, parser, report, server

SCRIPT = (
    "import os,sys,time; open(sys.argv[1],'a').write(f'{time.time()} {os.getpid()} {os.getppid()}\\n'); time.sleep(600)"
)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=7)
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
        servers = [kill_server(one, client, job.id) for _ in range(options.runs)]
        supervisors = [kill_process(note, 2) for _ in range(options.runs)]
        ranks = [kill_process(note, 1) for _ in range(options.runs)]
        alive = client.job(job.id).state
        client.cancel(job.id)
        client.wait(job.id, timeout_s=30)
    ready_s = median([one.ready_s for one in servers])
    rows = [
        Row("server killed: ready, work adopted", ready_s, "s", "<= 0.5", ready_s <= 0.5),
        Row("  slowest", max(one.ready_s for one in servers), "s"),
        Row("  the first request answered", median([one.shown_s for one in servers]), "s"),
        Row("  CPU until it is ready", median([one.cpu_s for one in servers]), "s"),
        Row("supervisor killed: job restarted, first line", median(supervisors), "s", "<= 1", median(supervisors) <= 1),
        Row("  slowest", max(supervisors), "s"),
        Row("rank killed: job restarted, first line", median(ranks), "s", "<= 2", median(ranks) <= 2),
        Row("  slowest", max(ranks), "s"),
        Row("job still running at the end", alive == "RUNNING", "", "1", alive == "RUNNING"),
    ]
    return report("recovery after kill -9", rows, as_json=options.json)


@dataclass(frozen=True, slots=True)
class Back:
    """How long after its start a server was ready and had shown the running job, and its CPU until it was ready."""

    ready_s: float
    shown_s: float
    cpu_s: float


def kill_server(one: Server, client: Any, job_id: str) -> Back:
    one.kill()
    began = time.perf_counter()
    ready_s, cpu_s = one.start(), one.cpu_s()
    assert client.job(job_id).state == "RUNNING", "the job did not survive its server"
    return Back(ready_s, time.perf_counter() - began, cpu_s)


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
