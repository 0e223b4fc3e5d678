"""Policies against each other on this machine: an input pipeline beside a neighbour that floods memory.

One window for each policy, with the pipeline alone before and after it. Whether the two CPUs share a memory domain is
measured meanwhile: where they do not there is next to no contention to guard against.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shoal.core import Unavailable
from shoal.host.bench.limits import guarded
from shoal.host.bench.rig import Phase, Rig
from shoal.host.bench.trial import against_alone
from shoal.host.linux import topology
from shoal.host.linux.native import MemoryKernel

_SETTLE_S, _QUIET_S = 1.0, 0.6


@dataclass(frozen=True, slots=True)
class Measured:
    """One policy's window. `speed`, `p50` and `p99` are of the pipeline against alone, by its CPU time; `same_domain`
    is None if the CPUs moved meanwhile or it could not be told; `guard_cpu` is CPUs that the guard kept busy. `flaw` is
    why the window says nothing of the policy; empty if it does."""

    policy: str
    speed: float
    p50: float
    p99: float
    units: int
    flood_bytes_per_s: float
    same_domain: bool | None
    guard_cpu: float
    seconds: float
    flaw: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"simulated": False}


def choose_cpus() -> tuple[int, int]:
    """Two CPUs of one memory domain if there are, else any two. Raises Unavailable on a machine with one."""
    ours = os.sched_getaffinity(0)
    for home in topology.here().domains:
        near = sorted(home.cpus & ours)
        if len(near) > 1:
            return near[0], near[1]
    if len(ours) < 2:
        raise Unavailable("a neighbour needs a second CPU, and this process may run on one only")
    first, second, *_ = sorted(ours)
    return first, second


def measure(policies: Sequence[str], *, seconds: float = 5.0) -> Iterator[Measured]:
    """One window for each policy. Raises Unavailable where the native part is not built or a second CPU is missing."""
    cpu, neighbour_cpu = choose_cpus()
    with Rig(cpu=cpu, neighbour_cpu=neighbour_cpu) as rig:
        for policy in policies:
            found = against_alone(
                rig, [Phase((MemoryKernel.NT_STORE,), seconds)], limit=guarded(rig.feed, policy),
                settle_s=_SETTLE_S, quiet_s=_QUIET_S,
            )  # fmt: skip
            if found is None:
                raise Unavailable("the pipeline did no work: the machine is too busy to measure on")
            yield Measured(
                policy, found.speed, found.p50, found.p99, found.steps, found.bytes_per_s, found.same, found.limiting,
                found.seconds, found.flaw,
            )  # fmt: skip
