"""Explanation of a job's allocation, from the allocation and its shadow prices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shoal.core import Reason
from shoal.schedule.types import Allocation

LITTLE = 1e-6
CLEARLY = 0.01


def reason_of(allocation: Allocation, job: int) -> Reason:
    """One sentence for people, and the numbers behind it.

    Codes: `held`, `fits-nowhere`, `whole` (runs all the time), `shared` (runs part of the time), `waits`.
    """
    problem = allocation.problem
    time = float(allocation.time[job])
    where = {problem.columns[at].name: round(float(part), 6) for at, part in _columns(allocation, job).items()}
    facts = {
        "policy": allocation.policy,
        "time": time,
        "columns": where,
        "beside": sorted(problem.ids[at] for at in _partners(allocation, job)),
        "throughput": float(allocation.throughput[job]),
        "gang": int(problem.gang[job]),
        "prices": {
            column.name: float(allocation.prices[column.pool]) for column in problem.columns if not column.spread
        },
        "limits": dict(allocation.limits),
    }
    if problem.held[job]:
        return Reason("held", f"stays on {_named(where)} until its minimum run time is over", facts)
    if not problem.possible[job].any():
        text = f"waits: a gang of {problem.gang[job]} fits in no pool (and quota) that it has a throughput for"
        return Reason("fits-nowhere", text, facts)
    if time >= 1.0 - LITTLE:
        return Reason("whole", f"runs all the time, on {_named(where)}", facts)
    if time > LITTLE:
        return Reason("shared", f"runs {time:.0%} of the time, on {_named(where)}: {_obstacle(allocation, job)}", facts)
    return Reason("waits", f"waits: {_obstacle(allocation, job)}", facts)


def _columns(allocation: Allocation, job: int) -> dict[int, float]:
    """The time in each column, alone or beside others."""
    total = allocation.share[job].copy()
    pairs = allocation.pairs
    mine = (pairs.first == job) | (pairs.second == job)
    np.add.at(total, pairs.column[mine], pairs.share[mine])
    return {int(at): total[at] for at in np.flatnonzero(total > LITTLE)}


def _partners(allocation: Allocation, job: int) -> set[int]:
    pairs = allocation.pairs
    return {int(at) for at in pairs.second[pairs.first == job]} | {int(at) for at in pairs.first[pairs.second == job]}


def _named(columns: Mapping[str, float]) -> str:
    if len(columns) == 1:
        return next(iter(columns))
    return " and ".join(f"{name} ({part:.0%})" for name, part in sorted(columns.items(), key=lambda each: -each[1]))


def _obstacle(allocation: Allocation, job: int) -> str:
    """What keeps the job from running more."""
    problem = allocation.problem
    quotas = [name for name, price in allocation.limits.items() if price > 0.0 and _of_tenant(name, allocation, job)]
    if quotas:
        return f"{' and '.join(quotas)} is used up"
    able = np.flatnonzero(problem.possible[job])
    names = [problem.columns[at].name for at in able]
    if allocation.certificate is None:
        return f"others come first on {', '.join(names)}"
    left = (problem.counts - allocation.usage)[problem.pool_of[able]]
    if left.max() > LITTLE * problem.counts.max():
        return f"there is room on {names[int(left.argmax())]}, but {allocation.policy} gains nothing by giving it more"
    text = f"{', '.join(names)} are used up" if len(names) > 1 else f"{names[0]} is used up"
    price, rate = allocation.prices[problem.pool_of[able]], problem.rate[job, able]
    if (price > 0.0).sum() < 2:
        return text
    best = int(np.where(price > 0.0, rate / np.where(price > 0.0, price, 1.0), 0.0).argmax())
    dearest = int(price.argmax())
    if price[dearest] / price[best] > rate[dearest] / rate[best] * (1.0 + CLEARLY):
        text += (
            f"; an hour on {names[dearest]} is worth {price[dearest] / price[best]:.2g} on {names[best]}, and it is "
            f"only {rate[dearest] / rate[best]:.2g} times as fast there"
        )
    return text


def _of_tenant(limit: str, allocation: Allocation, job: int) -> bool:
    tenant = allocation.problem.tenants[allocation.problem.tenant[job]]
    return limit.startswith(f"quota of {tenant.name}:")
