"""How long one admission decision takes, against a naive scheduler in the same run.

    python benchmarks/decision_cycle.py [--json] [--nodes 1000] [--pending 10000] [--cycles 300]

full         an index built from nothing (nodes, waiting jobs), its snapshot and the decision that fills every slot
incremental  snapshot and decision after 1 to 20 changes each, on a cluster full of best-effort work; a fifth of
             what arrives is guaranteed and preempts
steady       15,000 jobs of 30 tenants in three shapes run through the cluster: starts per second of deciding, and of
             deciding plus keeping the index (start, stop, settle)
explaining   why a job waits on the full cluster, as the server answers it (in a thread, one at a time): the first
             answer of a snapshot, which looks ahead, and later ones, as ratios to a decision on that snapshot; and the
             longest time that the event loop stood still meanwhile
pooled       full and incremental again where the engine delegates: all nodes as one pool, of which no node is chosen
racked       full and incremental again where nodes are in racks of 16, and a gang is kept in one where it can be
naive        what a straightforward scheduler does: every cycle sort all waiting jobs and try each on all nodes in
             turn (first fit). It has no quotas, fair shares, reservations, preemption or reasons.

All in one thread. Figures are of this machine, which is named; compare ratios, not milliseconds, across machines.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from statistics import median
from typing import Any

from common import Row, parser, report

from shoal.admission import ClusterIndex, Decision, Pending, Running, Snapshot, decide
from shoal.base.statistics import quantile
from shoal.control import runtime
from shoal.control.jobs.explaining import Explainer
from shoal.core import Device, Node, PriorityClass, Resources, SystemClock, Tenant
from shoal.engine.pool import pool_of

GIB = 2**30
PER_NODE = 8
SHAPES = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2))
"""(accelerators per rank, ranks)"""


def machines(count: int, *, in_rack: int = 0) -> list[Node]:
    devices = tuple(Device(f"a100:{at}", "a100", at) for at in range(PER_NODE))
    return [
        Node(f"n{at:05d}", devices, 96_000, 1024 * GIB, {"rack": f"r{at // in_rack}"} if in_rack else {})
        for at in range(count)
    ]


def racks(count: int) -> list[Node]:
    return machines(count, in_rack=16)


def pool(count: int) -> list[Node]:
    return [pool_of("pool", machines(count), ahead=0.0)]


Site = Callable[[int], list[Node]]


def make_job(
    number: int, tenant: int, shape: tuple[int, int], at: float, rng: random.Random, *, guaranteed: float = 0.2
) -> Pending:
    count, ranks = shape
    return Pending(
        f"j{number:06d}",
        f"t{tenant:02d}",
        PriorityClass.GUARANTEED if rng.random() < guaranteed else PriorityClass.BEST_EFFORT,
        0,
        Resources({"a100": count}, 4000 * count, 16 * GIB * count),
        ranks,
        at,
        expected_s=rng.choice((None, 30.0, 300.0)),
    )


def make_index(nodes: int, pending: Iterable[Pending], site: Site = machines) -> ClusterIndex:
    index = ClusterIndex()
    index.set_nodes(site(nodes))
    for at in range(30):
        index.set_tenant(Tenant(f"t{at:02d}", 1.0 + at % 3))
    for job in pending:
        index.add_pending(job)
    return index


def carry_out(index: ClusterIndex, snapshot: Snapshot, decision: Decision) -> list[Running]:
    index.settle(decision)
    started = []
    for start in decision.starts:
        job = snapshot.pending.by_id[start.job_id]
        end = None if job.expected_s is None else snapshot.now + job.expected_s
        running = Running(
            job.job_id, job.tenant, job.priority_class, job.priority, job.resources, start.placement, snapshot.now,
            expected_end=end,
        )  # fmt: skip
        index.start(running)
        started.append(running)
    for preemption in decision.preemptions:
        index.update_running(preemption.job_id, stopping=True)
    return started


def backlog(count: int, *, guaranteed: float) -> list[Pending]:
    rng = random.Random(1)
    return [make_job(at, at % 30, rng.choice(SHAPES), float(at), rng, guaranteed=guaranteed) for at in range(count)]


def full(nodes: int, pending: int, site: Site = machines) -> dict[str, float]:
    jobs = backlog(pending, guaranteed=0.2)
    gc.collect()
    begin = time.perf_counter()
    snapshot = make_index(nodes, jobs, site).snapshot(1.0)
    middle = time.perf_counter()
    decide(snapshot)
    end = time.perf_counter()
    return {"total_ms": (end - begin) * 1e3, "decide_ms": (end - middle) * 1e3}


def incremental(nodes: int, pending: int, cycles: int, site: Site = machines) -> dict[str, float]:
    rng = random.Random(2)
    index = make_index(nodes, backlog(pending + nodes * 2, guaranteed=0.0), site)
    snapshot = index.snapshot(1.0)
    held = [running.job_id for running in carry_out(index, snapshot, decide(snapshot))]
    number, now, took = 10**6, 1.0, []
    stopping: list[str] = []
    gc.collect()
    gc.freeze()
    for _ in range(cycles):
        now += 1.0
        for job_id in stopping:
            index.stop(job_id, ran_s=30.0, completed=False)
        for _ in range(rng.randint(1, 20)):
            if rng.random() < 0.5 and held:
                index.stop(held.pop(rng.randrange(len(held))), ran_s=30.0)
            else:
                number += 1
                index.add_pending(make_job(number, rng.randrange(30), rng.choice(SHAPES), now, rng))
        begin = time.perf_counter()
        snapshot = index.snapshot(now)
        decision = decide(snapshot)
        took.append(time.perf_counter() - begin)
        held += [running.job_id for running in carry_out(index, snapshot, decision)]
        stopping = [preemption.job_id for preemption in decision.preemptions]
    return {"p50_ms": quantile(took, 0.5) * 1e3, "p99_ms": quantile(took, 0.99) * 1e3}


def steady(nodes: int = 100, per_tenant: int = 500) -> dict[str, Any]:
    """Small, middle and large jobs as in Kueue's baseline (70 %, 20 %, 10 %), all waiting at once, drained."""
    rng = random.Random(3)
    shapes = ((1, 1),) * 7 + ((5, 1),) * 2 + ((8, 2),)
    jobs = [
        make_job(tenant * per_tenant + at, tenant, shapes[at % 10], float(at), rng)
        for tenant in range(30)
        for at in range(per_tenant)
    ]
    index = make_index(nodes, jobs)
    deciding, keeping, started, cycles, now = 0.0, 0.0, 0, 0, 1.0
    ends: list[tuple[float, str]] = []
    gc.collect()
    while started < len(jobs) or ends:
        begin = time.perf_counter()
        snapshot = index.snapshot(now)
        decision = decide(snapshot)
        middle = time.perf_counter()
        running = carry_out(index, snapshot, decision)
        keeping += time.perf_counter() - middle
        deciding += middle - begin
        cycles += 1
        started += len(running)
        for each in running:
            heappush(ends, (now + rng.choice((1.0, 2.0, 4.0)), each.job_id))
        for preemption in decision.preemptions:
            started -= 1
            ends = [(end, job_id) for end, job_id in ends if job_id != preemption.job_id]
            heappush(ends, (now, preemption.job_id))
        now = max(now, ends[0][0]) if ends else now
        stops = []
        while ends and ends[0][0] <= now:
            stops.append(heappop(ends)[1])
        again = [index.running(job_id) for job_id in stops]
        begin = time.perf_counter()
        for job_id in stops:
            index.stop(job_id, ran_s=2.0)
        keeping += time.perf_counter() - begin
        for each in again:
            if each is not None and each.stopping:
                index.add_pending(Pending(
                    each.job_id, each.tenant, each.priority_class, 0, each.resources, len(each.placement), now
                ))  # fmt: skip
    return {
        "jobs": len(jobs), "cycles": cycles, "starts_per_s_deciding": len(jobs) / deciding,
        "starts_per_s_with_index": len(jobs) / (deciding + keeping),
    }  # fmt: skip


def explaining(nodes: int, pending: int, later: int = 50) -> dict[str, Any]:
    index = make_index(nodes, backlog(pending + nodes * 2, guaranteed=0.0))
    snapshot = index.snapshot(1.0)
    carry_out(index, snapshot, decide(snapshot))
    snapshot = index.snapshot(2.0)
    waiting = random.Random(4).sample(sorted(snapshot.pending.by_id), later + 1)
    decisions = []
    for _ in range(5):
        begin = time.perf_counter()
        decide(snapshot)
        decisions.append(time.perf_counter() - begin)

    async def ask() -> tuple[list[float], float]:
        # One snapshot for all: an outlook is used again for ten times as long as it took, as in the server.
        explainer = Explainer(lambda: snapshot, SystemClock())
        pauses, over = [0.0], asyncio.Event()

        async def watch() -> None:
            while not over.is_set():
                begin = time.perf_counter()
                await asyncio.sleep(0.001)
                pauses.append(time.perf_counter() - begin - 0.001)

        watching, took = asyncio.create_task(watch()), []
        for job_id in waiting:
            begin = time.perf_counter()
            await explainer.explain([job_id])
            took.append(time.perf_counter() - begin)
        over.set()
        await watching
        return took, max(pauses)

    gc.collect()
    took, pause = asyncio.run(ask())
    decision = median(decisions)
    return {
        "waiting": len(snapshot.pending), "decision_ms": decision * 1e3, "first_ms": took[0] * 1e3,
        "later_p50_ms": median(took[1:]) * 1e3, "first_to_decision": took[0] / decision,
        "later_to_decision": median(took[1:]) / decision, "longest_pause_ms": pause * 1e3,
    }  # fmt: skip


def naive(nodes: int, pending: int) -> dict[str, Any]:
    """First fit over all nodes for every waiting job, from scratch each cycle."""
    jobs = backlog(pending, guaranteed=0.2)

    def cycle(free: list[int], cpus: list[int]) -> int:
        started = 0
        for job in sorted(jobs, key=lambda job: (job.priority_class, -job.priority, job.queued_at)):
            count, cpu = job.resources.accelerator_count, job.resources.cpu_milli
            chosen: list[int] = []
            for _ in range(job.ranks):
                for at in range(nodes):
                    if free[at] >= count and cpus[at] >= cpu:
                        free[at] -= count
                        cpus[at] -= cpu
                        chosen.append(at)
                        break
            if len(chosen) == job.ranks:
                started += 1
            else:
                for at in chosen:
                    free[at] += count
                    cpus[at] += cpu
        return started

    free, cpus = [PER_NODE] * nodes, [96_000] * nodes
    begin = time.perf_counter()
    cycle(free, cpus)
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    cycle(free, cpus)
    return {"full_ms": first * 1e3, "incremental_ms": (time.perf_counter() - begin) * 1e3}


def in_turns(sites: Sequence[Site], measure: Callable[[Site], dict[str, float]]) -> dict[Site, dict[str, float]]:
    """Each site's medians of `_TURNS` runs, one site after the other: the machine's speed changes meanwhile."""
    runs = [{site: measure(site) for site in sites} for _ in range(_TURNS)]
    return {site: {key: median(run[site][key] for run in runs) for key in runs[0][site]} for site in sites}


_TURNS = 5


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=1000)
    arguments.add_argument("--pending", type=int, default=10_000)
    arguments.add_argument("--cycles", type=int, default=300)
    options = arguments.parse_args()
    runtime.tune_interpreter()
    sites = (machines, pool, racks)
    filled = in_turns(sites, lambda site: full(options.nodes, options.pending, site))
    changed = in_turns(sites, lambda site: incremental(options.nodes, options.pending, options.cycles, site))
    rate = steady()
    told = explaining(options.nodes, options.pending)
    first_fit = naive(options.nodes, options.pending)
    total, p99 = filled[machines]["total_ms"], changed[machines]["p99_ms"]
    starts = rate["starts_per_s_deciding"]
    rows = [
        Row("full: index, snapshot, decision", total, "ms", "<= 1000", total <= 1000),
        Row("  of it the decision", filled[machines]["decide_ms"], "ms"),
        Row("incremental, p50", changed[machines]["p50_ms"], "ms"),
        Row("incremental, p99", p99, "ms", "<= 200", p99 <= 200),
        Row("steady starts, deciding", starts, "/s", ">= 10000", starts >= 10_000),
        Row("steady starts, index kept too", rate["starts_per_s_with_index"], "/s"),
        Row("explain, first of a snapshot", told["first_to_decision"], "decisions"),
        Row("explain, later ones, p50", told["later_to_decision"], "decisions"),
        Row("  longest pause of the loop", told["longest_pause_ms"], "ms"),
    ]
    for name, site, most in (("delegated, one pool", pool, 1.0), ("in racks of 16", racks, 0.0)):
        for what, found, key in (
            ("full, the decision", filled, "decide_ms"), ("incremental, p50", changed, "p50_ms"),
            ("incremental, p99", changed, "p99_ms"),
        ):  # fmt: skip
            ratio = found[site][key] / found[machines][key]
            rows.append(Row(f"{name}: {what}", found[site][key], "ms"))
            goal = (f"<= {most:g}", ratio <= most) if most else ("", None)
            rows.append(Row("  of that on machines", ratio, "", *goal))
    rows += [
        Row("naive first fit, full", first_fit["full_ms"], "ms"),
        Row("naive first fit, incremental", first_fit["incremental_ms"], "ms"),
    ]
    title = f"one decision, {options.pending:,} waiting jobs, {options.nodes:,} nodes of {PER_NODE}"
    return report(title, rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
