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
    from shoal.host.linux.topology import same_domain
    from shoal.host.live.process import GuardProcess
    from shoal.host.live.settings import GuardSettings
    from shoal.host.policy import POLICIES, make_policy
    from shoal.host.types import Group, Plan, Policy, Snapshot

__all__ = [
    "POLICIES", "Group", "GuardProcess", "GuardSettings", "Pace", "Plan", "Policy", "Snapshot", "make_policy",
    "same_domain",
]  # fmt: skip

__getattr__ = on_first_use(globals(), {
    "actuators.pace": "Pace",
    "live.process": "GuardProcess",
    "live.settings": "GuardSettings",
    "policy": "POLICIES make_policy",
    "linux.topology": "same_domain",
    "types": "Group Plan Policy Snapshot",
})  # fmt: skip
