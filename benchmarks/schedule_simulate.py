"""Policies in simulation, against Gavel's own numbers for the same traces, seeds and windows.

    python benchmarks/schedule_simulate.py --throughputs simulation_throughputs.json \\
        --physical physical_cluster_throughputs.json --continuous max_min_fairness.trace \\
        --static minimize_makespan.trace [--json] [--only tables,jct,static,cost,speed,philly]

The files are those of stanford-futuredata/gavel: `scheduler/*_throughputs.json` and the two traces in
`scheduler/traces/physical_cluster/`. Nothing runs: all hours are simulated. Gavel's rows are played
by its own rounds and accounting (`published`), all others by the loop of the control plane.

tables   Gavel's policies: its shipped traces on 8 V100, 16 P100 and 24 K80 (seed 0), and 4.4 jobs an hour
         on 36 of each, jobs 4000 to 5000 of seed 0. A row is this simulator's result with Gavel's published rounds and
         programs, its target what Gavel's own scheduler gives for the same input when it is run unchanged, within 2 %.
jct      mean and 99th percentile completion time of `blend` on the continuous trace, lengths known, and predicted
         within a factor of two (mean of three seeds).
static   `blend` on the static trace: makespan and mean completion time by one policy.
cost     4.4 and 5.6 jobs an hour with a migration that costs 30 and 60 s, `blend` against Gavel's max-min fairness, and
         what no policy can pass: every job at once alone on its fastest type, from the next round on.
elastic  4.4 jobs an hour, 60 s a migration, jobs that may grow up to the gangs they were measured with (4 minutes).
speed    processor seconds to simulate the window of a thousand jobs.
philly   processor seconds for 80,000 jobs on 2,500 accelerators.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from common import Row, parser, report, yardstick

from shoal.base.console.quiet import hushed
from shoal.schedule import Pool
from shoal.schedule.metrics import Metrics, metrics_of
from shoal.schedule.simulate import Cluster, Lengths, Mechanism, Run, cluster_of, run_of, simulate
from shoal.schedule.types import Array
from shoal.schedule.workloads import Throughputs, gavel_jobs, philly_jobs, read_gavel, read_throughputs

PHYSICAL = (Pool("v100", 8), Pool("p100", 16), Pool("k80", 24))
LARGE = (Pool("v100", 36), Pool("p100", 36), Pool("k80", 36))
PHILLY = (Pool("v100", 834), Pool("p100", 833), Pool("k80", 833))
WINDOW = range(4000, 5000)
ARRIVALS = 6500
TOLERANCE = 0.02

CONTINUOUS_JCT = {("max-min", True): 5.20, ("max-min", False): 3.82, ("finish-time", True): 5.14,
                  ("finish-time", False): 3.94, ("makespan", True): 5.52, ("makespan", False): 5.94}  # fmt: skip
STATIC_MAKESPAN = {("max-min", True): 22.43, ("max-min", False): 18.64, ("finish-time", True): 21.34,
                   ("finish-time", False): 19.09, ("makespan", True): 20.71, ("makespan", False): 17.40}  # fmt: skip
WINDOW_JCT = {("max-min", True): 24.23, ("max-min", False): 17.75}
"""Hours, by policy and whether it takes all types for equal: Gavel's scheduler, run unchanged."""


class Inputs:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments

    @cached_property
    def table(self) -> Throughputs:
        return read_throughputs(self._arguments.throughputs)

    def shipped(self, trace: Path) -> Cluster:
        table = read_throughputs(self._arguments.physical)
        return cluster_of(read_gavel(trace, table), PHYSICAL, table)

    @cached_property
    def continuous(self) -> Cluster:
        return self.shipped(self._arguments.continuous)

    @cached_property
    def static(self) -> Cluster:
        return self.shipped(self._arguments.static)

    def arriving(self, per_hour: float) -> Cluster:
        return cluster_of(gavel_jobs(self.table, count=ARRIVALS, per_hour=per_hour), LARGE, self.table)


def form(name: str, agnostic: bool) -> str:
    return f"{name}, agnostic" if agnostic else name


def near(measure: str, value: float, peer: float) -> Row:
    return Row(measure, value, "h", f"{peer:g} +- 2 %", abs(value / peer - 1.0) <= TOLERANCE)


def tables(inputs: Inputs) -> Iterator[Row]:
    for (name, agnostic), peer in CONTINUOUS_JCT.items():
        found = metrics_of(simulate(inputs.continuous, published(name, agnostic=agnostic)))
        yield near(f"continuous trace: mean JCT, {form(name, agnostic)}", found.avg_jct_h, peer)
    for (name, agnostic), peer in STATIC_MAKESPAN.items():
        found = metrics_of(simulate(inputs.static, published(name, agnostic=agnostic)))
        yield near(f"static trace: makespan, {form(name, agnostic)}", found.makespan_h, peer)
    window = inputs.arriving(4.4)
    for (name, agnostic), peer in WINDOW_JCT.items():
        found = metrics_of(simulate(window, published(name, agnostic=agnostic), measured=WINDOW))
        yield near(f"4.4 jobs/h: mean JCT, {form(name, agnostic)}", found.avg_jct_h, peer)


def published(name: str, **options: Any) -> Run:
    return run_of(name, mechanism=Mechanism.PUBLISHED, **options)


def jct(inputs: Inputs) -> Iterator[Row]:
    base = metrics_of(simulate(inputs.continuous, run_of("max-min")))
    known = metrics_of(simulate(inputs.continuous, run_of("blend")))
    yield Row("blend, lengths known: mean JCT", known.avg_jct_h, "h", "<= 3.3", known.avg_jct_h <= 3.3)
    text = f"<= {base.p99_jct_h:.2f}, max-min's"
    yield Row("blend, lengths known: p99 JCT", known.p99_jct_h, "h", text, known.p99_jct_h <= base.p99_jct_h)
    guessed = [
        metrics_of(simulate(inputs.continuous, run_of("blend", lengths=Lengths.parse("predicted:2"), seed=seed)))
        for seed in range(3)
    ]
    mean = float(np.mean([each.avg_jct_h for each in guessed]))
    yield Row("blend, predicted within 2x: mean JCT", mean, "h", "<= 3.45", mean <= 3.45)
    p99 = float(np.mean([each.p99_jct_h for each in guessed]))
    yield Row("blend, predicted within 2x: p99 JCT", p99, "h", text, p99 <= base.p99_jct_h)


def static(inputs: Inputs) -> Iterator[Row]:
    found = metrics_of(simulate(inputs.static, run_of("blend")))
    yield Row("blend, static trace: makespan", found.makespan_h, "h", "<= 17.45", found.makespan_h <= 17.45)
    yield Row("blend, static trace: mean JCT", found.avg_jct_h, "h", "<= 8", found.avg_jct_h <= 8.0)


def cost(inputs: Inputs) -> Iterator[Row]:
    for per_hour, restart_s in ((4.4, 30.0), (4.4, 60.0), (5.6, 60.0)):
        window = inputs.arriving(per_hour)
        theirs = metrics_of(simulate(window, published("max-min", restart_s=restart_s), measured=WINDOW))
        ours = metrics_of(simulate(window, run_of("blend", restart_s=restart_s), measured=WINDOW))
        yield from saved(f"{per_hour} jobs/h, {restart_s:g} s a migration", ours, theirs)
        least = float((alone(window) / 3600).mean())
        yield Row(f"{per_hour} jobs/h, {restart_s:g} s: no policy saves", 100 * (1 - least / theirs.avg_jct_h), "%")


def elastic(inputs: Inputs) -> Iterator[Row]:
    window = inputs.arriving(4.4)
    grows = cluster_of(window.workload, LARGE, inputs.table, elastic=True)
    theirs = metrics_of(simulate(window, published("max-min", restart_s=60.0), measured=WINDOW))
    ours = metrics_of(simulate(grows, run_of("elastic", restart_s=60.0), measured=WINDOW))
    yield from saved("4.4 jobs/h, 60 s, jobs that grow", ours, theirs)


def saved(said: str, ours: Metrics, theirs: Metrics) -> Iterator[Row]:
    share = 1.0 - ours.avg_jct_h / theirs.avg_jct_h
    fewer = theirs.migrations / max(ours.migrations, 1)
    yield Row(f"{said}: mean JCT, Gavel's max-min", theirs.avg_jct_h, "h")
    yield Row(f"{said}: mean JCT, {ours.policy}", ours.avg_jct_h, "h")
    yield Row(f"{said}: saved", 100 * share, "%", ">= 25", share >= 0.25)
    yield Row(f"{said}: times fewer migrations", fewer, "x", ">= 10", fewer >= 10.0)


def alone(window: Cluster) -> Array:
    """(k,) seconds that each measured job takes if it runs on its fastest type from the next round on."""
    work = window.workload
    waits = -work.arrived[WINDOW] % 360.0
    return waits + (work.steps / window.rate.max(axis=1))[WINDOW]


def speed(inputs: Inputs) -> Iterator[Row]:
    window = inputs.arriving(4.4)
    for name in ("max-min", "blend"):
        before = time.process_time()
        found = metrics_of(simulate(window, run_of(name), measured=WINDOW))
        took = time.process_time() - before
        yield Row(f"the window of 1,000 jobs, {name}", took, "s", "<= 5", took <= 5.0)
        yield Row(f"the window of 1,000 jobs, {name}: deciding", found.policy_cpu_s, "s")
        yield Row("  a fixed loop, just now", yardstick(), "ms")


def philly(inputs: Inputs) -> Iterator[Row]:
    work = philly_jobs(inputs.table, count=80_000, accelerators=1500, load=1.0)
    made = cluster_of(work, PHILLY, inputs.table)
    before = time.process_time()
    found = metrics_of(simulate(made, run_of("max-min")))
    took = time.process_time() - before
    yield Row("80,000 jobs on 2,500 accelerators, max-min", took, "s", "<= 120", took <= 120.0)
    yield Row("80,000 jobs on 2,500 accelerators: used", 100 * found.utilisation, "%")
    yield Row("80,000 jobs on 2,500 accelerators: simulated", found.makespan_h / 24, "days")


SECTIONS = {
    "tables": tables, "jct": jct, "static": static, "cost": cost, "elastic": elastic, "speed": speed, "philly": philly,
}  # fmt: skip


def main() -> int:
    arguments = parser(__doc__)
    for name in ("throughputs", "physical", "static"):
        arguments.add_argument(f"--{name}", type=Path, required=True)
    arguments.add_argument("--continuous", type=Path, help="without it, sections that need it are left out")
    arguments.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    given = arguments.parse_args()
    inputs = Inputs(given)
    sections = [name for name in given.only.split(",") if given.continuous or name not in ("tables", "jct")]
    with hushed():
        rows = [row for name in sections for row in SECTIONS[name](inputs)]
    return report("Cluster scheduling, simulated", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
