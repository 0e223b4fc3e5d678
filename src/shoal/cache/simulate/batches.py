"""Batches of requests for sets that are read whole, through the policies and through caches that follow requests."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.cache.baselines import BASELINES, FairRide, LeastRecentlyUsed, Replacement
from shoal.cache.policy import POLICIES, TOLERANCE, Mode, Policy, Problem, allocate, certify, claims_of
from shoal.cache.policy.demand import MYOPIC, Outlook, problem_of
from shoal.core import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.cache.policy.problem import Array
    from shoal.cache.simulate.workloads import Workload

REPLACEMENT = ("lru", "fairride")


def policy_names() -> tuple[str, ...]:
    return (*POLICIES, *BASELINES, *REPLACEMENT)


@dataclass(frozen=True, slots=True)
class Run:
    """How a workload is run. Without `charge_loading` a load costs nothing and only the batch counts, as in ROBUS."""

    capacity: float
    charge_loading: bool = False
    outlook: Outlook = MYOPIC
    seed: int = 0
    weight: Array | None = None
    clock: Callable[[], float] = time.perf_counter


@dataclass(slots=True)
class Outcome:
    """`saved` (N,) and `loaded` in MB, the other lists by batch; see `as_json`."""

    asked: Array
    saved: Array
    loaded: float = 0.0
    smallest: list[float] = field(default_factory=list)
    broken: list[bool] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """`by_tenant`: parts of what each asked for. `min_v`: the smallest utility of a tenant in a batch over what it
        would have with the whole cache, as a mean over the batches. `jain`: Jain's index of the parts saved."""
        asked = float(self.asked.sum()) or 1.0
        by_tenant = np.divide(self.saved, self.asked, out=np.zeros_like(self.saved), where=self.asked > 0)
        square = float((by_tenant**2).sum()) * len(by_tenant)
        gaps = [gap for gap in self.gaps if np.isfinite(gap)]
        times = np.array(self.seconds or [0.0]) * 1e3
        return {
            "saved_fraction": float(self.saved.sum()) / asked, "loaded_fraction": self.loaded / asked,
            "by_tenant": by_tenant.tolist(), "min_v": float(np.mean(self.smallest or [1.0])),
            "min_v_lowest": float(min(self.smallest, default=1.0)),
            "sharing_incentive_violations": float(np.mean(self.broken or [False])),
            "max_gap": max(gaps) if gaps else None, "jain": float(by_tenant.sum()) ** 2 / square if square else 1.0,
            "ms_median": float(np.median(times)), "ms_p99": float(np.quantile(times, 0.99)),
        }  # fmt: skip


def run(workload: Workload, policy: str, settings: Run) -> Outcome:
    """Raises Invalid for a policy that there is not."""
    if policy in REPLACEMENT:
        return _followed(workload, policy, settings)
    chosen = {**POLICIES, **BASELINES}.get(policy)
    if chosen is None:
        raise Invalid(f"there is no policy {policy!r}", where="--policy", hint=f"one of {', '.join(policy_names())}")
    return _decided(workload, chosen, settings)


def _decided(workload: Workload, policy: Policy, settings: Run) -> Outcome:
    chance, outlook = np.random.default_rng(settings.seed), settings.outlook
    held = np.zeros(len(workload.size))
    average = np.zeros_like(workload.reads[0])
    found = Outcome(workload.asked, np.zeros(len(average)))
    for reads in workload.reads:
        began = settings.clock()
        problem = problem_of(
            Mode.LOTTERY, settings.capacity, workload.size, reads, average, held, outlook,
            charge_loading=settings.charge_loading, weight=settings.weight,
        )  # fmt: skip
        allocation = allocate(problem, policy, TOLERANCE)
        drawn = allocation.draw(float(chance.random())).fractions
        found.seconds.append(settings.clock() - began)
        certificate = certify(problem, allocation)
        found.smallest.append(certificate.smallest)
        found.broken.append(certificate.incentive_broken())
        found.gaps.append(certificate.gap)
        found.loaded += float(workload.size @ ((drawn > 0) & (held == 0)))
        if settings.charge_loading:
            found.saved += _saved(reads, workload.size, held > 0, drawn > 0)
        else:
            found.saved += (reads * workload.size) @ drawn
        held = drawn
        average = outlook.remember(average, reads)
    return found


def _saved(reads: Array, size: Array, before: Any, after: Any) -> Array:
    """(N,): a set that is loaded in this batch is read once from the source, and that read is shared in proportion to
    use; one that is loaded for no reader of this batch costs all tenants alike. What was held is there until the end of
    the batch."""
    count = reads.sum(0)
    new = after & ~before
    asked = new & (count > 0)
    saved: Array = (reads * size * before).sum(1)
    saved = saved + (reads * size * asked * (1.0 - 1.0 / np.maximum(count, 1.0))).sum(1)
    cost: float = float((size * (new & (count == 0))).sum()) / len(reads)
    return saved - cost


def _followed(workload: Workload, policy: str, settings: Run) -> Outcome:
    """A cache that decides at each request. The requests of a batch come in random order."""
    chance, tenants = np.random.default_rng(settings.seed), len(workload.reads[0])
    size = workload.size
    cache: Replacement = LeastRecentlyUsed(size, settings.capacity)
    if policy == "fairride":
        cache = FairRide(size, settings.capacity, tenants, chance)
    found = Outcome(workload.asked, np.zeros(tenants))
    for reads in workload.reads:
        tenant, item = np.nonzero(reads)
        counts = reads[tenant, item].astype(np.intp)
        order = np.column_stack([np.repeat(tenant, counts), np.repeat(item, counts)])
        chance.shuffle(order)
        saved = np.zeros(tenants)
        for one, other in order.tolist():
            if cache.read(one, other):
                saved[one] += size[other]
            elif size[other] <= settings.capacity:
                found.loaded += float(size[other])
        found.saved += saved
        problem = Problem.of(Mode.LOTTERY, settings.capacity, size, reads * size, weight=settings.weight)
        claims = claims_of(problem)
        scaled = saved[claims.active] / claims.alone[claims.active]
        found.smallest.append(float(scaled.min(initial=1.0)))
        found.broken.append(bool((scaled < claims.share - 2e-3).any()))
    return found
