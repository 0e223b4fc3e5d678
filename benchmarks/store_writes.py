"""How many durable writes per second the store takes through its async API, against one commit per write.

    python benchmarks/store_writes.py [--url URL] [--count 8000] [--runs 3]

Each row is the median of the runs. "grouped" awaits `--together` writes at once, as the server's requests do;
"one by one" awaits each before the next, which is what a store without group commit gives to any number of callers.
"busy loop" is "grouped" while the event loop is kept busy by other work, as a loaded server keeps it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path

from shoal.contract.lifecycle import JobState
from shoal.contract.records import AttemptRecord, Change, JobRecord, MetricPoint, NewEvent, RankPlacement
from shoal.core import PriorityClass, Resources
from shoal.store import Store, open_store

MANIFEST = '{"name":"train","command":["python","train.py"],"resources":{"gpu":1}}' + " " * 900


def new_job(name: str) -> JobRecord:
    return JobRecord(
        id=name,
        tenant="bench",
        name=name,
        state=JobState.QUEUED,
        version=1,
        manifest=MANIFEST,
        resources=Resources({"a100": 1}, 4000, 8 << 30),
        ranks=1,
        priority_class=PriorityClass.BEST_EFFORT,
        priority=0,
        submitted_at=time.time(),
        updated_at=time.time(),
        idempotency_key=name,
        fingerprint="0" * 64,
    )


def submitted(job: JobRecord) -> tuple[NewEvent, ...]:
    event = NewEvent(
        job.submitted_at, "job.state", "tenant:bench", "submitted", "bench", job.id, new_state=JobState.QUEUED
    )
    return (event,)


def admission(job: JobRecord) -> Change:
    """Queued to placed, with an attempt: what a placement writes."""
    at = time.time()
    steps = (JobState.QUEUED, JobState.ADMITTED, JobState.PLACED)
    events = tuple(
        NewEvent(at, "job.state", "decider", "fits", "bench", job.id, 1, old, new) for old, new in pairwise(steps)
    )
    attempt = AttemptRecord(job.id, 1, 1, (RankPlacement(0, "node-1", ("gpu-0",)),), at)
    after = job.evolve(state=JobState.PLACED, version=2, attempt=1, updated_at=at)
    return Change(job, after, events, attempt)


def start(job: JobRecord) -> Change:
    """One step, one event: what most changes are."""
    at = time.time()
    event = NewEvent(at, "job.state", "attempt-runner", "", "bench", job.id, 1, job.state, JobState.STARTING)
    return Change(job, job.evolve(state=JobState.STARTING, version=job.version + 1, updated_at=at), (event,))


async def in_waves(writes: Sequence[Callable[[], Awaitable[object]]], together: int) -> float:
    """Writes per second with so many awaited at once."""
    turns = iter(writes)

    async def client() -> None:
        for write in turns:
            await write()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(together)))
    return len(writes) / (time.perf_counter() - began)


async def burn(stop: asyncio.Event) -> None:
    """Keeps the loop busy in slices of about 0.2 ms."""
    while not stop.is_set():
        sum(range(10_000))
        await asyncio.sleep(0)


async def one_run(store: Store, run: int, count: int, together: int) -> dict[str, float]:
    rates: dict[str, float] = {}
    few = count // 40
    jobs = [new_job(f"{run}-{n:06}") for n in range(count)]
    alone = [new_job(f"{run}-alone-{n:06}") for n in range(few)]
    busy = [new_job(f"{run}-busy-{n:06}") for n in range(few * 4)]
    rates["submit, one by one"] = await in_waves([lambda j=j: store.submit(j, submitted(j)) for j in alone], 1)
    rates["submit, grouped"] = await in_waves([lambda j=j: store.submit(j, submitted(j)) for j in jobs], together)
    stop = asyncio.Event()
    burning = asyncio.create_task(burn(stop))
    rates["submit, busy loop"] = await in_waves([lambda j=j: store.submit(j, submitted(j)) for j in busy], together)
    stop.set()
    await burning

    placements = [admission(job) for job in jobs]
    rates["place (2 events, attempt)"] = await in_waves([lambda c=c: store.apply(c) for c in placements], together)
    starts = [start(change.after) for change in placements]
    half = len(starts) // 2
    rates["change, one by one"] = await in_waves([lambda c=c: store.apply(c) for c in starts[:few]], 1)
    rates["change, grouped"] = await in_waves([lambda c=c: store.apply(c) for c in starts[few:half]], together)
    batches = [starts[n : n + 100] for n in range(half, len(starts), 100)]
    rates["change, apply_all of 100"] = 100 * await in_waves([lambda b=b: store.apply_all(b) for b in batches], 8)
    points = [[MetricPoint(job.id, 1, time.time(), n, "loss", 0.5) for n in range(10)] for job in jobs[::4]]
    rates["metric points, 10 a write"] = 10 * await in_waves(
        [lambda p=p: store.add_metrics(p) for p in points], together
    )
    rates["progress, grouped"] = await in_waves(
        [lambda j=j: store.update_progress(j.id, {"step": 1, "total": 9}) for j in jobs[::4]], together
    )
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="default: a new SQLite file in a temporary directory")
    parser.add_argument("--count", type=int, default=8000)
    parser.add_argument("--together", type=int, default=500, help="writes awaited at once")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-sync", action="store_true", help="without a flush per commit, to see what it costs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        store = open_store(options.url or f"sqlite:///{Path(directory) / 'bench.db'}", sync=not options.no_sync)
        store.acquire("benchmark")
        first = store.last_seq()  # apart from earlier runs on the same database
        runs = [asyncio.run(one_run(store, first + n, options.count, options.together)) for n in range(options.runs)]
        store.close()
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}")
    print(f"{'write':<28}{'per second':>12}")
    for name in runs[0]:
        print(f"{name:<28}{statistics.median(run[name] for run in runs):>12,.0f}")


if __name__ == "__main__":
    main()
