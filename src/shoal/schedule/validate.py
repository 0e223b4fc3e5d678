"""Faults in a problem's values, each fault with the job and the field it is in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal.core import Invalid, ShoalError

if TYPE_CHECKING:
    from shoal.schedule.types import Problem

NAMED = 10
"""Jobs named for each kind of fault; a table that is wrong throughout need not be listed whole."""


def faults(problem: Problem) -> Iterator[ShoalError]:
    """Faults of the pools, of the jobs' values, and of the co-location and configuration tables."""
    yield from _pools(problem)
    width, jobs = len(problem.columns), len(problem.rate)
    if problem.rate.shape != (jobs, width):
        yield Invalid(f"shape {problem.rate.shape}, but the pools have {width} columns", where="rate")
        return
    if len(problem.ids) != jobs:
        yield Invalid(f"{len(problem.ids)} ids for {jobs} jobs", where="ids")
        return
    yield from _ids(problem)
    yield from _values(problem)
    yield from _tables(problem)


def _pools(problem: Problem) -> Iterator[ShoalError]:
    for name, times in Counter(column.name for column in problem.columns).items():
        if times > 1:
            yield Invalid("two pools offer this column", where=f"pool {name}", hint="give them different zones")
    for pool in problem.pools:
        if pool.count < 0 or (pool.per_node is not None and pool.per_node < 1):
            yield Invalid(f"{pool.count} accelerators, {pool.per_node} per node", where=f"pool {pool.type}")


def _ids(problem: Problem) -> Iterator[ShoalError]:
    if len(set(problem.ids)) < len(problem.ids):
        twice = [name for name, times in Counter(problem.ids).items() if times > 1]
        for name in twice[:NAMED]:
            yield Invalid("two jobs have this id", where=f"job {name}")


def _values(problem: Problem) -> Iterator[ShoalError]:
    width = len(problem.columns)
    checks: tuple[tuple[str, NDArray[Any], str], ...] = (
        ("rate", ~(np.isfinite(problem.rate) & (problem.rate >= 0)), "must be finite and not negative"),
        ("rate_std", ~(problem.rate_std >= 0), "must not be negative"),
        ("gang", problem.gang < 1, "must be at least one accelerator"),
        ("weight", ~(np.isfinite(problem.weight) & (problem.weight > 0)), "must be positive and finite"),
        ("work_left", (problem.work_left < 0) | np.isinf(problem.work_left), "must be finite and not negative"),
        ("deadline", np.isnan(problem.deadline), "must be a time"),
        ("arrived", ~np.isfinite(problem.arrived), "must be a time"),
        ("isolated_s", ~(problem.isolated_s >= 0), "must not be negative"),
        ("placed", (problem.placed < -1) | (problem.placed >= width), "is no column"),
        ("held", problem.held & (problem.placed < 0), "but it is placed nowhere"),
        ("tenant", (problem.tenant < 0) | (problem.tenant >= len(problem.tenants)), "is no tenant"),
        ("entity", (problem.entity < 0) | (problem.entity >= len(problem.entities)), "is no entity"),
    )
    for name, wrong, what in checks:
        if not wrong.any():
            continue
        rows = np.flatnonzero(wrong.any(axis=1) if wrong.ndim == 2 else wrong)
        for row in rows[:NAMED]:
            yield Invalid(f"{name} {getattr(problem, name)[row]} {what}", where=f"job {problem.ids[row]}")


def _tables(problem: Problem) -> Iterator[ShoalError]:
    width = len(problem.columns)
    if (rates := problem.pair_rate) is not None:
        if rates.shape != (len(rates), len(rates), width):
            yield Invalid(f"shape {rates.shape}, expected (kinds, kinds, {width})", where="pair_rate")
        elif len(problem.kind) and not 0 <= problem.kind.min() <= problem.kind.max() < len(rates):
            yield Invalid("a job's kind is not in the table", where="pair_rate")
        elif not (np.isfinite(rates) & (rates >= 0)).all():
            yield Invalid("co-located rates must be finite and not negative", where="pair_rate")
    if (ways := problem.configurations) is not None:
        wrong = (ways.accelerators < 1) | ~(ways.goodput >= 0) | np.isinf(ways.goodput)
        for row in ways.job[wrong][:NAMED]:
            yield Invalid("a configuration needs accelerators and a finite goodput", where=f"job {problem.ids[row]}")
        if (np.diff(ways.job) < 0).any():
            yield Invalid("configurations must be sorted by job", where="configurations")
