"""Tenants that train: each epoch reads the whole data set once, in a new order, while the accelerator works on what was
read before. What is not cached comes over one link that they share."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shoal.cache.baselines import LeastRecentlyUsed
from shoal.cache.policy import POLICIES, Mode, Problem, decide
from shoal.core import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.cache.policy.problem import Array

AHEAD = 8
"""Items that a data loader has fetched or asked for before they are needed."""


@dataclass(frozen=True, slots=True)
class Job:
    """A tenant's training: the data set, and the MB a second that its accelerator takes."""

    data: str
    mb_per_s: float


@dataclass(frozen=True, slots=True)
class Trained:
    """By tenant (N,): the part of the time that the accelerator waited for data, and the MB it worked on; and the MB
    that came over the link."""

    stall: Array
    done: Array
    loaded: float


def train(
    items: dict[str, int], jobs: Sequence[Job], *, policy: str, capacity: float, link: float, horizon_s: float,
    item_mb: float = 1.0, seed: int = 0,
) -> Trained:  # fmt: skip
    """`items`: how many each data set has; `link` in MB a second, `capacity` in MB. Policies: those of the live loop
    keep a fixed part of each set; `lru` keeps what was read last."""
    names = sorted({job.data for job in jobs})
    first = dict(zip(names, np.cumsum([0, *(items[name] for name in names[:-1])]).tolist(), strict=True))
    total = sum(items[name] for name in names)
    keep = np.zeros(total, bool)
    follows = LeastRecentlyUsed(np.full(total, item_mb), capacity) if policy == "lru" else None
    if follows is None:
        for name, part in _parts(items, jobs, names, policy, capacity, item_mb).items():
            keep[first[name] : first[name] + int(part * items[name])] = True
    chance = np.random.default_rng(seed)
    orders = [chance.permutation(items[job.data]) for job in jobs]
    at, free_at, stall, done = [0] * len(jobs), 0.0, np.zeros(len(jobs)), np.zeros(len(jobs))
    busy_until, loaded, held = [0.0] * len(jobs), 0.0, np.zeros(total, bool)
    queue = [(0.0, tenant) for tenant in range(len(jobs))]
    while queue:
        now, tenant = heapq.heappop(queue)
        if now > horizon_s:
            continue
        job = jobs[tenant]
        item = first[job.data] + int(orders[tenant][at[tenant]])
        at[tenant] += 1
        if at[tenant] == items[job.data]:
            orders[tenant], at[tenant] = chance.permutation(items[job.data]), 0
        there = follows.read(tenant, item) if follows is not None else bool(held[item])
        ready = now
        if not there:
            ready = free_at = max(now, free_at) + item_mb / link
            loaded += item_mb
            held[item] = keep[item]
        stall[tenant] += max(0.0, ready - busy_until[tenant])
        work_s = item_mb / job.mb_per_s
        busy_until[tenant] = max(busy_until[tenant], ready) + work_s
        done[tenant] += item_mb
        heapq.heappush(queue, (max(now, busy_until[tenant] - AHEAD * work_s), tenant))
    return Trained(stall / horizon_s, done, loaded)


def _parts(
    items: dict[str, int], jobs: Sequence[Job], names: Sequence[str], policy: str, capacity: float, item_mb: float
) -> dict[str, float]:
    if policy not in POLICIES:
        raise Invalid(f"there is no policy {policy!r} for training", where="--policy", hint="pf, mmf or lru")
    benefit = np.array([[job.mb_per_s * (job.data == name) for name in names] for job in jobs])
    size = np.array([items[name] * item_mb for name in names])
    problem = Problem.of(Mode.FRACTION, capacity, size, benefit)
    return dict(zip(names, decide(problem, POLICIES[policy]).allocation.fractions.tolist(), strict=True))
