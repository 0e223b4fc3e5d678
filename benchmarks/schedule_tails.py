"""Tails away from one trace: `blend` against max-min fairness over many generated loads, clusters and seeds.

    nice -n 15 python benchmarks/schedule_tails.py [--set tuning|held-out] [--cases 40]
        [--results build/schedule_tails.json] [--json] [--rerun]

A case is a cluster (4:8:12 to 36:36:36 of three types), a kind of load, how much of it there is, a number of jobs, what
a migration costs, and a seed, all drawn from the generator of its set. It is simulated by `blend` and by max-min in the
same rounds, one after the other in one process, lengths known. What `blend` does was chosen on the tuning set alone.

Loads are Gavel's distribution with gangs, arriving one by one, in waves of thirty, half of them at once, or all at once
(a batch); lognormal ones in pairs (median of an hour, tail 1.5); Pareto ones in sweeps of four (median of 90 minutes,
tail 1.2), and a lognormal batch. All by the example table of throughputs, which ships with Shoal, so that no file is
needed. Nothing runs: all hours are simulated.

Each case is printed as it comes, and kept, so that a run that was stopped goes on where it was; `--rerun` begins anew.
A row's value is the mean of the ratios, the worst of them with its case, and how many cases are above the bar.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from common import Row, parser, report

from shoal.schedule import Pool
from shoal.schedule.metrics import metrics_of
from shoal.schedule.simulate import cluster_of, run_of, simulate
from shoal.schedule.workloads import Durations, Workload, example_throughputs, gavel_jobs, heavy_tailed_jobs

TABLE = example_throughputs()
TYPES = ("v100", "p100", "k80")
WORTH = (1.0, 0.6, 0.17)
"""What an accelerator of each type does, over one of the first: the mean of the table."""

CLUSTERS = ((4, 8, 12), (8, 16, 24), (12, 12, 12), (36, 36, 36), (16, 8, 4), (6, 20, 10), (24, 8, 30))
KINDS = ("gavel", "waves", "half at once", "batch", "lognormal", "pareto", "lognormal batch")
LOADS = (0.6, 0.9, 1.2, 1.6)
JOBS = (60, 100, 150, 200)
RESTARTS_S = (0.0, 30.0, 120.0)
GAVEL_HOURS = 32.0
"""Accelerator-hours on the reference type of a job of Gavel's distribution, about."""

WAVE = 30
SETS = {"tuning": 10_000, "held-out": 20_000}
"""Where the seeds of each set begin."""

AT_MOST = {"mean": 1.02, "p99": 1.03, "worst fairness": 1.25, "CPU of a decision": 3.0}
"""What `blend` may be worse than max-min in the same rounds, in every case."""


@dataclass(frozen=True, slots=True)
class Case:
    counts: tuple[int, int, int]
    kind: str
    load: float
    jobs: int
    restart_s: float
    seed: int

    def __str__(self) -> str:
        cluster = ":".join(map(str, self.counts))
        return f"{cluster} {self.kind} {self.load:g}, {self.jobs} jobs, {self.restart_s:g} s, seed {self.seed}"

    def workload(self) -> Workload:
        able = sum(count * worth for count, worth in zip(self.counts, WORTH, strict=True))
        if self.kind in ("lognormal", "pareto", "lognormal batch"):
            long = self.kind == "pareto"
            return heavy_tailed_jobs(
                TABLE, count=self.jobs, accelerators=able, load=0.0 if "batch" in self.kind else self.load,
                seed=self.seed, durations=Durations.PARETO if long else Durations.LOGNORMAL, tail=1.2 if long else 1.5,
                median_s=5400.0 if long else 3600.0, burst=4.0 if long else 2.0,
                gangs={size: part for size, part in MIX.items() if size <= max(self.counts)},
            )  # fmt: skip
        per_hour = 0.0 if self.kind == "batch" else self.load * able / GAVEL_HOURS
        work = gavel_jobs(TABLE, count=self.jobs, per_hour=per_hour, seed=self.seed, gangs=True)
        if self.kind == "waves":
            return replace(work, arrived=work.arrived[np.arange(self.jobs) // WAVE * WAVE])
        if self.kind == "half at once":
            return replace(work, arrived=np.where(np.arange(self.jobs) < self.jobs // 2, 0.0, work.arrived))
        return work


MIX = {1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05}


def cases(of: str, count: int) -> list[Case]:
    """Clusters and kinds in turn, so that each meets each; the rest is drawn."""
    rng = np.random.default_rng(SETS[of])
    found = []
    for at in range(count):
        counts = CLUSTERS[at % len(CLUSTERS)]
        kind = KINDS[(at + at // len(CLUSTERS)) % len(KINDS)]
        load, jobs, restart_s = rng.choice(LOADS), rng.choice(JOBS), rng.choice(RESTARTS_S)
        found.append(Case(counts, kind, float(load), int(jobs), float(restart_s), SETS[of] + at))
    return found


def simulated(case: Case, policy: str) -> dict[str, float]:
    pools = [Pool(name, count) for name, count in zip(TYPES, case.counts, strict=True)]
    cluster = cluster_of(case.workload(), pools, TABLE)
    found = metrics_of(simulate(cluster, run_of(policy, restart_s=case.restart_s)))
    return {
        "mean": found.avg_jct_h, "p99": found.p99_jct_h, "makespan": found.makespan_h,
        "worst fairness": found.fairness_worst, "CPU of a decision": found.policy_cpu_s / found.decisions,
    }  # fmt: skip


class Results:
    """Finished cases, in a file that is written after each. Those of other code than this are left out."""

    def __init__(self, path: Path, *, rerun: bool) -> None:
        self._path, self._code = path, _code()
        self.found: dict[str, dict[str, float]] = {}
        if path.exists() and not rerun:
            kept = json.loads(path.read_text())
            self.found = kept["found"] if kept["code"] == self._code else {}

    def add(self, name: str, values: dict[str, float]) -> None:
        self.found[name] = values
        self._path.parent.mkdir(parents=True, exist_ok=True)
        half = self._path.with_suffix(".part")
        half.write_text(json.dumps({"code": self._code, "found": self.found}, indent=1, sort_keys=True))
        half.replace(self._path)


def _code() -> str:
    """A digest of the code of `schedule` and of this file: results of other code say nothing of this one."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    code = Path(__file__).resolve().parent.parent / "src" / "shoal" / "schedule"
    for path in sorted(code.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def play(every: list[Case], results: Results) -> None:
    """Each case, as ratios of `blend` over max-min."""
    for case in every:
        if str(case) not in results.found:
            theirs, mine = simulated(case, "max-min"), simulated(case, "blend")
            results.add(str(case), {measure: mine[measure] / theirs[measure] for measure in theirs})
        said = ", ".join(f"{measure} {ratio:.3f}" for measure, ratio in results.found[str(case)].items())
        print(f"{case}: {said}", file=sys.stderr, flush=True)


def table(every: list[Case], found: Mapping[str, Mapping[str, float]]) -> Iterator[Row]:
    for measure in found[str(every[0])]:
        ratio = np.array([found[str(case)][measure] for case in every])
        worst, most = int(ratio.argmax()), AT_MOST.get(measure)
        yield Row(f"{measure}, mean of the ratios", float(ratio.mean()), "x")
        if most is None:
            yield Row(f"{measure}, worst ({every[worst]})", float(ratio[worst]), "x")
            continue
        kept = bool((ratio <= most).all())
        yield Row(f"{measure}, worst ({every[worst]})", float(ratio[worst]), "x", f"<= {most:g}", kept)
        yield Row(f"{measure}, cases above {most:g}", float((ratio > most).sum()), f"of {len(every)}")


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--set", choices=list(SETS), default="held-out")
    arguments.add_argument("--cases", type=int, default=42)
    arguments.add_argument("--results", type=Path, default=Path("build/schedule_tails.json"))
    arguments.add_argument("--rerun", action="store_true", help="forget what was simulated before")
    given = arguments.parse_args()
    every = cases(given.set, given.cases)
    results = Results(given.results, rerun=given.rerun)
    play(every, results)
    rows = list(table(every, results.found))
    return report(f"blend over max-min, same rounds, {given.set}, {len(every)} cases", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
