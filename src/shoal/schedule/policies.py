"""The table of all policies, by the names that configuration and command line use, and the door to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from types import MappingProxyType
from typing import Any

from shoal.core import Invalid
from shoal.schedule.baselines.allox import allox
from shoal.schedule.baselines.gandiva import gandiva
from shoal.schedule.policy.blend import blend
from shoal.schedule.policy.elastic import elastic
from shoal.schedule.policy.fifo import fifo
from shoal.schedule.policy.finish_time import finish_time
from shoal.schedule.policy.hierarchical import hierarchical
from shoal.schedule.policy.isolated import isolated
from shoal.schedule.policy.makespan import makespan
from shoal.schedule.policy.max_min import max_min
from shoal.schedule.policy.max_throughput import max_throughput
from shoal.schedule.policy.min_cost import min_cost
from shoal.schedule.policy.strategy_proof import strategy_proof
from shoal.schedule.types import Allocation, Problem


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, and whether it needs to know the work that is left. One that is `timeless` looks at neither time nor
    work: asked again about the same jobs it answers the same."""

    name: str
    decide: Callable[..., Allocation]
    needs_lengths: bool = False
    timeless: bool = False

    @property
    def settings(self) -> list[str]:
        """What it can be asked: several have an `agnostic` and a `space_sharing` form, a `central` one that decides as
        Gavel's program and solver do, or take the allocation before (`previous`) or a `seed`."""
        return list(signature(self.decide).parameters)[1:]


POLICIES: Mapping[str, Policy] = MappingProxyType({
    policy.name: policy
    for policy in (
        Policy("fifo", fifo),
        Policy("isolated", isolated, timeless=True),
        Policy("max-min", max_min, timeless=True),
        Policy("hierarchical", hierarchical, timeless=True),
        Policy("makespan", makespan, needs_lengths=True),
        Policy("finish-time", finish_time, needs_lengths=True),
        Policy("blend", blend, needs_lengths=True),
        Policy("max-throughput", max_throughput),
        Policy("min-cost", min_cost),
        Policy("allox", allox, needs_lengths=True),
        Policy("gandiva", gandiva),
        Policy("strategy-proof", strategy_proof, timeless=True),
        Policy("elastic", elastic),
    )
})  # fmt: skip
"""By the names that configuration and command line use."""


def policy_of(name: str) -> Policy:
    """Raises `Invalid` for a name that no policy has."""
    if name not in POLICIES:
        raise Invalid(f"there is no policy {name!r}", where="policy", hint=f"one of {', '.join(POLICIES)}")
    return POLICIES[name]


def decide(name: str, problem: Problem, **settings: Any) -> Allocation:
    """What the policy of this name decides. Raises `Invalid` for a name, or a setting, that there is not."""
    policy = policy_of(name)
    known = policy.settings
    if unknown := sorted(set(settings) - set(known)):
        raise Invalid(f"{name} has no setting {', '.join(unknown)}", where="policy", hint=f"it has {', '.join(known)}")
    return policy.decide(problem, **settings)
