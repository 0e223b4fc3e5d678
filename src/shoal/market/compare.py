"""Policies over many starts of one job: cost over the offline optimum, with intervals over the starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.market.optimum import Optimum, optimum
from shoal.market.policy.fallback import Choice, choose
from shoal.market.policy.markov import prior_of
from shoal.market.policy.names import policy_named
from shoal.market.simulate import Outcome, simulate
from shoal.market.ticks import Ticks


@dataclass(frozen=True, slots=True)
class Compared:
    """`ratio` is the mean cost over the optimum, between `low` and `high` in 95 % of resamplings of the starts."""

    policy: str
    usd: float
    ratio: float
    low: float
    high: float
    missed: int
    starts: int
    launches: float
    preemptions: float


@dataclass(frozen=True, slots=True)
class Start:
    at: int
    best: Optimum
    outcomes: dict[str, Outcome]


def starts_of(market: Ticks, number: int, seed: int) -> list[int]:
    """Starts drawn evenly from those whose deadline lies within the history."""
    room = len(market.up) - market.deadline
    if room < 0:
        market.window(0)  # raises, with what is lacking
    return [int(at) for at in np.random.default_rng(seed).integers(0, room + 1, size=number)]


def run(
    market: Ticks, names: Sequence[str], starts: Sequence[int], past: Sequence[Ticks] = (),
    choice: Choice | None = None,
) -> list[Start]:  # fmt: skip
    """Starts that not even the optimum ends in time are left out. `past` is the same job on other histories; `choice`
    is the one made by it, where it is known already."""
    prior, found = prior_of(past) if past else None, []
    if choice is None and "markov" in names:
        choice = choose(market, past)
    for at in starts:
        window = market.window(at)
        best = optimum(window)
        if np.isfinite(best.upper):
            outcomes = {
                name: simulate(window, choice.policy(prior) if choice and name == "markov" else policy_named(name))
                for name in names
            }
            found.append(Start(at, best, outcomes))
    return found


def compared(runs: Sequence[Start], names: Sequence[str], seed: int = 0) -> list[Compared]:
    rng, rows = np.random.default_rng(seed), []
    for name in names:
        outcomes = [one.outcomes[name] for one in runs]
        ratios = np.array([one.outcomes[name].usd / one.best.lower for one in runs])
        means = rng.choice(ratios, (2000, len(ratios))).mean(axis=1)
        low, high = np.quantile(means, (0.025, 0.975))
        rows.append(
            Compared(
                name, float(np.mean([one.usd for one in outcomes])), float(ratios.mean()), float(low), float(high),
                sum(not one.met for one in outcomes), len(runs), float(np.mean([one.launches for one in outcomes])),
                float(np.mean([one.preemptions for one in outcomes])),
            )
        )  # fmt: skip
    return rows
