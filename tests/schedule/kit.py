"""Small traces and tables for the simulator's tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from shoal.schedule import Configurations, Pool, Problem
from shoal.schedule.rounds import WINDOW, State
from shoal.schedule.simulate import Cluster, cluster_of
from shoal.schedule.workloads import Throughputs, Workload
from shoal.schedule.workloads.generate import GAVEL_KINDS

KINDS = ("alpha", "beta", "gamma")
SPEEDS = {"fast": (10.0, 8.0, 4.0), "slow": (5.0, 2.0, 4.0)}
"""Steps per second of the kinds alone."""


def table(gangs: tuple[int, ...] = (1, 2), keep: float = 0.8) -> dict[str, Any]:
    """Gavel's JSON: a gang is as fast as its accelerators together, and a pair keeps `keep` of each."""
    return {
        name: {
            f"('{kind}', {gang})": {
                "null": rates[at] * gang,
                **{
                    f"('{other}', {gang})": [rates[at] * gang * keep, rates[KINDS.index(other)] * gang * keep]
                    for other in KINDS
                },
            }
            for at, kind in enumerate(KINDS)
            for gang in gangs
        }
        for name, rates in SPEEDS.items()
    }


def write_table(folder: Path, found: dict[str, Any] | None = None) -> Path:
    path = folder / "speeds.json"
    path.write_text(json.dumps(found or table(), indent=1))
    return path


def line(
    kind: str = "alpha", steps: float = 1000, gang: int = 1, weight: float = 1, slo: float = -1, at: float = 0
) -> str:
    return f"{kind}\tpython3 x.py\t.\t--steps\t1\t{steps}\t{gang}\t{weight}\t{slo}\t{at}"


def write_trace(folder: Path, *lines: str, name: str = "jobs.trace") -> Path:
    path = folder / name
    path.write_text("".join(f"{each}\n" for each in lines))
    return path


def workload(steps: list[float], **given: Any) -> Workload:
    """Jobs of kind `alpha`, unless told."""
    count = len(steps)
    columns = {
        "kind": np.zeros(count, np.intp), "arrived": np.zeros(count), "gang": np.ones(count, np.intp),
        "weight": np.ones(count), "deadline": np.full(count, np.inf), "tenant": np.zeros(count, np.intp),
    }  # fmt: skip
    for name, value in given.items():
        columns[name] = np.asarray(value, columns[name].dtype)
    return Workload(
        source="test", ids=[str(at) for at in range(count)], kinds=KINDS, steps=np.array(steps, np.float64),
        line=np.arange(1, count + 1), **columns,
    )  # fmt: skip


def throughputs(gangs: tuple[int, ...] = (1, 2, 4)) -> Throughputs:
    keys = {(kind, gang): at for at, (kind, gang) in enumerate((k, g) for k in KINDS for g in gangs)}
    rate = np.array([[SPEEDS[t][KINDS.index(kind)] * gang for t in SPEEDS] for kind, gang in keys])
    pair = np.repeat((rate * 0.8)[:, None, :], len(keys), axis=1)
    return Throughputs("speeds", tuple(SPEEDS), keys, rate, pair)


def cluster(steps: list[float], *, fast: int = 1, slow: int = 0, **given: Any) -> Cluster:
    pools = [Pool(name, count) for name, count in (("fast", fast), ("slow", slow)) if count]
    options = {name: given.pop(name) for name in ("space_sharing", "elastic", "prices") if name in given}
    return cluster_of(workload(steps, **given), pools, throughputs(), **options)


def overloaded(seed: int, *, elastic: bool = False) -> Cluster:
    """Many jobs of all sizes and lengths on few accelerators."""
    chance = np.random.default_rng(seed)
    jobs, fast, slow = (int(chance.integers(*bounds)) for bounds in ((4, 13), (1, 5), (0, 5)))
    gang = chance.choice([size for size in (1, 2, 4) if size <= max(fast, slow)], jobs)
    steps = 10.0 ** chance.uniform(4.0, 5.5, jobs) * gang
    arrived = np.sort(chance.uniform(0.0, 1.0, jobs)) * chance.choice([0.0, 5000.0, 40_000.0])
    arrived[0] = 0.0
    kind = chance.integers(0, 3, jobs)
    return cluster(list(steps), fast=fast, slow=slow, gang=gang, arrived=arrived, kind=kind, elastic=elastic)


def gavel_table(seed: int = 0) -> Throughputs:
    """Speeds for all of Gavel's kinds, made up."""
    chance = np.random.default_rng(seed)
    keys = {}
    for kind, gangs in GAVEL_KINDS:
        for gang in (1, 2, 4, 8) if gangs else (1,):
            keys[kind, gang] = len(keys)
    base = {kind: chance.uniform(0.5, 30.0) * np.array([1.0, *chance.uniform(0.1, 0.9, 2)]) for kind, _ in GAVEL_KINDS}
    rate = np.array([base[kind] * gang * 0.9 ** (gang > 1) for kind, gang in keys])
    pair = np.repeat((rate * 0.6)[:, None, :], len(keys), axis=1)
    return Throughputs("made up", ("v100", "p100", "k80"), keys, rate, pair)


def remembered(columns: str, jobs: dict[str, dict[str, Any]], *, number: int = 3, settled: float = 0.0) -> State:
    """What rounds remember of these jobs: fields of `State`, zero or nowhere where nothing is said."""
    count, names = len(jobs), tuple(columns)

    def by_column(field: str) -> np.ndarray:
        return np.array([[job.get(field, {}).get(name, 0.0) for name in names] for job in jobs.values()])

    at = [names.index(job["column"]) if "column" in job else -1 for job in jobs.values()]
    since, ran = ([job.get(field, 0) for job in jobs.values()] for field in ("since", "ran"))
    none = np.zeros((count, WINDOW))
    return State(
        number, settled, tuple(jobs), names, share=by_column("share"), deficit_s=by_column("deficit_s"),
        column=np.array(at, np.intp), since=np.array(since, np.float64), ran=np.array(ran, np.bool_),
        worked_s=np.zeros(count), arrived=np.zeros(count), promised_s=none, received_s=none,
        why=np.full((count, WINDOW), -1, np.int8),
    )  # fmt: skip


def taken(problem: Problem, jobs: np.ndarray) -> Problem:
    """The problem of some jobs (indices or a mask)."""
    at = np.flatnonzero(jobs) if jobs.dtype == np.bool_ else jobs
    ways, ids = problem.configurations, [problem.ids[int(row)] for row in at]
    if ways is not None:
        order = np.full(problem.jobs, -1, np.intp)
        order[at] = np.arange(len(at))
        keep = np.flatnonzero(order[ways.job] >= 0)
        keep = keep[np.argsort(order[ways.job[keep]], kind="stable")]
        ways = Configurations(order[ways.job[keep]], ways.column[keep], ways.accelerators[keep], ways.goodput[keep])
    return problem.rows(at, ids=ids, configurations=ways)
