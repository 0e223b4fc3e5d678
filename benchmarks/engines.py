"""Shoal on a real Slurm against Slurm alone, on a private cluster of this machine (3 nodes x 4 slots in name only).

One run measures both: the time from submission to the end of a job on an idle cluster, how fast many jobs of one slot
are drained, and how long a killed server takes to find its gangs again. Slurm looks at batch jobs once a second, so
submissions are spread evenly over that second, the same way for both, and means are compared. Slurm's own rate differs
by a third from minute to minute, so both drain in turns.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from statistics import fmean

from clusters.slurm import PrivateSlurm, missing
from common import Row, parser, report, server

LATENCY_TARGET_MS, RATE_TARGET, ADOPTED_TARGET_S = 60.0, 0.9, 2.0
_WITHIN_S = 900.0


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=20, help="idle jobs of each kind")
    arguments.add_argument("--turns", type=int, default=2, help="how often each drains all jobs")
    arguments.add_argument("--jobs", type=int, default=500)
    arguments.add_argument("--gangs", type=int, default=50)
    options = arguments.parse_args()
    if missing():
        print(f"no Slurm here ({', '.join(missing())} not found): nothing was measured", file=sys.stderr)
        return 0
    per_node = max(4, -(-options.gangs // 3))
    with PrivateSlurm() as cluster:
        os.environ |= {**cluster.environment, "SHOAL_ENGINE": "slurm"}
        plain, ours = idle(cluster, options.runs)
        alone_s, with_us_s = drained(cluster, options.jobs, options.turns)
    with PrivateSlurm((per_node,) * 3) as cluster:
        os.environ |= cluster.environment
        adopted_s, found = adopted(options.gangs)
    more_ms = (fmean(ours) - fmean(plain)) * 1000
    ratio = alone_s / with_us_s
    rows = [
        Row("plain sbatch, submit to end, idle, mean", fmean(plain) * 1000, "ms"),
        Row("the same through Shoal, mean", fmean(ours) * 1000, "ms"),
        Row("  more", more_ms, "ms", f"<= {LATENCY_TARGET_MS:g}", more_ms <= LATENCY_TARGET_MS),
        Row(f"{options.jobs} jobs by Slurm alone", options.jobs / alone_s, "jobs/s"),
        Row(f"{options.jobs} jobs through Shoal", options.jobs / with_us_s, "jobs/s"),
        Row("  of Slurm's rate", ratio, "", f">= {RATE_TARGET:g}", ratio >= RATE_TARGET),
        Row(f"server killed with {options.gangs} gangs: gangs found again", found, "", "all", found == options.gangs),
        Row("  start to ready, all adopted", adopted_s, "s", f"<= {ADOPTED_TARGET_S:g}", adopted_s <= ADOPTED_TARGET_S),
    ]
    return report("engines: Shoal on Slurm", rows, as_json=options.json)


def idle(cluster: PrivateSlurm, runs: int) -> tuple[list[float], list[float]]:
    """Seconds of each run, plain and through Shoal, taking turns."""
    plain, ours = [], []
    with server(slots=None) as one:
        client = one.client()
        client.create_tenant("bench", sandbox="none")
        for number in range(runs):
            wait_s = (number + 0.5) / runs
            for values, run in ((plain, _sbatch), (ours, _submit)):
                time.sleep(1 - time.time() % 1 + wait_s)
                began = time.perf_counter()
                run(cluster, client, one.home / f"{run.__name__}-{number}")
                values.append(time.perf_counter() - began)
    return plain, ours


def _sbatch(cluster: PrivateSlurm, _client: object, note: Path) -> None:
    cluster.run("sbatch", "--gres=gpu:1", "-o", "/dev/null", "--wrap", f"touch {note}")
    while not note.exists():
        time.sleep(0.002)


def _submit(_cluster: PrivateSlurm, client: object, note: Path) -> None:
    job = client.submit(_job(note.name.strip("_").replace("_", "-"), "touch", str(note)))
    client.wait(job.id, timeout_s=60)


def _job(name: str, *command: str) -> dict[str, object]:
    needs = {"accelerators": 1, "memory": "64MiB"}
    return {"name": name, "tenant": "bench", "command": list(command), "resources": needs}


def drained(cluster: PrivateSlurm, count: int, turns: int) -> tuple[float, float]:
    """Mean seconds until so many jobs of one slot are over: by Slurm alone, and through Shoal."""
    alone, with_us = [], []
    with server(slots=None) as one:
        client = one.client()
        client.create_tenant("bench", sandbox="none")
        for turn in range(turns):
            began = time.perf_counter()
            for _ in range(count):
                cluster.run("sbatch", "--gres=gpu:1", "-o", "/dev/null", "--wrap", "true")
            while cluster.run("squeue", "-h", "-t", "PD,R,CG"):
                time.sleep(0.1)
            alone.append(time.perf_counter() - began)
            began = time.perf_counter()
            jobs = [client.submit(_job(f"job-{turn}-{number}", "true")) for number in range(count)]
            for job in jobs:
                client.wait(job.id, timeout_s=_WITHIN_S)
            with_us.append(time.perf_counter() - began)
    return fmean(alone), fmean(with_us)


def adopted(count: int) -> tuple[float, int]:
    """Seconds from the start of a server to its first answer, when so many gangs ran; and how many of them it has."""
    with server(slots=None) as one:
        client = one.client()
        client.create_tenant("bench", sandbox="none")
        jobs = [client.submit(_job(f"gang-{number}", "sleep", "600")) for number in range(count)]
        _until(client, jobs, "RUNNING")
        one.kill()
        ready_s = one.start()
        found = sum(client.job(job.id).state == "RUNNING" and client.job(job.id).attempt == 1 for job in jobs)
        for job in jobs:
            client.cancel(job.id)
        _until(client, jobs, "CANCELLED")
        return ready_s, found


def _until(client: object, jobs: list[object], state: str) -> None:
    ends_at = time.monotonic() + _WITHIN_S
    while any(client.job(job.id).state != state for job in jobs):
        if time.monotonic() > ends_at:
            raise SystemExit(f"not all jobs are {state}")
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
