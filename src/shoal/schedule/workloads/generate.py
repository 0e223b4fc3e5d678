"""Seeded workloads with the distributions of the papers.

`gavel_jobs` draws exactly what Gavel's own generator draws for a seed (so that its tables can be reproduced): durations
on the reference type of 10^U(1.5, 3) minutes for 80 % of jobs and 10^U(3, 4) for the others; gangs of 1, 2, 4 and 8 for
70, 10, 15 and 5 %; Poisson arrivals; all of Python's generator, seeded with `seed` + 2 and + 3 (arrivals).
`philly_jobs` draws a workload like that of Microsoft's Philly cluster: many short jobs, a tail of days, and arrivals
that follow the day.
"""

from __future__ import annotations

import math
import random

import numpy as np

from shoal.core import Invalid, Tenant
from shoal.schedule.types import Array
from shoal.schedule.workloads.types import Throughputs, Workload

GAVEL_KINDS = (
    *((f"ResNet-18 (batch size {size})", True) for size in (16, 32, 64, 128, 256)),
    *((f"ResNet-50 (batch size {size})", True) for size in (16, 32, 64, 128)),
    *((f"Transformer (batch size {size})", True) for size in (16, 32, 64, 128, 256)),
    *((f"LM (batch size {size})", True) for size in (5, 10, 20, 40, 80)),
    *((f"Recommendation (batch size {size})", False) for size in (512, 1024, 2048, 4096, 8192)),
    ("A3C", False),
    ("CycleGAN", False),
)
"""Gavel's job types in its order, and whether each is also run as a gang."""

_MINUTE_S = 60.0
TENANTS = 14
"""Virtual clusters of the Philly-like workload."""


def gavel_jobs(
    throughputs: Throughputs,
    *,
    count: int,
    per_hour: float,
    seed: int = 0,
    gangs: bool = False,
    reference: str = "v100",
) -> Workload:
    """`per_hour` jobs arrive on average, the first at once; 0 means all at once. `gangs` draws gangs of several
    accelerators."""
    _positive(count, per_hour)
    chance, gaps = random.Random(seed + 2), random.Random(seed + 3)  # noqa: S311
    column = throughputs.at([reference])[0]
    kind, arrived, steps, gang = [], [], [], []
    at = 0.0
    for _ in range(count):
        size = _gavel_gang(chance.uniform(0, 1))
        run_s = 60 * (10 ** chance.uniform(3, 4)) if chance.random() >= 0.8 else 60 * (10 ** chance.uniform(1.5, 3))
        size = size if gangs else 1
        while True:
            position = chance.choice(range(len(GAVEL_KINDS)))
            if size == 1 or GAVEL_KINDS[position][1]:
                break
        key = (GAVEL_KINDS[position][0], size)
        if key not in throughputs.keys:
            raise Invalid(f"no throughput for {key[0]!r} with a gang of {size}", where=throughputs.source)
        kind.append(position)
        gang.append(size)
        arrived.append(at)
        steps.append(run_s * float(throughputs.rate[throughputs.keys[key], column]))
        if per_hour:
            at += -math.log(1.0 - gaps.random()) / (1.0 / (3600.0 / per_hour))
    return Workload.of(
        f"gavel:seed={seed}", tuple(name for name, _ in GAVEL_KINDS), kind=np.array(kind, np.intp),
        arrived=np.array(arrived), steps=np.array(steps), gang=np.array(gang, np.intp),
    )  # fmt: skip


def _gavel_gang(drawn: float) -> int:
    if drawn >= 0.95:
        return 4 if drawn == 0.95 else 8
    return 4 if drawn > 0.8 else 2 if drawn >= 0.7 else 1


def philly_jobs(
    throughputs: Throughputs,
    *,
    count: int,
    accelerators: int,
    load: float = 0.8,
    seed: int = 0,
    reference: str = "v100",
) -> Workload:
    """`load` is the work that arrives over what `accelerators` of the reference type could do meanwhile."""
    _positive(count, load)
    rng = np.random.default_rng(seed)
    gang = rng.choice([1, 2, 4, 8], count, p=[0.83, 0.03, 0.04, 0.10])
    run_s = np.minimum(np.exp(rng.normal(np.log(13 * _MINUTE_S), 2.4, count)), 30 * 86400.0)
    run_s = np.maximum(run_s, _MINUTE_S)
    length_s = float((run_s * gang).sum()) / (accelerators * load)
    arrived = _daily(rng, count, length_s)
    column = throughputs.at([reference])[0]
    names = tuple(name for name, _ in GAVEL_KINDS)
    kind = np.where(gang == 1, rng.integers(len(names), size=count), rng.integers(19, size=count))
    rows = np.array([throughputs.keys.get((names[at], int(size)), -1) for at, size in zip(kind, gang, strict=True)])
    rate = throughputs.rate[rows, column]
    if (rows < 0).any() or not (rate > 0.0).all():
        raise Invalid("it does not have all of Gavel's job types and gangs", where=throughputs.source)
    share = 1.0 / np.arange(1, TENANTS + 1)
    return Workload.of(
        f"philly:seed={seed}", names, kind=kind, arrived=arrived, steps=run_s * rate, gang=gang.astype(np.intp),
        tenant=rng.choice(TENANTS, count, p=share / share.sum()).astype(np.intp),
        tenants=tuple(Tenant(f"vc{at}") for at in range(TENANTS)),
    )  # fmt: skip


def _daily(rng: np.random.Generator, count: int, length_s: float) -> Array:
    """Arrival times, twice as dense at noon as at midnight: uniform ones moved along the day's cumulative rate."""
    grid = np.linspace(0.0, length_s, max(int(length_s / 600), 2))
    rate = 1.0 - np.cos(2 * np.pi * grid / 86400.0) / 3.0
    total = np.concatenate([[0.0], np.cumsum((rate[1:] + rate[:-1]) / 2 * np.diff(grid))])
    return np.interp(np.sort(rng.uniform(0.0, total[-1], count)), total, grid)


def _positive(count: int, rate: float) -> None:
    if count < 1 or not rate >= 0.0 or math.isinf(rate):
        raise Invalid(f"{count} jobs at {rate:g}", where="workload", hint="at least one job, and a rate of at least 0")
