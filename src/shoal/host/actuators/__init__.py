"""What a host lets itself be told: one mechanism a file, each probed, each change undone by the undo log."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shoal.host.actuators.bandwidth import BandwidthAllocation
from shoal.host.actuators.base import Actuator, Unhindered
from shoal.host.actuators.evict import Eviction
from shoal.host.actuators.freeze import CgroupFreeze, StopSignal
from shoal.host.actuators.ladder import LIMITING, PLACING, Ladder, Turned
from shoal.host.actuators.placement import Affinity, Binder, CoreCount, Cpuset, OwnCpus, Placement
from shoal.host.actuators.prefetch import Prefetchers
from shoal.host.actuators.quota import Quota
from shoal.host.actuators.reconcile import InForce, Reconciler
from shoal.host.actuators.weight import CpuWeight
from shoal.host.fs import LINUX, Kernel
from shoal.host.types import Domain
from shoal.host.undo import UndoLog

__all__ = [
    "LIMITING", "PLACING", "Actuator", "Affinity", "BandwidthAllocation", "Binder", "CgroupFreeze",
    "CoreCount", "CpuWeight", "Cpuset", "Eviction", "InForce", "Ladder", "OwnCpus", "Placement", "Prefetchers", "Quota",
    "Reconciler", "StopSignal", "Turned", "Unhindered", "standard",
]  # fmt: skip


def standard(
    undo: UndoLog,
    domains: Mapping[int, Domain],
    *,
    unhindered: Callable[[str], Unhindered],
    pace: Actuator | None = None,
    evict: Callable[[str], None] | None = None,
    kernel: Kernel = LINUX,
    allow: frozenset[str] | None = None,
) -> Ladder:
    """All of them, strongest first: bandwidth in hardware before pacing (`pace`) before a quota, cgroups before single
    processes. `allow` names those that may be used (all without it)."""
    cpuset, affinity = Binder(Cpuset(undo, kernel=kernel), domains), Binder(Affinity(undo, kernel=kernel), domains)
    everything: tuple[Actuator | None, ...] = (
        OwnCpus(cpuset),
        OwnCpus(affinity),
        CpuWeight(undo, kernel=kernel),
        Placement(cpuset),
        Placement(affinity),
        BandwidthAllocation(undo, unhindered=unhindered, kernel=kernel),
        pace,
        Quota(undo, unhindered=unhindered, kernel=kernel),
        Prefetchers(undo, kernel=kernel),
        CoreCount(cpuset),
        CoreCount(affinity),
        CgroupFreeze(undo, kernel=kernel),
        StopSignal(undo),
        Eviction(evict),
    )
    return Ladder([one for one in everything if one is not None and (allow is None or one.name in allow)])
