"""What planes cost: jobs through planes against the same jobs straight to the shared server, in one run.

    python benchmarks/tenancy.py [--json] [--jobs 10000] [--planes 100] [--asleep 200]

The engine below is simulated and jobs end at once, so that what is measured is the control planes; every write is
flushed to disk. A job through a plane is kept twice. Throughput is of jobs that all come at once, from tenants or from
planes of equal number. The latency is of one job on an idle server, from its submission to its end, in turns. A wake is
the first request of a plane that slept. Memory is what sleeping planes add to the process, each once made and used.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from common import Row, parser, report

from shoal.base.statistics import quantile
from shoal.contract.manifest import JobManifest
from shoal.control import runtime
from shoal.control.extensions import Chosen
from shoal.control.plane import ControlPlane
from shoal.core import Device, Node, SystemClock
from shoal.engine.simulated import Script, SimulatedCluster, SimulatedEngine
from shoal.store import open_store
from shoal.tenancy.live.extension import Tenancy, TenancySection

JOB = JobManifest.model_validate(
    {"name": "job", "command": ["true"], "resources": {"accelerators": "a100:1", "cpus": 0.1, "memory": "1MiB"}}
)
LATENCIES = 40


class Shared:
    """A shared server in a folder of its own."""

    async def __aenter__(self) -> Shared:
        self._folder = tempfile.TemporaryDirectory()
        home = Path(self._folder.name)
        self._store = open_store(f"sqlite:///{home / 'shoal.db'}", tables=[Tenancy.tables] if Tenancy.tables else [])
        self._store.acquire("benchmark")
        nodes = [
            Node(f"n{at}", tuple(Device(f"g{d}", "a100", d) for d in range(8)), 64_000, 1 << 40) for at in range(64)
        ]
        cluster = SimulatedCluster(nodes, clock=SystemClock(), behaviour=lambda _: Script(run_s=0.0))
        chosen = [Chosen(Tenancy, TenancySection(sleep_after_s=1e9))]
        self.plane = ControlPlane(self._store, SimulatedEngine(cluster), home, extensions=chosen)
        await self.plane.open()
        found = self.plane.extensions.get(Tenancy)
        assert found is not None
        self.planes = found.planes
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.plane.close()
        self._store.close()
        self._folder.cleanup()

    async def make(self, count: int) -> list[str]:
        names = [f"team-{at}" for at in range(count)]
        for name in names:
            await self.plane.put_tenant(name, actor="admin")
            await self.planes.create(name, name, actor="admin")
        return names

    async def below(self, name: str) -> ControlPlane:
        async with self.planes.using(name):
            return self.planes._awake[name].plane


async def drain(doors: list[tuple[ControlPlane, str]], jobs: int) -> float:
    """Seconds until so many jobs are done, that come at once and in turn to each (plane, tenant)."""
    began = time.perf_counter()
    for start in range(0, jobs, 500):
        batch = (doors[at % len(doors)] for at in range(start, min(jobs, start + 500)))
        await asyncio.gather(*(plane.submit(JOB, tenant=tenant, actor="bench") for plane, tenant in batch))
    while any(len(plane.cache) for plane, _ in doors):
        await asyncio.sleep(0.02)
    return time.perf_counter() - began


async def once(plane: ControlPlane, tenant: str) -> float:
    began = time.perf_counter()
    job, _ = await plane.submit(JOB, tenant=tenant, actor="bench")
    while plane.cache.get(job.id) is not None:
        await asyncio.sleep(0.0005)
    return time.perf_counter() - began


async def throughput(jobs: int, planes: int) -> tuple[float, float]:
    async with Shared() as direct:
        for at in range(planes):
            await direct.plane.put_tenant(f"team-{at}", actor="admin")
        runtime.tune_interpreter()
        straight = await drain([(direct.plane, f"team-{at}") for at in range(planes)], jobs)
    async with Shared() as shared:
        doors = [(await shared.below(name), "default") for name in await shared.make(planes)]
        return straight, await drain(doors, jobs)


async def latency() -> tuple[list[float], list[float]]:
    async with Shared() as shared:
        (name,) = await shared.make(1)
        plane = await shared.below(name)
        pairs = [(await once(shared.plane, name), await once(plane, "default")) for _ in range(LATENCIES)]
    return [first for first, _ in pairs], [second for _, second in pairs]


async def sleeping(count: int) -> tuple[list[float], float]:
    """Seconds of each wake, and the bytes that a sleeping plane keeps."""
    async with Shared() as shared:
        names = await shared.make(count)
        wakes = []
        for name in names[:10]:  # what the first ones bring into memory is of the server, not of a plane
            await once(await shared.below(name), "default")
            await shared.planes._sleep(name)
        gc.collect()
        before = _resident()
        for name in names[10:]:
            began = time.perf_counter()
            plane = await shared.below(name)
            wakes.append(time.perf_counter() - began)
            await once(plane, "default")
            await shared.planes._sleep(name)
        gc.collect()
        return wakes, max(0.0, (_resident() - before) / max(1, count - 10))


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--jobs", type=int, default=10_000)
    arguments.add_argument("--planes", type=int, default=100)
    arguments.add_argument("--asleep", type=int, default=200)
    options = arguments.parse_args()
    straight, through = runtime.run(throughput(options.jobs, options.planes))
    alone, planed = runtime.run(latency())
    wakes, bytes_each = runtime.run(sleeping(options.asleep))
    added = median(planed) - median(alone)
    rows = [
        Row(f"{options.jobs} jobs of {options.planes} tenants, straight", straight, "s"),
        Row(f"{options.jobs} jobs of {options.planes} planes", through, "s", "<= 12", through <= 12.0),
        Row("  times the straight way", through / straight, "x", "<= 2", through <= 2.0 * straight),
        Row("one job, idle, straight: p50", median(alone) * 1e3, "ms"),
        Row("one job, idle, through a plane: added, p50", added * 1e3, "ms", "<= 5", added <= 0.005),
        Row("wake of a plane: p50", median(wakes) * 1e3, "ms"),
        Row("wake of a plane: p99", quantile(wakes, 0.99) * 1e3, "ms", "<= 100", quantile(wakes, 0.99) <= 0.1),
        Row("memory of a sleeping plane", bytes_each / 1024, "KiB", "<= 20", bytes_each <= 20 * 1024),
    ]
    return report("virtual control planes, simulated engine", rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
