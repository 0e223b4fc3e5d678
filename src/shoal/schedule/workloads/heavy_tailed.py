"""Seeded workloads with heavy tails: a few jobs that are most of the work, and many that come at once.

What schedulers meet in use and tables of papers leave out: durations whose longest are hundreds of times the median,
sweeps that submit dozens of equal jobs at a time, gangs. Each of the three can be set apart from the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from shoal.core import Invalid
from shoal.schedule.choices import Durations
from shoal.schedule.types import Array, Index
from shoal.schedule.workloads.generate import GAVEL_KINDS
from shoal.schedule.workloads.types import Throughputs, Workload

GANG_MIX: Mapping[int, float] = {1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05}
"""The part of jobs with each number of accelerators, as in Gavel."""

LONGEST = 1000.0
"""No job takes longer than this number of medians: of a tail without a mean one job would be all of the work."""


def heavy_tailed_jobs(
    throughputs: Throughputs,
    *,
    count: int,
    accelerators: float,
    load: float = 0.8,
    seed: int = 0,
    durations: Durations = Durations.LOGNORMAL,
    tail: float = 2.0,
    median_s: float = 1800.0,
    burst: float = 1.0,
    gangs: Mapping[int, float] = GANG_MIX,
    reference: str = "v100",
) -> Workload:
    """Durations on the reference type have this median, and their logarithms the standard deviation `tail` (of a Pareto
    distribution it is one over the exponent). `burst` jobs on average, of one kind and gang, come at a time (their
    number is geometric), and bursts come by a Poisson process, at the rate at which the work that arrives is `load` of
    what `accelerators` of the reference type can do; with a load of 0 all come at once. `gangs` has the part of jobs
    of each size."""
    _check(count, accelerators, load, tail, median_s, burst, gangs)
    rng = np.random.default_rng(seed)
    column = throughputs.at([reference])[0]
    begins = np.append(True, rng.random(count - 1) < 1.0 / burst)
    sweep, sweeps = np.cumsum(begins) - 1, int(begins.sum())
    sizes = np.array(sorted(gangs), np.intp)
    part = np.array([gangs[int(size)] for size in sizes], np.float64)
    size = rng.choice(sizes, sweeps, p=part / part.sum())
    kind = _kinds(rng, size, throughputs, column)
    run_s = median_s * _relative(rng, durations, tail, count)
    length_s = float((run_s * size[sweep]).sum()) / (accelerators * load) if load else 0.0
    began = np.sort(rng.uniform(0.0, length_s, sweeps))
    names = tuple(name for name, _ in GAVEL_KINDS)
    rows = [throughputs.keys[names[at], int(gang)] for at, gang in zip(kind, size, strict=True)]
    return Workload.of(
        f"heavy-tailed:seed={seed}", names, kind=kind[sweep], arrived=(began - began[0])[sweep],
        steps=run_s * throughputs.rate[rows, column][sweep], gang=size[sweep],
    )  # fmt: skip


def _relative(rng: np.random.Generator, durations: Durations, tail: float, count: int) -> Array:
    """(count,) durations over their median."""
    if durations is Durations.LOGNORMAL:
        drawn = np.exp(tail * rng.standard_normal(count))
    else:
        drawn = np.exp(tail * (rng.standard_exponential(count) - math.log(2.0)))
    relative: Array = np.clip(drawn, 1.0 / LONGEST, LONGEST)
    return relative


def _kinds(rng: np.random.Generator, size: Index, throughputs: Throughputs, column: int) -> Index:
    """(k,) a kind for each gang, of those that are known with as many."""
    found = np.zeros(len(size), np.intp)
    for gang in np.unique(size).tolist():
        able = [
            at
            for at, (name, _) in enumerate(GAVEL_KINDS)
            if (row := throughputs.keys.get((name, gang))) is not None and throughputs.rate[row, column] > 0.0
        ]
        if not able:
            raise Invalid(f"no kind of job has a throughput with a gang of {gang}", where=throughputs.source,
                          hint="leave this size out of the mix")  # fmt: skip
        mine = size == gang
        found[mine] = rng.choice(able, int(mine.sum()))
    return found


def _check(
    count: int, accelerators: float, load: float, tail: float, median_s: float, burst: float, gangs: Mapping[int, float]
) -> None:
    for name, value, least in (
        ("count", count, 1), ("accelerators", accelerators, 1e-9), ("load", load, 0.0), ("tail", tail, 0.0),
        ("median", median_s, 1e-9), ("burst", burst, 1.0),
    ):  # fmt: skip
        if not least <= value < math.inf:
            raise Invalid(f"{name} {value:g}", where="workload", hint=f"at least {least:g}, and finite")
    parts = list(gangs.values())
    if not parts or min(gangs) < 1 or not min(parts) >= 0.0 or not 0.0 < sum(parts) < math.inf:
        mix = ", ".join(f"{size}={part:g}" for size, part in gangs.items())
        raise Invalid(f"the gangs {mix or 'of none'}", where="workload", hint="parts of each size, as in 1=0.7, 8=0.3")
