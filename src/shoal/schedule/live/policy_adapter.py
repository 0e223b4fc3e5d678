"""How the live problem is made for a policy, and what another policy would decide of a snapshot."""

from __future__ import annotations

from shoal.schedule.live.plan import Plan, make
from shoal.schedule.live.problem import LiveProblem, Place, Rules
from shoal.schedule.live.state_file import NOTHING
from shoal.schedule.policies import POLICIES
from shoal.schedule.presets import ScheduleSettings, resize_s, time_slice_s
from shoal.schedule.workloads import Snapshot


def rules_of(settings: ScheduleSettings) -> Rules:
    """How the problem is made for this policy."""
    policy = POLICIES[settings.policy]
    return Rules(
        prices=dict(settings.prices), predict=policy.needs_lengths, by_tenant=policy.name == "hierarchical",
        soon_s=settings.round_s, sizes=policy.name == "elastic", hold_s=resize_s(settings),
        time_slice_s=time_slice_s(settings),
    )  # fmt: skip


def what_if(found: Snapshot, settings: ScheduleSettings) -> Plan:
    """The next round that this policy would make of a snapshot, if no job had a deficit yet. Pure."""
    on = {
        view.id: Place(view.placed, view.gang, found.now - view.placed_s)
        for view in found.jobs
        if view.placed is not None
    }
    problem = LiveProblem(found.now, found.jobs, found.pools, found.tenants, on)
    plan, _ = make(problem, settings, NOTHING)
    return plan
