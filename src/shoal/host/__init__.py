"""Host isolation: guaranteed workloads keep their speed while best-effort ones use what is left of memory bandwidth,
caches and cores (after Kelp, HPCA'19).

Sensors say how fast guaranteed work runs and how contended memory is, a pure policy turns such a `Snapshot` into a
`Plan` of limits on best-effort groups, and actuators make it so, each with a write-ahead log that outlives the daemon.
What a machine lacks is reported by name, and the next best sensor or actuator takes its place.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.host.actuators.pace import Pace
    from shoal.host.bench.limits import Limit, guard_process, guarded
    from shoal.host.bench.rig import Phase, Rig, unlimited
    from shoal.host.bench.trial import Compared, against_alone
    from shoal.host.native import MemoryKernel
    from shoal.host.policy import POLICIES, make_policy
    from shoal.host.types import Group, Plan, Policy, Snapshot

__all__ = [
    "POLICIES", "Compared", "Group", "Limit", "MemoryKernel", "Pace", "Phase", "Plan", "Policy", "Rig", "Snapshot",
    "against_alone", "guard_process", "guarded", "make_policy", "unlimited",
]  # fmt: skip

_FACE = {
    "Compared": "shoal.host.bench.trial",
    "Group": "shoal.host.types",
    "Limit": "shoal.host.bench.limits",
    "MemoryKernel": "shoal.host.native",
    "POLICIES": "shoal.host.policy",
    "Pace": "shoal.host.actuators.pace",
    "Phase": "shoal.host.bench.rig",
    "Plan": "shoal.host.types",
    "Policy": "shoal.host.types",
    "Rig": "shoal.host.bench.rig",
    "Snapshot": "shoal.host.types",
    "against_alone": "shoal.host.bench.trial",
    "guard_process": "shoal.host.bench.limits",
    "guarded": "shoal.host.bench.limits",
    "make_policy": "shoal.host.policy",
    "unlimited": "shoal.host.bench.rig",
}
"""Where each name is. They are imported on first use: the server looks at this component's extension at every start,
and starts without the numerical libraries."""


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_FACE[name]), name)
    return value
