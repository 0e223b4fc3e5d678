"""Admissions per second on Kueue's own baseline shape: 15,000 workloads from 5 cohorts x 6 queues, durable writes.

Each cohort is a type of accelerator with 120 slots; each of its 6 queues is a tenant that may hold all of it. Per queue
350 small (1 slot), 100 medium (5) and 50 large (20) workloads, as in kubernetes-sigs/kueue,
test/performance/scheduler/configs/baseline. The engine is simulated and workloads end at once, so that what is
measured is the control plane: submission, decision, and every step of every job written with a flush of the disk.
Kueue's published run of this shape takes 351 s (42.7/s) with workloads that run for a while and an API server; the
baseline of this run is the same without durable writes. A fixed loop before and after each run tells how fast the
machine is meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from common import Row, parser, report, yardstick

from shoal.contract.manifest import JobManifest
from shoal.control import runtime
from shoal.control.plane import ControlPlane
from shoal.core import Device, Node, SystemClock
from shoal.engine.simulated import Script, SimulatedCluster, SimulatedEngine
from shoal.store import open_store

COHORTS, QUEUES = 5, 6
SHAPE = ((350, 1), (100, 5), (50, 20))
AT_ONCE = Script(run_s=0.0)
TARGET = 1500


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--scale", type=float, default=1.0, help="share of the 500 workloads per queue")
    arguments.add_argument("--runs", type=int, default=5, help="how many runs; the one in the middle counts")
    options = arguments.parse_args()
    durables = []
    for _ in range(options.runs):
        before = yardstick()
        durables.append((runtime.run(run(sync=True, scale=options.scale)), before, yardstick()))
    durable = sorted((result for result, *_ in durables), key=lambda result: result.per_s)[len(durables) // 2]
    relaxed = runtime.run(run(sync=False, scale=options.scale))
    rows = [
        Row("workloads", durable.jobs, ""),
        Row("admissions, every step durable", durable.per_s, "/s", f">= {TARGET}", durable.per_s >= TARGET),
        *(
            Row(f"  run {number}; a fixed loop took {before:.0f} ms before it, {after:.0f} after", one.per_s, "/s")
            for number, (one, before, after) in enumerate(durables, 1)
        ),
        Row("  from first submission to last end", durable.seconds, "s"),
        Row("  CPU per workload", durable.cpu_s / durable.jobs * 1000, "ms"),
        Row("  utilisation while jobs waited", durable.utilisation * 100, "%"),
        Row("the same without flushing the disk (baseline)", relaxed.per_s, "/s"),
        Row("ratio to that baseline", durable.per_s / relaxed.per_s, "x"),
        Row("ratio to Kueue's published 42.7/s", durable.per_s / 42.7, "x"),
    ]
    return report("admissions on Kueue's baseline shape, simulated engine", rows, as_json=options.json)


class Result:
    def __init__(self, jobs: int, seconds: float, utilisation: float, cpu_s: float) -> None:
        self.jobs = jobs
        self.cpu_s = cpu_s
        self.seconds = seconds
        self.per_s = jobs / seconds
        self.utilisation = utilisation


async def run(*, sync: bool, scale: float) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        store = open_store(f"sqlite:///{home / 'shoal.db'}", sync=sync)
        store.acquire("benchmark")
        cluster = SimulatedCluster(machines(), clock=SystemClock(), behaviour=lambda _: AT_ONCE)
        plane = ControlPlane(store, SimulatedEngine(cluster), home)
        await plane.open()
        runtime.tune_interpreter()
        try:
            return await measure(plane, scale)
        finally:
            await plane.close()
            store.close()


async def measure(plane: ControlPlane, scale: float) -> Result:
    waiting = workloads(scale)
    tenants = {tenant for tenant, _ in waiting}
    for tenant in tenants:
        await plane.put_tenant(tenant, actor="admin")
    used: list[float] = []
    began, used_before_s = time.perf_counter(), time.process_time()
    for start in range(0, len(waiting), 500):
        batch = waiting[start : start + 500]
        await asyncio.gather(*(plane.submit(job, tenant=tenant, actor="bench") for tenant, job in batch))
    capacity = COHORTS * 120
    while len(plane.cache):
        if any(map(plane.cache.queued, tenants)):
            active = [live.job for live in plane.cache.active()]
            used.append(sum(job.resources.accelerator_count * job.ranks for job in active) / capacity)
        await asyncio.sleep(0.05)
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - used_before_s
    done = plane.status()["jobs"]
    assert done == {"SUCCEEDED": len(waiting)}, done
    return Result(len(waiting), seconds, sum(used) / len(used) if used else 0.0, cpu_s)


def machines() -> list[Node]:
    return [
        Node(f"c{c}-n{n}", tuple(Device(f"c{c}-n{n}-{d}", f"cohort-{c}", d) for d in range(20)), 64_000, 1 << 40)
        for c in range(COHORTS)
        for n in range(6)
    ]


def workloads(scale: float) -> list[tuple[str, JobManifest]]:
    """All queues' workloads, small, medium and large ones mixed as they would arrive."""
    jobs = []
    for cohort in range(COHORTS):
        for queue in range(QUEUES):
            for count, slots in SHAPE:
                kind = JobManifest.model_validate(
                    {
                        "name": f"size-{slots}",
                        "command": ["true"],
                        "resources": {"accelerators": {"type": f"cohort-{cohort}", "count": slots}, "cpus": 0.1},
                    }
                )
                number = round(count * scale)
                jobs += [(index / number, f"c{cohort}-q{queue}", kind) for index in range(number)]
    jobs.sort(key=lambda job: job[:2])
    return [(tenant, kind) for _, tenant, kind in jobs]


if __name__ == "__main__":
    sys.exit(main())
