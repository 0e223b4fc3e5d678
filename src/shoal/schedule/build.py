"""A problem from job views: the way in for jobs one by one (the control plane, a trace, a test)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from shoal.core import Invalid, Tenant
from shoal.schedule.types import Array, Column, Configurations, JobView, Pool, Problem, columns_of

Colocated = Mapping[tuple[str, str], Mapping[str, tuple[float, float]]]


def problem_of(
    jobs: Iterable[JobView],
    pools: Sequence[Pool],
    *,
    now: float = 0.0,
    tenants: Sequence[Tenant] = (),
    colocated: Colocated | None = None,
) -> Problem:
    """`colocated[kind, other][type]` is the pair of rates that the two kinds have beside each other on that type.
    Tenants that only jobs name get weight one and no quota. Raises `Invalid` as `Problem` does."""
    views = list(jobs)
    known = {tenant.name: tenant for tenant in tenants}
    for view in views:
        known.setdefault(view.tenant, Tenant(view.tenant))
    tenant_at = {name: at for at, name in enumerate(known)}
    entity_at = {name: at for at, name in enumerate(dict.fromkeys(v.entity or v.tenant for v in views))}
    kind_at = {name: at for at, name in enumerate(dict.fromkeys(_kinds(views, colocated)))}
    columns = columns_of(pools)
    rate, std = np.zeros((len(views), len(columns))), np.zeros((len(views), len(columns)))
    for row, view in enumerate(views):
        for at, column in enumerate(columns):
            if (measured := view.throughput.get(column.key)) is not None:
                rate[row, at], std[row, at] = measured.per_s, measured.std_per_s
    placed = [_placed(view, columns) for view in views]
    return Problem.columnar(
        pools,
        rate,
        rate_std=std,
        now=now,
        ids=[v.id for v in views],
        gang=[v.gang for v in views],
        weight=[v.weight for v in views],
        work_left=[np.nan if v.work_left is None else v.work_left for v in views],
        deadline=[np.inf if v.deadline is None else v.deadline for v in views],
        arrived=[v.arrived for v in views],
        ran_s=[v.ran_s for v in views],
        isolated_s=[max(now - v.arrived, 0.0) if v.isolated_s is None else v.isolated_s for v in views],
        placed=placed,
        held=[at >= 0 and v.placed_s < v.min_run_s for v, at in zip(views, placed, strict=True)],
        restarts=[v.restarts for v in views],
        tenant=[tenant_at[v.tenant] for v in views],
        entity=[entity_at[v.entity or v.tenant] for v in views],
        kind=[kind_at[v.kind or ""] for v in views],
        tenants=tuple(known.values()) or (Tenant("default"),),
        entities=tuple(entity_at) or ("default",),
        pair_rate=None if colocated is None else _pair_rates(colocated, kind_at, columns),
        configurations=_configurations(views, columns),
    )


def _kinds(views: Sequence[JobView], colocated: Colocated | None) -> Iterable[str]:
    for pair in colocated or {}:
        yield from pair
    for view in views:
        yield view.kind or ""


def _placed(view: JobView, columns: tuple[Column, ...]) -> int:
    if view.placed is None:
        return -1
    for at, column in enumerate(columns):
        if column.name == view.placed:
            return at
    raise Invalid(f"placed on {view.placed!r}, which no pool offers", where=f"job {view.id}")


def _pair_rates(colocated: Colocated, kind_at: Mapping[str, int], columns: tuple[Column, ...]) -> Array:
    rates = np.zeros((len(kind_at), len(kind_at), len(columns)))
    for (kind, other), by_type in colocated.items():
        for at, column in enumerate(columns):
            if column.key in by_type:
                rates[kind_at[kind], kind_at[other], at], rates[kind_at[other], kind_at[kind], at] = by_type[column.key]
    return rates


def _configurations(views: Sequence[JobView], columns: tuple[Column, ...]) -> Configurations | None:
    found = [
        (row, at, each.accelerators, each.goodput.per_s)
        for row, view in enumerate(views)
        for each in view.elastic
        for at, column in enumerate(columns)
        if column.key == each.type
    ]
    if not found:
        return None
    job, column, accelerators, goodput = (np.array(part) for part in zip(*found, strict=True))
    return Configurations(job, column, accelerators, goodput)
