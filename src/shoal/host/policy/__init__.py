"""Policies: pure functions from a `Snapshot` and a state to a `Plan` and the next state, and their table.

A policy reads no clock and draws no random number. Its state is a frozen value that JSON can hold, so that a journal
can be replayed from any of its ticks; every decision carries its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from shoal.core import Invalid
from shoal.host.policy.core_throttle import CoreThrottle
from shoal.host.policy.exclusive import ExclusiveCpus
from shoal.host.policy.kelp import Kelp
from shoal.host.policy.model import Model
from shoal.host.policy.static import NoPolicy, Static
from shoal.host.types import Policy

__all__ = ["POLICIES", "make_policy", "policy_problems"]

POLICIES: Mapping[str, Callable[..., Policy[Any]]] = MappingProxyType({
    "none": NoPolicy,
    "static": Static,
    "core-throttle": CoreThrottle,
    "kelp": Kelp,
    "model": Model,
})  # fmt: skip
"""By the names that configuration and command line use."""


def make_policy(name: str, **settings: Any) -> Policy[Any]:
    """All but `none` also keep guaranteed and best-effort work on CPUs of their own. Raises `Invalid` for a name, or a
    setting, that there is not."""
    if problems := policy_problems(name, settings):
        raise Invalid("; ".join(problems), where="policy")
    policy = POLICIES[name](**settings)
    return policy if isinstance(policy, NoPolicy) else ExclusiveCpus(policy)


def policy_problems(name: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Everything that is wrong with a policy's name and settings, in sentences."""
    if name not in POLICIES:
        return (f"there is no policy {name!r} (one of {', '.join(POLICIES)})",)
    made = POLICIES[name]
    known = {one.name for one in fields(made) if one.name != "name"}  # type: ignore[arg-type]
    problems = []
    if unknown := sorted(set(settings) - known):
        hint = f"it has {', '.join(sorted(known))}" if known else "it has none"
        problems.append(f"{name} has no setting {', '.join(unknown)} ({hint})")
    try:
        made(**{one: value for one, value in settings.items() if one in known})
    except Invalid as problem:
        problems.append(f"{problem.what} ({problem.hint})" if problem.hint else problem.what)
    except TypeError:
        problems.append(f"a setting of {name} has the wrong type")
    return tuple(problems)
