"""Hierarchical fairness: entities (departments, tenants) share the cluster by their weights, and each divides its part
among its jobs, fairly or first come first served (Gavel, section 4.3).

As the water rises, an entity pours its weight into those of its jobs that can still rise; what one job cannot take,
the others of the same entity get. Solved exactly by water filling (`solve/water.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shoal.core import Invalid
from shoal.schedule.policy.agnostic import equal_rates, evened
from shoal.schedule.policy.finish import allocation, nothing
from shoal.schedule.policy.solving import fill
from shoal.schedule.policy.subproblem import subproblem_of
from shoal.schedule.solve.flow import Entities
from shoal.schedule.types import Allocation, Problem

NAME = "hierarchical"
OBJECTIVE = "lowest normalised throughput over weight, by entities"


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity's weight, and whether it serves its jobs one after the other instead of fairly."""

    weight: float = 1.0
    first_come: bool = False


def hierarchical(
    problem: Problem,
    *,
    entities: Mapping[str, Entity] | None = None,
    agnostic: bool = False,
    space_sharing: bool = False,
) -> Allocation:
    """`entities` by the names in `problem.entities`; the others have weight one and are fair inside."""
    given = entities or {}
    for name, each in given.items():
        if name not in problem.entities or not 0.0 < each.weight < float("inf"):
            raise Invalid(f"entity {name!r} with weight {each.weight}", where="entities", hint="known, and positive")
    rate = equal_rates(problem, {}) if agnostic else None
    sub = subproblem_of(problem, rate=rate, space_sharing=space_sharing)
    if not len(sub.free):
        return allocation(sub, nothing(sub), policy=NAME)
    chosen = [given.get(name, Entity()) for name in problem.entities]
    in_order = np.array([each.first_come for each in chosen])
    of = problem.entity[sub.free]
    by_arrival = np.empty(len(of))
    by_arrival[np.argsort(problem.arrived[sub.free], kind="stable")] = np.arange(len(of))
    rank = np.where(in_order[of], by_arrival, 0.0)
    outcome = fill(sub, Entities(of, np.array([each.weight for each in chosen]), in_order, sub.weight, rank))
    if agnostic:
        outcome = evened(sub, outcome)
    return allocation(sub, outcome, policy=NAME, objective=OBJECTIVE)
