"""Many waiting jobs: does submitting slow down with them, does memory come back, how long does a restart take?

Submits in steps until `--jobs` jobs wait; kills the server (`kill -9`) and starts it again with them; cancels all, and
looks what its memory is then. A step's rate is compared with the first one's of the same run, by the server's CPU as
well, which other programs of the machine do not change.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from common import Row, Server, parser, report, server
from submissions import BLOCKER, Result, one_connection

_STEPS = 5


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--jobs", type=int, default=50_000)
    arguments.add_argument("--connections", type=int, default=32)
    options = arguments.parse_args()
    per_step = options.jobs // _STEPS
    with server(slots=1) as one:
        client = one.client()
        client.create_tenant("bench", quota={"accelerators": 1, "queued_jobs": 10_000_000}, sandbox="none")
        token = client.create_token("bench").token
        asyncio.run(one_connection(one.url, token, Result(), until=0.0, bodies=[json.dumps(BLOCKER).encode()]))
        empty = memory_mib(one)
        rates, costs = [], []
        for step in range(_STEPS):
            cpu_s, began = one.cpu_s(), time.perf_counter()
            asyncio.run(submit(one, token, step, per_step, options.connections))
            rates.append(per_step / (time.perf_counter() - began))
            costs.append((one.cpu_s() - cpu_s) / per_step * 1000)
        full = memory_mib(one)
        one.kill()
        restart_s = one.start()
        restart_cpu_s, again = one.cpu_s(), memory_mib(one)
        began = time.perf_counter()
        cancel_all(one, token)
        cancelled_s = time.perf_counter() - began
        time.sleep(5.0)
        after = memory_mib(one)
    rows = [
        Row(f"submissions, the last {per_step:,} of {options.jobs:,}", rates[-1], "/s", ">= 1500", rates[-1] >= 1500),
        Row(f"  the first {per_step:,}", rates[0], "/s"),
        Row("  CPU of the server per job, the first", costs[0], "ms"),
        Row("  CPU of the server per job, the last", costs[-1], "ms"),
        Row("restart with all of them", restart_s, "s", "<= 2", restart_s <= 2),
        Row("  CPU of it", restart_cpu_s, "s"),
        Row("memory, none waits", empty, "MiB"),
        Row("memory, all wait", full, "MiB"),
        Row("memory, all wait, after the restart", again, "MiB"),
        Row("memory, all cancelled", after, "MiB"),
        Row("  cancelled", options.jobs / cancelled_s, "/s"),
    ]
    return report("many waiting jobs", rows, as_json=options.json)


async def submit(one: Server, token: str, step: int, count: int, connections: int) -> None:
    def body(number: int) -> bytes:
        return json.dumps(
            {"name": f"wait-{step}-{number}", "command": ["python", "train.py"],
             "resources": {"accelerators": {"type": "any", "count": 1}, "cpus": 1, "memory": "1GiB"}}
        ).encode()  # fmt: skip

    result = Result()
    shares = [[body(number) for number in range(first, count, connections)] for first in range(connections)]
    await asyncio.gather(
        *(one_connection(one.url, token, result, until=0.0, number=step * 1000 + n, bodies=share)
          for n, share in enumerate(shares))
    )  # fmt: skip
    if result.errors:
        raise SystemExit(f"{result.errors} submissions were refused")


def cancel_all(one: Server, token: str) -> None:
    import httpx

    with httpx.Client(base_url=one.url, headers={"authorization": f"Bearer {token}"}, timeout=120) as asking:
        while True:
            found = asking.get("/v1/jobs", params={"state": ["QUEUED"], "limit": 1000}).json()["jobs"]
            if not found:
                return
            asyncio.run(_cancel(one, token, [job["id"] for job in found]))


async def _cancel(one: Server, token: str, ids: list[str]) -> None:
    import httpx

    async with httpx.AsyncClient(base_url=one.url, headers={"authorization": f"Bearer {token}"}, timeout=120) as asking:
        for at in range(0, len(ids), 50):
            await asyncio.gather(*(asking.post(f"/v1/jobs/{job_id}/cancel") for job_id in ids[at : at + 50]))


def memory_mib(one: Server) -> float:
    """The private memory of the server's process, in MiB."""
    text = Path(f"/proc/{one.pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_")) / 1024


if __name__ == "__main__":
    sys.exit(main())
