"""How a configured policy is asked: in which form, and by which settings its answer becomes rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.control.config import ScheduleSettings
from shoal.control.scheduling.memory import NOTHING
from shoal.control.scheduling.plan import Plan, make
from shoal.control.scheduling.scene import NOBODY, Place, Rules, Scene
from shoal.core import Invalid
from shoal.schedule import POLICIES, Allocation, Entity, Problem, decide
from shoal.schedule.rounds import Settings
from shoal.schedule.workloads import Snapshot

KEEP_RESTARTS = 10.0
"""Whoever runs keeps its place for the cost of so many restarts at least: they take a tenth of the time at most."""

UNSERVED = 2.0
"""How bad it is by `elastic` that a job gets nothing, where its least size counts one. More than in the simulator
(Sia's 1.1, by which some are paused so that others are large): whoever is paused here has to be restarted."""

PAUSED = 0.1
"""By so much it is worse for one that has just come to run, less the longer it has: of equals nobody is paused for
another that has not waited long, and then the one that ran longest."""

PATIENCE = 2.0
"""Who has waited for longer than so many times the least run of the others counts for more, until it has its turn; who
runs for longer at a time because it does not save its work has to wait for longer, too."""


def ask(
    settings: ScheduleSettings,
    problem: Problem,
    previous: Allocation | None = None,
    *,
    since_s: Mapping[str, float] = NOBODY,
    turn_s: Mapping[str, float] = NOBODY,
) -> Allocation:
    """`since_s` is for how long jobs have been in the queue, or in the place that they have, `turn_s` how long the
    turns are of those that do not save their work. Raises `Invalid` where the policy has no such form or cannot
    decide on this problem, and what solving raises."""
    policy = POLICIES[settings.policy]
    if policy.name != "elastic" and problem.held.any():
        # Shares are what is fair. Who is held has more, and the rounds remember that it owes it.
        problem = replace(problem, held=np.zeros(problem.jobs, np.bool_))
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
    if policy.name == "elastic":
        # It knows no turns: without this, who finds no room would wait until others end.
        turn = [max(turn_s.get(str(job), 0.0), bearable_s(settings)) for job in problem.ids]
        since = np.array([max(since_s.get(str(job), 0.0), 0.0) for job in problem.ids]) / (PATIENCE * np.array(turn))
        worse = np.where(problem.placed >= 0, 1.0 + PAUSED / (1.0 + since), np.maximum(since, 1.0))
        given |= {"restart_s": settings.restart_cost_s, "unserved": UNSERVED * worse}
    if policy.remembers:
        given["previous"] = previous
    return decide(policy.name, problem, **given)


def rules_of(settings: ScheduleSettings) -> Rules:
    """How the problem is made for this policy."""
    policy = POLICIES[settings.policy]
    return Rules(
        prices=dict(settings.prices), predict=policy.needs_lengths, by_tenant=policy.name == "hierarchical",
        soon_s=settings.round_s, sizes=policy.name == "elastic", hold_s=KEEP_RESTARTS * settings.restart_cost_s,
        bearable_s=bearable_s(settings),
    )  # fmt: skip


def bearable_s(settings: ScheduleSettings) -> float:
    """For how long a job that saves its work keeps its place."""
    return max(KEEP_RESTARTS * settings.restart_cost_s, settings.round_s)


def rounds_of(settings: ScheduleSettings) -> Settings:
    """How its answer becomes rounds."""
    keep_s = KEEP_RESTARTS * settings.restart_cost_s
    return Settings(round_s=settings.round_s, keep_s=keep_s, quantum_s=bearable_s(settings), min_run_s=keep_s)


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
