"""Least cost: as much throughput per dollar as possible, or as few dollars as the deadlines and a floor allow."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import numpy as np

from shoal.core import Invalid
from shoal.schedule.policy.deadlines import needed_rates, reaching
from shoal.schedule.policy.finish import allocation, nothing
from shoal.schedule.policy.solving import best_level, best_value
from shoal.schedule.policy.subproblem import Subproblem, subproblem_of
from shoal.schedule.types import Allocation, Array, Problem

NAME = "min-cost"


class Aim(StrEnum):
    """Throughput per dollar in sum (Gavel, section 4.2), or the fewest dollars per hour."""

    PER_DOLLAR = "per-dollar"
    SPEND = "spend"


def min_cost(
    problem: Problem,
    *,
    aim: Aim | str = Aim.PER_DOLLAR,
    deadlines: bool = True,
    floor: float = 0.0,
    space_sharing: bool = False,
) -> Allocation:
    """Jobs with a deadline keep it (unless `deadlines` is false); raises `Infeasible` where they cannot all, naming
    what stands against it. `floor` in 0..1 is the part of max-min's lowest normalised throughput that every job has:
    without one, jobs with no deadline get nothing where the aim is to spend little."""
    aim = Aim(aim)
    if not 0.0 <= floor <= 1.0:
        raise Invalid(f"a floor of {floor}", where="floor", hint="between 0 and 1")
    sub = subproblem_of(problem, space_sharing=space_sharing)
    if not len(sub.free):
        return allocation(sub, nothing(sub), policy=NAME)
    owed = needed_rates(sub) if deadlines else np.zeros(len(sub.free))
    if floor > 0.0:
        unit = sub.weight * sub.norm / sub.gang
        owed = np.maximum(owed, floor * best_level(sub, 0.0 * unit, unit).value * unit * (1.0 - 1e-9))
    start = reaching(sub, owed) if owed.any() else None
    gain, cost = _worth(sub, aim)
    outcome = best_value(sub, gain, cost, owed * (1.0 - 1e-9), start=start)
    if aim is Aim.PER_DOLLAR:
        return allocation(sub, outcome, policy=NAME, objective="throughput per dollar, in sum")
    spent = replace(outcome, value=-outcome.value, bound=-outcome.bound)
    return allocation(sub, spent, policy=NAME, objective="dollars per hour", sense="min")


def _worth(sub: Subproblem, aim: Aim) -> tuple[Array, Array]:
    """The gain per unit of rate and the cost per share of time, both (n, k)."""
    dollars = sub.problem.usd_per_hour[:, None] * sub.gang
    if aim is Aim.SPEND:
        return np.zeros_like(dollars), dollars
    free = np.flatnonzero(sub.problem.usd_per_hour <= 0.0)
    if len(free):
        name = sub.problem.columns[free[0]].name
        raise Invalid("throughput per dollar needs a price", where=f"pool {name}", hint="give it one, or aim at spend")
    return 1.0 / dollars, np.zeros_like(dollars)
