"""Cluster scheduling by rounds: which job runs on which kind of accelerator, for objectives that the operator picks.

After Gavel (OSDI'20): a policy turns a snapshot of jobs and pools (`Problem`) into the fractions of time that each job
should run on each type (`Allocation`), with shadow prices that say what an accelerator of each type is worth now, a
certificate of how good it is, and a reason for each job. Policies are pure, so the simulator, the tests and the live
system run the very same ones. This face is the decision; sensing throughputs and carrying an allocation out by rounds
are other files of this room.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.schedule.build import problem_of
    from shoal.schedule.errors import Infeasible, SolverFailed
    from shoal.schedule.policy import POLICIES, Entity, Policy, decide
    from shoal.schedule.solve.pop import partitioned
    from shoal.schedule.types import (
        Allocation,
        Certificate,
        Column,
        Configuration,
        Configurations,
        JobView,
        Pairs,
        Pool,
        Problem,
    )

__all__ = [
    "POLICIES", "Allocation", "Certificate", "Column", "Configuration", "Configurations", "Entity", "Infeasible",
    "JobView", "Pairs", "Policy", "Pool", "Problem", "SolverFailed", "decide", "partitioned", "problem_of",
]  # fmt: skip

_FACE = {
    "Allocation": "shoal.schedule.types",
    "Certificate": "shoal.schedule.types",
    "Column": "shoal.schedule.types",
    "Configuration": "shoal.schedule.types",
    "Configurations": "shoal.schedule.types",
    "Entity": "shoal.schedule.policy",
    "Infeasible": "shoal.schedule.errors",
    "JobView": "shoal.schedule.types",
    "POLICIES": "shoal.schedule.policy",
    "Pairs": "shoal.schedule.types",
    "Policy": "shoal.schedule.policy",
    "Pool": "shoal.schedule.types",
    "Problem": "shoal.schedule.types",
    "SolverFailed": "shoal.schedule.errors",
    "decide": "shoal.schedule.policy",
    "partitioned": "shoal.schedule.solve.pop",
    "problem_of": "shoal.schedule.build",
}
"""Where each name is. They are imported on first use: the server looks at this room's extension at every start, and
starts without the numerical libraries."""


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_FACE[name]), name)
    return value
