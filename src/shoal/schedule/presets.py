"""Presets of each policy, to ask it and to carry out its answer: one table, for the control plane and for the
simulator.

A constant here is in force in both, so that a figure of the simulator is a figure of what `shoal up` runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from shoal.core import Invalid, Money
from shoal.schedule.policies import POLICIES, decide
from shoal.schedule.policy.hierarchical import Entity
from shoal.schedule.rounds import Settings, State
from shoal.schedule.types import Allocation, Array, Problem

KEEP_RESTARTS = 10.0
"""A running job keeps its place for the cost of this number of restarts at least: they take a tenth of the time at
most."""

UNSERVED = 2.0
"""How bad it is by `elastic` that a job gets nothing, where its least size counts one. More than Sia's 1.1, by which
some are paused so that others are large: a paused job has to be restarted."""

PAUSED = 0.1
"""The loss for a job that has just come to run, less the longer it has: of equals none is paused for
another that has not waited long, and then the one that ran longest."""

RESIZE_ROUNDS = 5.0
"""The size of a job is changed at most once in this number of rounds, and in `hold_s`: what a newcomer changes is not
changed back in the next round."""

BEHIND_SLICES = 0.5
"""By `elastic`, a job that is behind max-min fairness by more than this part of a time slice comes first. A part of its
time instead let jobs fall behind together and catch up one by one: they moved more often, and ended later."""

BLEND: dict[str, Any] = {"whole": True, "keep": 0.2}
"""Whole jobs, moved to gain a fifth."""


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """Scheduling by rounds: which policy decides who runs on which accelerator type, anew every `round_s` seconds.
    `agnostic` takes all types for equal, where the policy has that form. `restart_cost_s` is what a job loses by being
    moved. `prices` are by accelerator type, an hour of one accelerator each."""

    policy: str
    agnostic: bool = False
    round_s: float = 60.0
    restart_cost_s: float = 30.0
    prices: tuple[tuple[str, Money], ...] = ()


def hold_s(settings: ScheduleSettings) -> float:
    """For how long a job is not moved after it came to its place."""
    return KEEP_RESTARTS * settings.restart_cost_s


def resize_s(settings: ScheduleSettings) -> float:
    """For how long the size of a job is not changed after it came to its place; a change has to repay its restart in
    that time."""
    return max(hold_s(settings), RESIZE_ROUNDS * settings.round_s)


def time_slice_s(settings: ScheduleSettings) -> float:
    """The time slice of a job that saves its work."""
    return max(hold_s(settings), settings.round_s)


@lru_cache(16)
def rounds_of(settings: ScheduleSettings) -> Settings:
    """How a policy's answer becomes rounds."""
    keep_s = hold_s(settings)
    return Settings(round_s=settings.round_s, keep_s=keep_s, time_slice_s=time_slice_s(settings), min_run_s=keep_s,
                    restart_s=settings.restart_cost_s)  # fmt: skip


def ask(
    settings: ScheduleSettings,
    problem: Problem,
    previous: Allocation | None = None,
    *,
    since_s: Array | None = None,
    slice_s: Array | None = None,
    known: State | None = None,
) -> Allocation:
    """The policy's answer. `since_s` (m,) is for how long each job has been in the queue, or in the place that it has,
    `slice_s` (m,) how long its time slices are, where it does not save its work, `known` is what is remembered of the
    jobs. Raises `Invalid` where the policy has
    no such form or cannot decide on this problem, and what solving raises."""
    policy = POLICIES[settings.policy]
    given: dict[str, Any] = {}
    if settings.agnostic:
        if "agnostic" not in policy.settings:
            raise Invalid(f"{policy.name} has no agnostic form", where="agnostic")
        given["agnostic"] = True
    if policy.name == "hierarchical":
        weights = {tenant.name: tenant.weight for tenant in problem.tenants}
        given["entities"] = {name: Entity(weights.get(name, 1.0)) for name in problem.entities}
    if policy.name == "blend":
        given |= BLEND | {"restart_s": settings.restart_cost_s}
        if known is not None:
            given |= {"reference": known.reference, "took_s": known.took_s}
    if policy.name == "elastic":
        # It knows no time slices: without this, a job that finds no room would wait until others end.
        none = np.zeros(problem.jobs)
        slices = np.maximum(none if slice_s is None else slice_s, time_slice_s(settings))
        # A job that has waited for longer than a time slice counts for more, until it is scheduled. One that runs for
        # longer at a time, because it does not save its work, has to wait for longer, too.
        since = np.maximum(none if since_s is None else since_s, 0.0) / slices
        worse = np.where(problem.placed >= 0, 1.0 + PAUSED / (1.0 + since), np.maximum(since, 1.0))
        given |= {
            "restart_s": settings.restart_cost_s, "unserved": UNSERVED * worse, "horizon_s": resize_s(settings),
        }  # fmt: skip
        if known is not None:
            given |= {"behind_s": known.behind_s, "allowed_s": BEHIND_SLICES * slices}
    if "previous" in policy.settings:
        given["previous"] = previous
    return decide(policy.name, problem, **given)


def without_holds(settings: ScheduleSettings, problem: Problem) -> Problem:
    """The problem as the policy sees it: `elastic` decides around jobs that may not be moved. Others share time out: a
    job that may not be moved has more than its share meanwhile, and the rounds remember that it owes it."""
    if settings.policy == "elastic" or not problem.held.any():
        return problem
    return replace(problem, held=np.zeros(problem.jobs, np.bool_))
