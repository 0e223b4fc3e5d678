"""Cluster scheduling by rounds: which job runs on which kind of accelerator, for objectives that the operator picks.

After Gavel (OSDI'20): a policy turns a snapshot of jobs and pools (`Problem`) into the fractions of time that each job
should run on each type (`Allocation`), with shadow prices that say what an accelerator of each type is worth now, a
certificate of how good it is, and a reason for each job. Policies are pure, so the simulator, the tests and the live
system run the very same ones. This face is the decision; sensing throughputs and carrying an allocation out by rounds
are other files of this component.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.schedule.build import problem_of
    from shoal.schedule.errors import Infeasible, SolverFailed
    from shoal.schedule.explain import reason_of
    from shoal.schedule.policies import POLICIES, Policy, decide
    from shoal.schedule.policy.greedy import Room, by_arrival, placed
    from shoal.schedule.policy.hierarchical import Entity
    from shoal.schedule.policy.subproblem import subproblem_of
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
    "JobView", "Pairs", "Policy", "Pool", "Problem", "Room", "SolverFailed", "by_arrival", "decide", "placed",
    "problem_of", "reason_of", "subproblem_of",
]  # fmt: skip

__getattr__ = on_first_use(globals(), {
    "build": "problem_of",
    "errors": "Infeasible SolverFailed",
    "explain": "reason_of",
    "policies": "POLICIES Policy decide",
    "policy.greedy": "Room by_arrival placed",
    "policy.hierarchical": "Entity",
    "policy.subproblem": "subproblem_of",
    "types": "Allocation Certificate Column Configuration Configurations JobView Pairs Pool Problem",
})  # fmt: skip
