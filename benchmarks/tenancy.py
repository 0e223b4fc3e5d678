"""What planes cost: jobs through planes against the same jobs straight to the shared server, in one run.

    python benchmarks/tenancy.py [--json] [--only PART ...] [--jobs 10000] [--planes 100] [--limited 1250 ...]

The engine below is simulated, so that what is measured is the control planes; every write is flushed to disk. A job
through a plane is kept twice. Parts:

- `throughput`: all jobs come at once, from tenants or from planes of equal number, and end at once.
- `limited`: 50 places and jobs of half a second, so that 100 jobs start a second; from submission to start.
- `latency`: one job on an idle server, from its submission to its end, in turns.
- `greedy`: 10 planes with 900 jobs each and 40 with 10 each, at once; the 40, with the others and without; of three
  pairs the median.
- `sleep`: the first request of a plane that slept, of 200 among all; what sleeping planes add to the process.
- `awake`: so many planes awake at once.
- `held`: what a job that waits adds to the process; one comparison of both sides; a restart with all of them.

Give `sleep`, `awake` and `held` a run each: memory that an earlier part gave back would be used again, and not count.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from common import Row, parser, report

from shoal.base.statistics import quantile
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import Event, JobFilter
from shoal.control import runtime
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.core import Device, Node, SystemClock
from shoal.engine.simulated import Script, SimulatedCluster, SimulatedEngine
from shoal.store import open_store
from shoal.tenancy.live.extension import Tenancy, TenancySection

JOB = JobManifest.model_validate(
    {"name": "job", "command": ["true"], "resources": {"accelerators": "a100:1", "cpus": 0.1, "memory": "1MiB"}}
)
LATENCIES = 40
PAIRS, WARM, WAKES = 3, 50, 200
OPEN_REQUESTS = 50


@dataclass(frozen=True)
class Door:
    """Where a team submits: to its plane, or to its tenant of the shared server. `request` is around each request."""

    plane: ControlPlane
    tenant: str
    request: Callable[[], AbstractAsyncContextManager[object]] = nullcontext


Doors = list[Door]


class Shared:
    """A shared server over a cluster of so many places, in which jobs take so long."""

    def __init__(self, places: int = 512, run_s: float = 0.0) -> None:
        each = 8 if places % 8 == 0 else 10
        nodes = [
            Node(f"n{at}", tuple(Device(f"g{d}", "a100", d) for d in range(each)), 64_000, 1 << 40)
            for at in range(places // each)
        ]
        self._cluster = SimulatedCluster(nodes, clock=SystemClock(), behaviour=lambda _: Script(run_s=run_s))
        self._folder = tempfile.TemporaryDirectory()

    async def __aenter__(self) -> Shared:
        await self.start()
        return self

    async def start(self) -> None:
        home = Path(self._folder.name)
        self._store = open_store(f"sqlite:///{home / 'shoal.db'}", tables=[Tenancy.tables] if Tenancy.tables else [])
        self._store.acquire("benchmark")
        chosen = [Chosen(Tenancy, TenancySection(sleep_after_s=1e9))]
        self.plane = ControlPlane(self._store, SimulatedEngine(self._cluster), home, extensions=chosen)
        await self.plane.open()
        found = self.plane.extensions.get(Tenancy)
        assert found is not None
        self.planes = found.planes

    async def stop(self) -> None:
        await self.plane.close()
        self._store.close()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self._folder.cleanup()

    async def tenants(self, count: int, since: int = 0) -> Doors:
        names = [f"team-{at}" for at in range(since, since + count)]
        for name in names:
            await self.plane.put_tenant(name, actor="admin")
        return [Door(self.plane, name) for name in names]

    async def make(self, count: int, since: int = 0) -> list[str]:
        names = [door.tenant for door in await self.tenants(count, since)]
        for name in names:
            await self.planes.create(name, name, actor="admin")
        return names

    async def doors(self, count: int) -> Doors:
        return [await self.door(name) for name in await self.make(count)]

    async def door(self, name: str) -> Door:
        return Door(await self.below(name), "default", partial(self.planes.using, name))

    async def below(self, name: str) -> ControlPlane:
        async with self.planes.using(name):
            return self.planes._awake[name].plane


async def submit(doors: Doors, jobs: int) -> None:
    """So many jobs at once, evenly to all doors: each team's client has `OPEN_REQUESTS` requests open."""

    async def ask(door: Door, left: Iterator[int]) -> None:
        for _ in left:
            async with door.request():
                await door.plane.submit(JOB, tenant=door.tenant, actor="bench")

    lefts = [(door, iter(range(at, jobs, len(doors)))) for at, door in enumerate(doors)]
    await asyncio.gather(*(ask(*left) for _ in range(OPEN_REQUESTS) for left in lefts))


async def over(doors: Doors) -> None:
    planes = {id(door.plane): door.plane for door in doors}.values()
    while any(len(plane.cache) for plane in planes):
        await asyncio.sleep(0.02)


async def drain(doors: Doors, jobs: int) -> float:
    return (await spent(doors, jobs))[0]


async def spent(doors: Doors, jobs: int) -> tuple[float, float]:
    """Seconds that passed, and those of the processor, which other work on the machine changes less."""
    began, used = time.perf_counter(), time.process_time()
    await submit(doors, jobs)
    await over(doors)
    return time.perf_counter() - began, time.process_time() - used


def starts(doors: Doors) -> list[float]:
    """Seconds from submission to start of all jobs."""
    planes = {id(door.plane): door.plane for door in doors}.values()
    jobs = [job for plane in planes for job in plane.store.jobs(JobFilter(limit=100_000))]
    return [job.started_at - job.submitted_at for job in jobs if job.started_at is not None]


async def once(plane: ControlPlane, tenant: str) -> float:
    ended = asyncio.Event()

    def look(events: Sequence[Event]) -> None:
        if any(event.new_state == JobState.SUCCEEDED for event in events):
            ended.set()

    unfollow = plane.store.subscribe(look)
    began = time.perf_counter()
    await plane.submit(JOB, tenant=tenant, actor="bench")
    await ended.wait()
    took = time.perf_counter() - began
    unfollow()
    await asyncio.sleep(0.02)  # the other side has written it too
    return took


async def throughput(jobs: int, planes: int) -> list[Row]:
    async with Shared() as direct:
        straight, straight_cpu = await spent(await direct.tenants(planes), jobs)
    async with Shared() as shared:
        through, through_cpu = await spent(await shared.doors(planes), jobs)
    return [
        Row(f"{jobs} jobs of {planes} tenants, straight", straight, "s"),
        Row(f"{jobs} jobs of {planes} planes", through, "s", "<= 12", through <= 12.0),
        Row("  times the straight way", through / straight, "x", "<= 2", through <= 2.0 * straight),
        Row("  in time of the processor: straight", straight_cpu, "s"),
        Row("  through planes", through_cpu, "s"),
        Row("  times the straight way", through_cpu / straight_cpu, "x"),
    ]


async def limited(jobs: int, planes: int) -> list[Row]:
    async with Shared(50, 0.5) as direct:
        doors = await direct.tenants(planes)
        straight = await drain(doors, jobs)
        straight_p99 = quantile(starts(doors), 0.99)
    async with Shared(50, 0.5) as shared:
        doors = await shared.doors(planes)
        through = await drain(doors, jobs)
        through_p99 = quantile(starts(doors), 0.99)
    change = straight / through - 1
    ratio = through_p99 / straight_p99
    return [
        Row(f"pool-limited, {jobs} jobs: straight", jobs / straight, "jobs/s"),
        Row("  through planes", jobs / through, "jobs/s"),
        Row("  throughput against straight", change * 100, "%", ">= -2", change >= -0.02),
        Row("  p99 from submission to start: straight", straight_p99, "s"),
        Row("  through planes", through_p99, "s"),
        Row("  times the straight way", ratio, "x", "<= 1.1", ratio <= 1.1),
    ]


async def latency() -> list[Row]:
    async with Shared() as shared:
        (name,) = await shared.make(1)
        plane = await shared.below(name)
        pairs = [(await once(shared.plane, name), await once(plane, "default")) for _ in range(LATENCIES)]
    alone, planed = (median(side) for side in zip(*pairs, strict=True))
    return [
        Row("one job, idle, straight: p50", alone * 1e3, "ms"),
        Row(
            "one job, idle, through a plane: added, p50", (planed - alone) * 1e3, "ms", "<= 5", planed - alone <= 0.005
        ),
    ]


async def greedy() -> list[Row]:
    async def regular(greedy_jobs: int) -> float:
        async with Shared() as shared:
            doors = await shared.doors(50)
            many, few = doors[:10], doors[10:]
            flood = asyncio.create_task(submit(many, 10 * greedy_jobs))
            await submit(few, 400)
            await over(few)
            p99 = quantile(starts(few), 0.99)
            await flood
            await over(many)
            return p99

    pairs = [(await regular(0), await regular(900)) for _ in range(PAIRS)]
    alone, beside = (median(side) for side in zip(*pairs, strict=True))
    ratio = median(beside / alone for alone, beside in pairs)
    return [
        Row("40 planes of 10 jobs alone: p99 to start", alone, "s"),
        Row("  beside 10 planes of 900 jobs", beside, "s"),
        Row("  times that alone", ratio, "x", "<= 1.2", ratio <= 1.2),
    ]


async def sleep(count: int) -> list[Row]:
    async with Shared() as shared:
        wakes: list[float] = []

        async def use(name: str) -> None:
            began = time.perf_counter()
            plane = await shared.below(name)
            wakes.append(time.perf_counter() - began)
            await once(plane, "default")
            await shared.planes._sleep(name)

        for name in await shared.make(WARM):  # what the first ones bring into memory is of the server, not of a plane
            await use(name)
        wakes.clear()
        gc.collect()
        before = _resident()
        names = await shared.make(count, WARM)
        for name in names[:: max(1, count // WAKES)]:
            await use(name)
        gc.collect()
        each = max(0.0, (_resident() - before) / count)
    p99 = quantile(wakes, 0.99)
    return [
        Row(f"wake of a plane, of {count}: p50", median(wakes) * 1e3, "ms"),
        Row("wake of a plane: p99", p99 * 1e3, "ms", "<= 100", p99 <= 0.1),
        Row(f"memory of a sleeping plane, of {count}", each / 1024, "KiB", "<= 20", each <= 20 * 1024),
    ]


async def awake(count: int) -> list[Row]:
    async with Shared() as shared:
        names = await shared.make(count)
        gc.collect()
        before, began = _resident(), time.perf_counter()
        doors = [await shared.door(name) for name in names]
        woken, each = time.perf_counter() - began, (_resident() - before) / count
        took = await drain(doors, count)
        files = len(list(Path("/proc/self/fd").iterdir())) / count
    return [
        Row(f"{count} planes awake at once: to wake them all", woken, "s"),
        Row("  memory of each", each / 1024, "KiB"),
        Row("  open files of each", files, ""),
        Row("  a job of each, all at once", took, "s"),
    ]


async def held(jobs: int, planes: int) -> list[Row]:
    async with Shared(8, 1e6) as shared:
        doors = await shared.doors(planes)
        gc.collect()
        before = _resident()
        await submit(doors, jobs)
        while len(shared.plane.cache) < min(jobs, 8 * planes):
            await asyncio.sleep(0.05)
        await asyncio.sleep(2.0)
        gc.collect()
        each = (_resident() - before) / jobs
        began = time.perf_counter()
        for door in doors:
            await door.plane.reconciler.reconcile()
        compared = time.perf_counter() - began
        await shared.stop()
        began = time.perf_counter()
        await shared.start()
        names = [record.name for record in shared.planes.all()]
        agree = [await shared.below(name) for name in names]
        found = sum(len(plane.cache) for plane in agree)
        back = time.perf_counter() - began
        assert found == jobs, f"{found} of {jobs} jobs are there after the restart"
    return [
        Row(f"memory of each of {jobs} waiting jobs, {8 * planes} of them handed over", each / 1024, "KiB", "<= 10",
            each <= 10 * 1024),
        Row(f"full comparison of {jobs} jobs of {planes} planes", compared, "s", "<= 0.5", compared <= 0.5),
        Row("restart until all planes answer with all jobs", back, "s", "<= 2", back <= 2.0),
    ]  # fmt: skip


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--jobs", type=int, default=10_000)
    arguments.add_argument("--planes", type=int, default=100)
    arguments.add_argument("--asleep", type=int, default=200)
    arguments.add_argument("--awake", type=int, default=200)
    arguments.add_argument("--limited", type=int, nargs="*", default=[1250])
    arguments.add_argument("--only", nargs="*", default=[])
    options = arguments.parse_args()
    parts: dict[str, Callable[[], Awaitable[list[Row]]]] = {
        "throughput": lambda: throughput(options.jobs, options.planes),
        **{f"limited-{jobs}": lambda jobs=jobs: limited(jobs, options.planes) for jobs in options.limited},  # type: ignore[misc]
        "latency": latency,
        "greedy": greedy,
        "sleep": lambda: sleep(options.asleep),
        "awake": lambda: awake(options.awake),
        "held": lambda: held(options.jobs, options.planes),
    }

    async def run() -> list[Row]:
        runtime.tune_interpreter()
        chosen = [part for name, part in parts.items() if not options.only or name.partition("-")[0] in options.only]
        return [row for part in chosen for row in await part()]

    return report("virtual control planes, simulated engine", runtime.run(run()), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
