"""Actuators of a host: one mechanism a file, each probed, each change undone by the write-ahead log."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shoal.host.actuators.bandwidth import BandwidthAllocation
from shoal.host.actuators.base import Actuator, Unhindered
from shoal.host.actuators.chain import ActuatorChain
from shoal.host.actuators.freeze import CgroupFreeze, StopSignal
from shoal.host.actuators.placement import Affinity, Binder, CoreCount, Cpuset, OwnCpus, Placement
from shoal.host.actuators.prefetch import Prefetchers
from shoal.host.actuators.quota import Quota
from shoal.host.actuators.reconcile import Reconciler
from shoal.host.actuators.weight import CpuWeight
from shoal.host.linux.fs import LINUX, Kernel
from shoal.host.types import Domain
from shoal.host.undo.write_ahead_log import WriteAheadLog

__all__ = [
    "ActuatorChain", "Affinity", "BandwidthAllocation", "Binder", "CgroupFreeze", "CoreCount", "CpuWeight",
    "Cpuset", "Placement", "Prefetchers", "Quota", "Reconciler", "StopSignal", "Unhindered", "standard",
]  # fmt: skip


def standard(
    wal: WriteAheadLog,
    domains: Mapping[int, Domain],
    *,
    unhindered: Callable[[str], Unhindered],
    pace: Actuator | None = None,
    kernel: Kernel = LINUX,
    allow: frozenset[str] | None = None,
) -> ActuatorChain:
    """All of them, strongest first: bandwidth in hardware before pacing (`pace`) before a quota, cgroups before single
    processes. `allow` names those that may be used (all without it)."""
    cpuset, affinity = Binder(Cpuset(wal, kernel=kernel), domains), Binder(Affinity(wal, kernel=kernel), domains)
    everything: tuple[Actuator | None, ...] = (
        OwnCpus(cpuset),
        OwnCpus(affinity),
        CpuWeight(wal, kernel=kernel),
        Placement(cpuset),
        Placement(affinity),
        BandwidthAllocation(wal, unhindered=unhindered, kernel=kernel),
        pace,
        Quota(wal, unhindered=unhindered, kernel=kernel),
        Prefetchers(wal, kernel=kernel),
        CoreCount(cpuset),
        CoreCount(affinity),
        CgroupFreeze(wal, kernel=kernel),
        StopSignal(wal),
    )
    return ActuatorChain([one for one in everything if one is not None and (allow is None or one.name in allow)])
