"""Tails away from one trace: `blend` against max-min fairness over many generated loads, clusters and seeds.

    nice -n 15 python benchmarks/schedule_tails.py [--set training|held-out|wide] [--seeds 3] [--jobs 150]
        [--processes 2] [--results build/schedule_tails.json] [--json] [--rerun]

Each case is a cluster, a kind of load, how much of it there is, and a seed. It is simulated three times: `blend` in
Shoal's rounds, max-min in the same rounds, and max-min as Gavel published it. The first over the second is what the
policy does, the second over the third what the rounds do. Seeds of the training set are even, those of the held-out set
odd: what `blend` does was chosen on the first, and is judged on the second. The wide set has clusters up to 36:36:36,
one seed each, of which none was tuned on.

Loads are Gavel's distribution with gangs; lognormal ones in pairs (median of an hour, tail 1.5); Pareto ones in sweeps
of four (median of 90 minutes, tail 1.2). All by the example table of throughputs, which ships with Shoal, so that no
file is needed. Nothing runs: all hours are simulated, 30 s a migration, lengths known.

A row's name says what is compared; its value is the worst case. `mean` rows are means over the cases. Results are kept
by case as they come, so that a run that was stopped goes on where it was; `--rerun` begins anew.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from common import Row, parser, report

from shoal.schedule import Pool
from shoal.schedule.metrics import metrics_of
from shoal.schedule.simulate import Mechanism, cluster_of, run_of, simulate
from shoal.schedule.workloads import Durations, Workload, example_throughputs, gavel_jobs, heavy_tailed_jobs

TABLE = example_throughputs()
TYPES = ("v100", "p100", "k80")
WORTH = (1.0, 0.6, 0.17)
"""What an accelerator of each type does, over one of the first: the mean of the table."""

CLUSTERS = ((8, 16, 24), (12, 12, 12), (4, 8, 12), (16, 6, 2))
LOADS = (0.8, 1.3)
KINDS = ("gavel", "lognormal", "pareto")
GAVEL_HOURS = 32.0
"""Accelerator-hours on the reference type of a job of Gavel's distribution, about."""

RUNS = {
    "blend": ("blend", Mechanism.SHOAL),
    "max-min": ("max-min", Mechanism.SHOAL),
    "published max-min": ("max-min", Mechanism.PUBLISHED),
}
MEASURES = {
    "mean": "avg_jct_h", "p99": "p99_jct_h", "makespan": "makespan_h", "worst rho": "fairness_worst",
    "decisions' CPU": "policy_cpu_s",
}  # fmt: skip
RESTART_S = 30.0

AT_MOST = {"mean": 1.02, "p99": 1.03, "worst rho": 1.25, "decisions' CPU": 3.0}
"""What `blend` may be worse than max-min in the same rounds, in every case."""


@dataclass(frozen=True, slots=True)
class Case:
    counts: tuple[int, int, int]
    kind: str
    load: float
    seed: int
    jobs: int

    def __str__(self) -> str:
        return f"{':'.join(map(str, self.counts))} {self.kind} {self.load:g} seed {self.seed}, {self.jobs} jobs"

    def workload(self) -> Workload:
        able = sum(count * worth for count, worth in zip(self.counts, WORTH, strict=True))
        if self.kind == "gavel":
            per_hour = self.load * able / GAVEL_HOURS
            return gavel_jobs(TABLE, count=self.jobs, per_hour=per_hour, seed=self.seed, gangs=True)
        long = self.kind == "pareto"
        return heavy_tailed_jobs(
            TABLE, count=self.jobs, accelerators=able, load=self.load, seed=self.seed, durations=Durations(self.kind),
            tail=1.2 if long else 1.5, median_s=5400.0 if long else 3600.0, burst=4.0 if long else 2.0,
        )  # fmt: skip


WIDE = ((8, 16, 24), (4, 8, 12), (12, 12, 12), (36, 36, 36), (16, 8, 2))


def wide(jobs: int) -> list[Case]:
    return [
        Case(counts, kind, load, 20_001 + 2 * at, jobs)
        for at, (counts, kind, load) in enumerate((c, k, x) for c in WIDE for k in KINDS for x in LOADS)
    ]


def cases(held_out: bool, seeds: int, jobs: int) -> list[Case]:
    return [
        Case(counts, kind, load, 2 * (len(KINDS) * len(LOADS) * len(CLUSTERS) * seed + at) + held_out, jobs)
        for seed in range(seeds)
        for at, (counts, kind, load) in enumerate((c, k, x) for c in CLUSTERS for k in KINDS for x in LOADS)
    ]


def simulated(case: Case, run: str) -> dict[str, float]:
    policy, mechanism = RUNS[run]
    pools = [Pool(name, count) for name, count in zip(TYPES, case.counts, strict=True)]
    cluster = cluster_of(case.workload(), pools, TABLE)
    found = metrics_of(simulate(cluster, run_of(policy, mechanism=mechanism, restart_s=RESTART_S)))
    return {name: getattr(found, field) for name, field in MEASURES.items()}


class Results:
    """What was simulated, by case and run, in a file that is written after each; of other code than this, nothing."""

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


def play(every: list[Case], results: Results, processes: int) -> None:
    missing = [(case, run) for case in every for run in RUNS if name(case, run) not in results.found]
    with ProcessPoolExecutor(processes) as pool:
        waiting = {pool.submit(simulated, case, run): name(case, run) for case, run in missing}
        for done, future in enumerate(as_completed(waiting), 1):
            results.add(waiting[future], future.result())
            print(f"\r{done} of {len(missing)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def name(case: Case, run: str) -> str:
    return f"{run}: {case}"


def table(every: list[Case], found: Mapping[str, Mapping[str, float]]) -> Iterator[Row]:
    """The ratios: their mean, and the worst, with the case that has it."""
    for mine, theirs, said in (
        ("blend", "max-min", "policy: blend over max-min, same rounds"),
        ("max-min", "published max-min", "rounds: max-min over published max-min"),
        ("blend", "published max-min", "both: blend over published max-min"),
    ):
        for measure in MEASURES:
            ratio = np.array([found[name(c, mine)][measure] / found[name(c, theirs)][measure] for c in every])
            yield Row(f"{said}: {measure}, mean", float(ratio.mean()), "x")
            worst = int(ratio.argmax())
            most = AT_MOST.get(measure, np.inf) if (mine, theirs) == ("blend", "max-min") else np.inf
            bar, kept = (f"<= {most:g}", bool((ratio <= most).all())) if np.isfinite(most) else ("", None)
            yield Row(f"{said}: {measure}, worst ({every[worst]})", float(ratio[worst]), "x", bar, kept)
            if kept is False:
                yield Row(f"{said}: {measure}, cases above {most:g}", float((ratio > most).sum()), f"of {len(every)}")


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--set", choices=("training", "held-out", "wide"), default="held-out")
    arguments.add_argument("--seeds", type=int, default=3, help="seeds of each cluster, kind and load")
    arguments.add_argument("--jobs", type=int, default=150)
    arguments.add_argument("--processes", type=int, default=2)
    arguments.add_argument("--results", type=Path, default=Path("build/schedule_tails.json"))
    arguments.add_argument("--rerun", action="store_true", help="forget what was simulated before")
    given = arguments.parse_args()
    every = wide(given.jobs) if given.set == "wide" else cases(given.set == "held-out", given.seeds, given.jobs)
    results = Results(given.results, rerun=given.rerun)
    play(every, results, given.processes)
    rows = list(table(every, results.found))
    return report(f"Tails of cluster scheduling, {given.set}, {len(every)} cases", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
