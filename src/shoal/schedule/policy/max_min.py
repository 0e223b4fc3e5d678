"""Max-min fairness: the job that has least gets as much as possible, then the next (least attained service).

What is made equal is each job's throughput times its gang, over its weight, in units of the throughput that it would
have in a proportional share of all types (Gavel, section 4.1). The agnostic form makes the share of time equal instead,
and `worth` the share of what types are worth: an hour on a type counts as much as it is worth, for everybody.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shoal.core import Invalid
from shoal.schedule.policy.agnostic import equal_rates, evened
from shoal.schedule.policy.finish import allocation, nothing
from shoal.schedule.policy.solving import fill, tried_before
from shoal.schedule.policy.subproblem import subproblem_of
from shoal.schedule.solve.flow import Entities
from shoal.schedule.types import Allocation, Problem

NAME = "max-min"
OBJECTIVE = "lowest normalised throughput over weight"


def max_min(
    problem: Problem,
    *,
    agnostic: bool = False,
    worth: Mapping[str, float] | None = None,
    space_sharing: bool = False,
    central: bool = False,
    previous: Allocation | None = None,
) -> Allocation:
    """Exact, by water filling: no job can have more unless one that has no more gets less. After a
    `previous` allocation of nearly the same jobs it is found sooner. `central` only makes the lowest as high as it can
    be, and gives the rest as Gavel's solver does (see `baselines/gavel/centre.py`)."""
    if central:
        return _central(problem, agnostic, worth is not None or space_sharing)
    rate = None
    if worth is not None or agnostic:
        rate = equal_rates(problem, worth or {})
    sub = subproblem_of(problem, rate=rate, space_sharing=space_sharing)
    if not len(sub.free):
        return allocation(sub, nothing(sub), policy=NAME)
    outcome = fill(sub, Entities.each(sub.weight), tried_before(sub, previous))
    if rate is not None:
        outcome = evened(sub, outcome)
    return allocation(sub, outcome, policy=NAME, objective=OBJECTIVE)


def _central(problem: Problem, agnostic: bool, more: bool) -> Allocation:
    from shoal.schedule.baselines.gavel.centre import highest_level

    if more:
        raise Invalid("the central form has neither worths nor space sharing", where=NAME)
    sub = subproblem_of(problem)
    if not len(sub.free):
        return allocation(sub, nothing(sub), policy=NAME)
    rate = np.ones_like(sub.market.rate) if agnostic else sub.market.rate
    unit = sub.weight * (1.0 if agnostic else sub.norm) / sub.gang
    found = highest_level(sub, np.zeros(len(sub.free)), unit, rate=rate)
    return allocation(sub, found, policy=NAME, objective=OBJECTIVE)
