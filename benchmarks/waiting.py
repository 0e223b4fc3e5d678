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
import urllib.parse
from pathlib import Path

from common import Row, Server, cpu_of, parser, report, server
from submissions import BLOCKER, Result, one_connection

_STEPS = 5
KEPT_MIB = 40
"""Memory that may stay after all were cancelled, whatever their number: caches of the server and of its database."""


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
        restart_cpu_s, again = one.cpu_s() + cpu_of(one.parent), memory_mib(one)
        some = waiting_ids(one, token)
        cpu_s, began = one.cpu_s(), time.perf_counter()
        asyncio.run(cancel_one_by_one(one, token, some, options.connections))
        single, single_cost = len(some) / (time.perf_counter() - began), (one.cpu_s() - cpu_s) / len(some) * 1000
        cpu_s, began = one.cpu_s(), time.perf_counter()
        count = cancel_all(one, token)
        many, many_cost = count / (time.perf_counter() - began), (one.cpu_s() - cpu_s) / count * 1000
        time.sleep(15.0)  # it is given back some seconds after
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
        Row("cancelled, a thousand a request", many, "/s", ">= 1500", many >= 1500),
        Row("  CPU of the server per job", many_cost, "ms"),
        Row(f"cancelled, a request each ({len(some):,})", single, "/s"),
        Row("  CPU of the server per job", single_cost, "ms"),
        Row("memory, all cancelled", after, "MiB", f"<= {empty + KEPT_MIB:.0f}", after <= empty + KEPT_MIB),
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


def waiting_ids(one: Server, token: str, limit: int = 1000) -> list[str]:
    import httpx

    with httpx.Client(base_url=one.url, headers={"authorization": f"Bearer {token}"}, timeout=120) as asking:
        found = asking.get("/v1/jobs", params={"state": ["QUEUED"], "limit": limit}).json()["jobs"]
        return [job["id"] for job in found]


async def cancel_one_by_one(one: Server, token: str, ids: list[str], connections: int) -> None:
    async def some(share: list[str]) -> None:
        place = urllib.parse.urlsplit(one.url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        for job_id in share:
            head = f"POST /v1/jobs/{job_id}/cancel HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n"
            writer.write(f"{head}Content-Length: 0\r\n\r\n".encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"a job was not cancelled: {answer[:100]!r}")
            lines = answer.lower().split(b"\r\n")
            await reader.readexactly(next(int(line[15:]) for line in lines if line.startswith(b"content-length:")))
        writer.close()

    await asyncio.gather(*(some(ids[first::connections]) for first in range(connections)))


def cancel_all(one: Server, token: str) -> int:
    """A thousand a request; how many there were."""
    from shoal import Client

    count = 0
    with Client(one.url, token=token) as client:
        while ids := waiting_ids(one, token):
            count += len(client.cancel_jobs(ids).jobs)
    return count


def memory_mib(one: Server) -> float:
    """Private memory of the server's process, in MiB. Pages of the database that it only reads are the
    system's cache, which takes them back when it needs them."""
    text = Path(f"/proc/{one.pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_Dirty")) / 1024


if __name__ == "__main__":
    sys.exit(main())
