"""Policies by the names that the command line gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shoal.core import Invalid
from shoal.market.policy.baselines import Cheapest, EagerFailover, Greedy, Ross, UniformProgress, UpperConfidence
from shoal.market.policy.fallback import Choice, choose
from shoal.market.policy.markov import prior_of
from shoal.market.policy.view import Policy
from shoal.market.ticks import Ticks

POLICIES: dict[str, Callable[[], Policy]] = {
    "cheapest": Cheapest, "greedy": Greedy, "uniform-progress": UniformProgress, "failover": EagerFailover,
    "ucb": UpperConfidence, "ross": Ross,
}  # fmt: skip
NAMES = (*POLICIES, "markov")


def policy_named(name: str, market: Ticks | None = None, past: Sequence[Ticks] = ()) -> Policy:
    """For a job on this `market`; `past` is the same job on other histories: from them `markov` learns, or another
    policy takes its place (see `fallback.py`)."""
    if name == "markov":
        choice = Choice() if market is None else choose(market, past)
        return choice.policy(prior_of(past) if past else None)
    if name not in POLICIES:
        raise Invalid(f"no policy is called {name!r}", hint="one of " + ", ".join(NAMES))
    return POLICIES[name]()
