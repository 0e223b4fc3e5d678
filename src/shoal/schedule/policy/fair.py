"""Max-min fairness for the jobs of another policy: its rounds are the bound of that policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.schedule.policy.max_min import max_min
from shoal.schedule.types import Allocation, Array, Problem

_ASKED = ("rate", "gang", "weight", "tenant", "entity")


def fair_of(problem: Problem, previous: Allocation | None) -> Allocation:
    """What max-min fairness gives these jobs; as before, if they are the same."""
    before = None if previous is None else previous.fair
    if before is not None and unchanged(before.problem, problem):
        return before
    return max_min(problem, previous=before)


def at_least(problem: Problem) -> Problem:
    """The problem in which each job has the least size that it can have, and none is held."""
    if problem.configurations is None:
        return problem if not problem.held.any() else replace(problem, held=np.zeros(problem.jobs, np.bool_))
    ways = problem.configurations
    least = problem.least
    own = ways.accelerators == least[ways.job]
    rate = problem.rate.copy()
    rate[ways.job] = 0.0
    rate[ways.job[own], ways.column[own]] = ways.goodput[own]
    return replace(problem, gang=least, rate=rate, held=np.zeros(problem.jobs, np.bool_), configurations=None)


def unchanged(before: Problem, now: Problem) -> bool:
    """Whether a policy that looks at neither time nor work would see no difference."""
    return (
        before.jobs == now.jobs
        and before.pools == now.pools
        and before.tenants == now.tenants
        and (before.ids is now.ids or list(before.ids) == list(now.ids))
        and all(_equal(getattr(before, name), getattr(now, name)) for name in _ASKED)
    )


def _equal(before: Array, now: Array) -> bool:
    return before is now or np.array_equal(before, now)
