"""How a configured policy is asked: in which form, and by which settings its answer becomes rounds."""

from __future__ import annotations

from typing import Any

from shoal.control.config import ScheduleSettings
from shoal.control.scheduling.memory import NOTHING
from shoal.control.scheduling.plan import Plan, make
from shoal.control.scheduling.scene import Place, Rules, Scene
from shoal.core import Invalid
from shoal.schedule import POLICIES, Allocation, Entity, Problem, decide
from shoal.schedule.rounds import Settings
from shoal.schedule.workloads import Snapshot

KEEP_RESTARTS = 10.0
"""Whoever runs keeps its place for the cost of so many restarts at least: they take a tenth of the time at most."""


def ask(settings: ScheduleSettings, problem: Problem, previous: Allocation | None = None) -> Allocation:
    """Raises `Invalid` where the policy has no such form or cannot decide on this problem, and what solving raises."""
    policy = POLICIES[settings.policy]
    given: dict[str, Any] = {}
    if settings.agnostic:
        if not policy.agnostic:
            raise Invalid(f"{policy.name} has no agnostic form", where="agnostic")
        given["agnostic"] = True
    if policy.name == "hierarchical":
        weights = {tenant.name: tenant.weight for tenant in problem.tenants}
        given["entities"] = {name: Entity(weights.get(name, 1.0)) for name in problem.entities}
    if policy.name == "blend":
        # As it is simulated where lengths are guesses (docs/schedule.md): whole jobs, moved to gain a fifth.
        given |= {"whole": True, "aging": 1.25, "keep": 0.2, "restart_s": settings.restart_cost_s}
    if policy.remembers:
        given["previous"] = previous
    return decide(policy.name, problem, **given)


def rules_of(settings: ScheduleSettings) -> Rules:
    """How the problem is made for this policy."""
    policy = POLICIES[settings.policy]
    return Rules(
        prices=dict(settings.prices), predict=policy.needs_lengths, by_tenant=policy.name == "hierarchical",
        soon_s=settings.round_s,
    )  # fmt: skip


def rounds_of(settings: ScheduleSettings) -> Settings:
    """How its answer becomes rounds."""
    keep_s = KEEP_RESTARTS * settings.restart_cost_s
    return Settings(round_s=settings.round_s, keep_s=keep_s, quantum_s=max(keep_s, settings.round_s), min_run_s=keep_s)


def what_if(found: Snapshot, settings: ScheduleSettings) -> Plan:
    """The next round that this policy would make of a snapshot, if nobody were owed anything yet. Pure."""
    on = {
        view.id: Place(view.placed, view.gang, found.now - view.placed_s)
        for view in found.jobs
        if view.placed is not None
    }
    scene = Scene(found.now, found.jobs, found.pools, found.tenants, on)
    plan, _ = make(scene, ask(settings, scene.problem()), NOTHING, rounds_of(settings))
    return plan
