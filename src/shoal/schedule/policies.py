"""All policies by the names that configuration and command line use: Shoal's own, and those that other components
declare. `decide` asks one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
from typing import Any

from shoal.base.discover import find_one, load_all
from shoal.core import Invalid
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
from shoal.schedule.sound import check
from shoal.schedule.types import Allocation, Problem


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, and whether it needs to know the work that is left. One that is `timeless` looks at neither time nor
    work: asked again about the same jobs it answers the same."""

    name: str
    decide: Callable[..., Allocation]
    needs_lengths: bool = False
    timeless: bool = False
    checked: bool = False
    """Its allocations are checked before they are carried out, for it is not one of Shoal's own."""

    @property
    def settings(self) -> list[str]:
        """What it can be asked: several have an `agnostic` and a `space_sharing` form, a `central` one that decides as
        Gavel's program and solver do, or take the allocation before (`previous`) or a `seed`."""
        return list(_parameters(self.decide)[1:])


@cache
def _parameters(decide: Callable[..., Allocation]) -> tuple[str, ...]:
    return tuple(signature(decide).parameters)


FIFO = Policy("fifo", fifo)
ISOLATED = Policy("isolated", isolated, timeless=True)
MAX_MIN = Policy("max-min", max_min, timeless=True)
HIERARCHICAL = Policy("hierarchical", hierarchical, timeless=True)
MAKESPAN = Policy("makespan", makespan, needs_lengths=True)
FINISH_TIME = Policy("finish-time", finish_time, needs_lengths=True)
BLEND = Policy("blend", blend, needs_lengths=True)
MAX_THROUGHPUT = Policy("max-throughput", max_throughput)
MIN_COST = Policy("min-cost", min_cost)
ELASTIC = Policy("elastic", elastic)


class _Declared(Mapping[str, Policy]):
    """The policies that components declare. Those that cannot be loaded are left out of the names."""

    def __getitem__(self, name: str) -> Policy:
        """Raises KeyError for a name that no component declares, and Invalid where it declares no such policy."""
        return _declared(name)

    def __iter__(self) -> Iterator[str]:
        return iter(load_all("policies")[0])

    def __len__(self) -> int:
        return len(load_all("policies")[0])


@cache
def _declared(name: str) -> Policy:
    found = find_one("policies", name)
    if found is None:
        raise KeyError(name)
    policy = found.load()
    if not isinstance(policy, Policy) or policy.name != name:
        what = f"{found.target} of the package {found.package} is no policy of the name {name!r}"
        raise Invalid(what, where="policy", hint=f"it needs to be a shoal.schedule.Policy({name!r}, ...)")
    return policy if found.own else replace(policy, checked=True)


POLICIES: Mapping[str, Policy] = _Declared()
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
    found = policy.decide(problem, **settings)
    if policy.checked:
        check(found, problem, policy.name)
    return found
