"""How long a scheduling decision takes, exact and certified, against a general solver in the same run.

    python benchmarks/schedule_solve.py [--json] [--repeats 5] [--baseline-jobs 4096] [--quick]

max-min        m jobs that are all different x 4 types, gangs of 1, 2, 4 and 8: the whole decision (water filling), from
               arrays to allocation, with its certificate; then one million jobs of 1,000 kinds
space sharing  2,048 jobs of 26 kinds, three types, gangs of 1 to 8, any two of which may run beside each other
hierarchical   1,024 jobs of 32 entities, half of which serve first come first served
level          the linear program of max-min alone (the first level, as Gavel's max_min_fairness.py solves), by prices
               and by HiGHS through `scipy.optimize.linprog`, with every pair as a variable where they may share. HiGHS
               only runs on sizes where it ends in reasonable time, with few accelerators, so that they limit the level
               and not somebody's time; both must find the same optimum.

All in one thread, in CPU seconds, median of the repeats. Each is a fresh problem, so that nothing is warm but code.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import Row, median, parser, report
from scipy import sparse
from scipy.optimize import linprog

from shoal.schedule import Allocation, Pool, Problem, decide
from shoal.schedule.policy.hierarchical import Entity

EXACT = 1e-6
"""Relative gap between the value reached and the bound proven, below which an optimum counts as found."""

KINDS = 26
"""Models with batch sizes, as many as in Gavel's measurements."""


def different(jobs: int, seed: int, *, per_type: float = 0.25) -> Problem:
    """All jobs different, as many accelerators as jobs unless told, ten kinds of weight."""
    chance = np.random.default_rng(seed)
    return Problem.columnar(
        [Pool(f"t{at}", int(per_type * jobs)) for at in range(4)],
        chance.uniform(0.5, 5.0, (jobs, 1)) * chance.uniform(0.2, 4.0, (jobs, 4)),
        gang=chance.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05]),
        weight=chance.integers(1, 11, jobs).astype(np.float64),
    )


def scarce(jobs: int, seed: int) -> Problem:
    """So few accelerators that they, and not somebody's time, limit the first level."""
    return different(jobs, seed, per_type=1 / 32)


def alike(jobs: int, kinds: int, seed: int) -> Problem:
    """Jobs of so many kinds, each with its rates, gang and weight."""
    chance = np.random.default_rng(seed)
    one = different(kinds, seed)
    of = chance.integers(0, kinds, jobs)
    pools = [Pool(pool.type, jobs // 4) for pool in one.pools]
    return Problem.columnar(pools, one.rate[of], gang=one.gang[of], weight=one.weight[of])


def sharing(jobs: int, seed: int) -> Problem:
    """Jobs that may run beside another one of the same gang size: kinds that keep a fifth to all of their rate beside
    each other, each pair in its own way on each of three types."""
    chance = np.random.default_rng(seed)
    rate = np.exp(chance.normal(1.0, 1.0, (KINDS, 1))) * np.cumprod(chance.uniform(1.0, 4.0, (KINDS, 3)), axis=1)
    kind = chance.integers(0, KINDS, jobs)
    return Problem.columnar(
        [Pool(name, int(0.15 * jobs)) for name in ("k80", "p100", "v100")],
        rate[kind],
        gang=chance.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05]),
        weight=chance.choice([1.0, 2.0, 5.0], jobs),
        kind=kind,
        pair_rate=chance.uniform(0.2, 1.0, (KINDS, KINDS, 3)) * rate[:, None, :],
    )


def departments(jobs: int, seed: int, *, count: int = 32) -> tuple[Problem, dict[str, Entity]]:
    chance = np.random.default_rng(seed)
    one = different(jobs, seed)
    names = tuple(f"department-{at}" for at in range(count))
    problem = Problem.columnar(
        one.pools, one.rate, gang=one.gang, weight=one.weight, entity=chance.integers(0, count, jobs),
        entities=names, now=1e6, arrived=chance.uniform(0.0, 1e6, jobs),
    )  # fmt: skip
    return problem, {name: Entity(1.0 + at % 3, first_come=at % 2 == 1) for at, name in enumerate(names)}


def highs_level(problem: Problem, *, pairs: bool) -> float:
    """Max-min's first level as one linear program with a variable for each job (or pair) and type, as Gavel has it."""
    rate, gang, jobs = problem.rate, problem.gang.astype(np.float64), problem.jobs
    first = second = np.arange(jobs)
    if pairs:
        one, other = np.nonzero(np.triu(gang[:, None] == gang, 1))
        first, second = np.concatenate([first, one]), np.concatenate([second, other])
    both = first != second
    kind, width, groups = problem.kind, len(problem.pools), len(first)
    unit = problem.weight * (rate @ problem.counts) / problem.counts.sum() / gang
    column, at = np.repeat(np.arange(width), groups), np.tile(np.arange(groups), width)
    every = np.arange(len(at))
    alone = rate[first[at], column]
    beside, back = alone, np.zeros_like(alone)
    if pairs:
        assert problem.pair_rate is not None
        beside = np.where(both[at], problem.pair_rate[kind[first[at]], kind[second[at]], column], alone)
        back = problem.pair_rate[kind[second[at]], kind[first[at]], column]
    mine = both[at]
    row = np.concatenate([first[at], second[at[mine]]])
    where = np.concatenate([every, every[mine]])
    shape = (jobs, len(at))
    time_used = sparse.csr_matrix((np.ones(len(row)), (row, where)), shape=shape)
    made = np.concatenate([beside / unit[first[at]], back[mine] / unit[second[at[mine]]]])
    rates = sparse.csr_matrix((-made, (row, where)), shape=shape)
    used = sparse.csr_matrix((gang[first[at]], (column, every)), shape=(width, len(at)))
    matrix = sparse.vstack([used, time_used, rates], format="csc")
    level = sparse.csc_matrix(np.concatenate([np.zeros(width + jobs), np.ones(jobs)])[:, None])
    limits = np.concatenate([problem.counts, np.ones(jobs), np.zeros(jobs)])
    gain = np.append(np.zeros(len(at)), -1.0)
    found = linprog(gain, A_ub=sparse.hstack([matrix, level], format="csc"), b_ub=limits, method="highs")
    return -float(found.fun)


def timed(make: Callable[[int], Any], run: Callable[[Any], Any], repeats: int) -> tuple[float, list[Any]]:
    """Median CPU seconds of `run` on fresh problems, and the last problem with its answer."""
    took, last = [], []
    run(make(-1 % 2**32))
    for seed in range(repeats):
        given = make(seed)
        begin = time.process_time()
        answer = run(given)
        took.append(time.process_time() - begin)
        last = [given, answer]
    return median(took), last


def gap(found: Allocation) -> float:
    assert found.certificate is not None
    return found.certificate.gap


def certified(label: str, seconds: float, found: Allocation, reach_s: float, within: float = EXACT) -> list[Row]:
    proven = gap(found) <= within
    return [
        Row(label, seconds * 1e3, "ms", f"{reach_s * 1e3:g} ms", ok=seconds <= reach_s),
        Row("  proven gap", gap(found), "", f"{within:g}", ok=proven),
    ]


def against_highs(jobs: int, *, pairs: bool, seconds: float, found: Allocation) -> list[Row]:
    """HiGHS on the same problem."""
    begin = time.process_time()
    optimum = highs_level(found.problem, pairs=pairs)
    took = time.process_time() - begin
    assert found.certificate is not None
    off = abs(found.certificate.value / optimum - 1.0)
    what = "level, HiGHS, all pairs" if pairs else "level, HiGHS"
    return [
        Row(f"{what}, {jobs:,} jobs", took * 1e3, "ms"),
        Row("  whole decision by Shoal, times as fast", took / seconds, "x"),
        Row("  the two optima differ by", off, "", f"{EXACT:g}", ok=off <= EXACT),
    ]


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--baseline-jobs", type=int, default=4096, help="largest problem that HiGHS is given")
    arguments.add_argument("--quick", action="store_true", help="leave out the million jobs and the baselines")
    asked = arguments.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # read when numpy is loaded, which it is by now
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | one)
    rows: list[Row] = []

    def max_min(problem: Problem) -> Allocation:
        return decide("max-min", problem)

    def in_pairs(problem: Problem) -> Allocation:
        return decide("max-min", problem, space_sharing=True)

    def by_departments(given: tuple[Problem, dict[str, Entity]]) -> Allocation:
        return decide("hierarchical", given[0], entities=given[1])

    for jobs, reach_s in ((10_000, 0.05), (100_000, 0.5)):
        seconds, (_, found) = timed(lambda seed, jobs=jobs: different(jobs, seed), max_min, asked.repeats)
        rows += certified(f"max-min, {jobs:,} jobs, all different, 4 types", seconds, found, reach_s)
    if not asked.quick:
        seconds, (_, found) = timed(lambda seed: alike(1_000_000, 1000, seed), max_min, asked.repeats)
        rows += certified("max-min, 1,000,000 jobs of 1,000 kinds", seconds, found, 1.0)
    seconds, (_, found) = timed(lambda seed: sharing(2048, seed), in_pairs, asked.repeats)
    rows += certified("space sharing, 2,048 jobs", seconds, found, 1.0, within=1e-3)
    seconds, (_, found) = timed(lambda seed: departments(1024, seed), by_departments, asked.repeats)
    rows += certified("hierarchical, 1,024 jobs of 32 entities", seconds, found, 0.1)
    if not asked.quick:
        for jobs in (1024, asked.baseline_jobs):
            seconds, (_, found) = timed(lambda seed, jobs=jobs: scarce(jobs, seed), max_min, asked.repeats)
            rows += against_highs(jobs, pairs=False, seconds=seconds, found=found)
        seconds, (_, found) = timed(lambda seed: sharing(256, seed), in_pairs, asked.repeats)
        rows += against_highs(256, pairs=True, seconds=seconds, found=found)
    return report("Scheduling decisions, exact, CPU time in one thread", rows, as_json=asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
