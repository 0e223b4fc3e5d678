"""Finish-time fairness (Themis): the worst ratio of a job's finish time to that in an isolated share is least.

rho_i = (age + left / rate) / (isolated + left / isolated rate), times in seconds: to keep rho, a job needs the rate
left / (rho * D - age). That is convex in rho, so its tangents give linear programs whose optima bound rho from below,
while the allocation found for each bounds it from above: Newton's method, a handful of exact solves where Gavel's
formulation needs a cone solver.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.core import Invalid
from shoal.schedule.errors import SolverFailed
from shoal.schedule.policy.agnostic import evened, reference_rates
from shoal.schedule.policy.finish import allocation, nothing
from shoal.schedule.policy.isolated import isolated_shares
from shoal.schedule.policy.solving import Outcome, best_level
from shoal.schedule.policy.spare import with_spare
from shoal.schedule.policy.subproblem import Subproblem, subproblem_of
from shoal.schedule.types import Allocation, Array, Problem

NAME = "finish-time"
OBJECTIVE = "worst finish time over that in an isolated share"
GAP, PAIRED_GAP = 1e-8, 1e-6
"""Relative gap between the bounds; over pairs, floors are only kept to a ten-millionth."""

STEPS = 40


def finish_time(
    problem: Problem,
    *,
    agnostic: bool = False,
    space_sharing: bool = False,
    central: bool = False,
) -> Allocation:
    """Needs `work_left`; `isolated_s` is how long an isolated share would have taken so far. The agnostic form takes
    every type to be as fast as the one on which jobs are fastest in sum. `central` only makes the worst ratio least,
    and gives the rest as Gavel's solver does (see `baselines/gavel/centre.py`)."""
    if central and space_sharing:
        raise Invalid("the central form has no space sharing", where=NAME)
    rate = reference_rates(problem) if agnostic else None
    sub = subproblem_of(problem, rate=rate, space_sharing=space_sharing)
    if not len(sub.free) or not sub.work_left.any():
        return allocation(sub, nothing(sub), policy=NAME)
    outcome, owed = _fairest(sub)
    if central:
        from shoal.schedule.baselines.gavel.centre import highest_level

        middle = highest_level(sub, np.zeros_like(owed), owed)
        outcome = replace(outcome, shares=middle.shares, rates=middle.rates, facts=middle.facts)
        return allocation(sub, outcome, policy=NAME, objective=OBJECTIVE, sense="min")
    outcome = with_spare(sub, outcome, owed)
    if agnostic:
        outcome = evened(sub, outcome)
    return allocation(sub, outcome, policy=NAME, objective=OBJECTIVE, sense="min")


def _fairest(sub: Subproblem) -> tuple[Outcome, Array]:
    """The outcome with the least worst ratio, and the rates (k,) that this ratio needs."""
    left, age = sub.work_left, sub.elapsed_s
    alone = isolated_shares(sub)
    rates = sub.market.rates_of(alone)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = sub.problem.isolated_s[sub.free] + np.where(left > 0.0, left / rates, 0.0)
    working = (left > 0.0) & np.isfinite(whole) & (whole > 0.0)

    def ratio(rates: Array) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(((age + left / rates)[working] / whole[working]).max())

    best = Outcome(alone, rates, np.zeros(len(sub.market.limits)), ratio(rates), 0.0)
    lower, gap = 0.0, GAP if sub.beside is None else PAIRED_GAP
    for _ in range(STEPS):
        rho = best.value
        room = np.where(working, rho * whole - age, np.inf)
        needed = left / room
        steep = np.where(working, needed * whole / room, 0.0)
        step = best_level(sub, needed * (1.0 - 1e-12), steep, start=best)
        lower = max(lower, rho - step.bound)
        reached = ratio(step.rates)
        if reached < best.value:
            best = replace(step, value=reached)
        if best.value - lower <= gap * best.value:
            needed = np.where(working, left / np.where(working, best.value * whole - age, 1.0), 0.0)
            return replace(best, bound=lower), needed
    raise SolverFailed("the bounds of the finish-time ratio did not meet", lower=lower, upper=best.value, steps=STEPS)
