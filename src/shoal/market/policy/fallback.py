"""Away from what `markov` was measured on: the policy that would have cost least on the history that was given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shoal.core import Reason
from shoal.market.policy.baselines import Cheapest, Greedy, UniformProgress
from shoal.market.policy.beliefs import Rates
from shoal.market.policy.markov import Markov, prior_of
from shoal.market.policy.view import Decision, Policy, View
from shoal.market.simulate import simulate
from shoal.market.ticks import Ticks

MEASURED_S = 3_600.0
"""A launch and the work lost with an instance are less than this together where `markov` was measured. Its beliefs say
little of what lasts longer than most capacity does."""

SLACK, WORK_S, TICK_S = 1.1, 6 * 3_600.0, 600.0
"""The least deadline over the work, the least work and the longest tick of these jobs. With less slack the safety net
decides nearly everything, and few or long ticks leave a plan little to plan."""

CHEAPER = 0.01
"""A baseline has to be cheaper by this part: starts overlap, so that smaller differences are chance."""

TRIED_TICKS = 4_000
"""Of all replays together, so that a choice takes seconds. Each takes a deadline."""

BASELINES: Mapping[str, Callable[[], Policy]] = {
    "greedy": Greedy, "uniform-progress": UniformProgress, "cheapest": Cheapest,
}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """A policy by name and the mean dollars of all that were tried; none where nothing had to be, or could be."""

    name: str = "markov"
    usd: Mapping[str, float] = field(default_factory=dict)
    instead: Callable[[], Policy] | None = None

    def policy(self, prior: Rates | None, *, again: int = 48) -> Policy:
        return Markov(prior, again=again) if self.instead is None else _Instead(self, self.instead())


class _Instead:
    """A baseline that says why it was chosen."""

    def __init__(self, choice: Choice, policy: Policy) -> None:
        self._choice, self._policy = choice, policy

    def decide(self, view: View) -> Decision:
        found, usd = self._policy.decide(view), self._choice.usd
        name = self._choice.name
        text = f"{found.reason.text} ({name}: ${usd[name]:.2f} in replays, markov ${usd['markov']:.2f})"
        return Decision(found.offer, Reason(found.reason.code, text, {**found.reason.facts, "replayed_usd": dict(usd)}))


def measured(market: Ticks) -> bool:
    """Whether a job like this is among those that `markov` was measured on."""
    alone = market.work / float(market.speed[market.fallback])
    return (
        market.launch > 0
        and (market.launch + market.lost) * market.tick_s < MEASURED_S
        and market.deadline + 1 > SLACK * alone
        and market.work * market.tick_s >= WORK_S
        and market.tick_s <= TICK_S
    )


def choose(
    market: Ticks,
    past: Sequence[Ticks],
    *,
    seed: int = 0,
    baselines: Mapping[str, Callable[[], Policy]] = BASELINES,
) -> Choice:
    """For a job on this market, by replays on the `past` ones, which are the same job on other histories. Those that
    are shorter than the deadline cannot tell."""
    past = [one for one in past if len(one.up) >= market.deadline]
    if measured(market) or not past:
        return Choice()
    number = max(3, TRIED_TICKS // market.deadline // len(past))
    rng, costs = np.random.default_rng(seed), dict[str, list[float]]()
    for one in past:
        for at in rng.integers(0, len(one.up) - market.deadline + 1, size=number).tolist():
            window = one.window(at, market.deadline)
            known = around(one, at, market.deadline)
            tried = {name: make() for name, make in baselines.items()}
            tried["markov"] = Markov(known, again=max(48, market.deadline // 3))
            for name, policy in tried.items():
                costs.setdefault(name, []).append(simulate(window, policy).usd)
    usd = {name: float(np.mean(found)) for name, found in costs.items()}
    best = min(baselines, key=usd.__getitem__)
    cheaper = usd[best] < usd["markov"] * (1 - CHEAPER)
    return Choice(best, usd, baselines[best]) if cheaper else Choice(usd=usd)


def around(market: Ticks, at: int, ticks: int) -> Rates:
    """What the history before and after a replay says: a plan must not learn from the future that it is tried on."""
    parts = (slice(0, at), slice(at + ticks, None))
    return prior_of([replace(market, usd=market.usd[part], up=market.up[part], refused=None) for part in parts])
