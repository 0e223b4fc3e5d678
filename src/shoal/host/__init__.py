"""Host isolation: guaranteed workloads keep their speed while best-effort ones use what is left of memory bandwidth,
caches and cores (after Kelp, HPCA'19).

Sensors say how fast guaranteed work runs and how contended memory is, a pure policy turns such a `Snapshot` into a
`Plan` of limits on best-effort groups, and actuators make it so, each with a write-ahead log that outlives the daemon.
What a machine lacks is reported by name, and the next best sensor or actuator takes its place.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.host.actuators.pace import Pace
    from shoal.host.bench.limits import Limit, guard_process, guarded
    from shoal.host.bench.rig import Phase, Rig, unlimited
    from shoal.host.bench.trial import Compared, against_alone
    from shoal.host.linux.native import MemoryKernel
    from shoal.host.policy import POLICIES, make_policy
    from shoal.host.types import Group, Plan, Policy, Snapshot

__all__ = [
    "POLICIES", "Compared", "Group", "Limit", "MemoryKernel", "Pace", "Phase", "Plan", "Policy", "Rig", "Snapshot",
    "against_alone", "guard_process", "guarded", "make_policy", "unlimited",
]  # fmt: skip

__getattr__ = on_first_use(globals(), {
    "actuators.pace": "Pace",
    "bench.limits": "Limit guard_process guarded",
    "bench.rig": "Phase Rig unlimited",
    "bench.trial": "Compared against_alone",
    "linux.native": "MemoryKernel",
    "policy": "POLICIES make_policy",
    "types": "Group Plan Policy Snapshot",
})  # fmt: skip
