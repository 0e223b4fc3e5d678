"""Policies by the names that the command line gives them."""

from __future__ import annotations

from collections.abc import Callable

from shoal.core import Invalid
from shoal.market.policy.baselines import Cheapest, EagerFailover, Greedy, Ross, UniformProgress, UpperConfidence
from shoal.market.policy.beliefs import Rates
from shoal.market.policy.markov import Markov
from shoal.market.policy.view import Policy

POLICIES: dict[str, Callable[[], Policy]] = {
    "cheapest": Cheapest, "greedy": Greedy, "uniform-progress": UniformProgress, "failover": EagerFailover,
    "ucb": UpperConfidence, "ross": Ross,
}  # fmt: skip
NAMES = (*POLICIES, "markov")


def policy_named(name: str, prior: Rates | None = None) -> Policy:
    if name == "markov":
        return Markov(prior)
    if name not in POLICIES:
        raise Invalid(f"no policy is called {name!r}", hint="one of " + ", ".join(NAMES))
    return POLICIES[name]()
