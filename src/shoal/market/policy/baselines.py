"""Baselines: what people do today, and what was published to do it better."""

from __future__ import annotations

import math

import numpy as np

from shoal.core import Reason
from shoal.market.policy.view import Decision, View


class Cheapest:
    """The cheapest offer that can be had now, spot or not; never waits."""

    def decide(self, view: View) -> Decision:
        best = view.cheapest(np.ones(len(view.up), bool))
        return Decision(best, Reason("cheapest", "nothing that can be had is cheaper now"))


class Greedy:
    """The cheapest spot offer while one can be had, else nothing: on demand is left to the safety net."""

    def decide(self, view: View) -> Decision:
        best = view.cheapest_spot()
        if best is None:
            return Decision(None, Reason("no-spot", "waits: no spot instance can be had"))
        return Decision(best, Reason("spot", "a spot instance can be had"))


class UniformProgress:
    """Stays on the straight line from the start to the deadline ("Can't Be Late", NSDI'24): spot when there is some, on
    demand while behind the line, and then until two launches ahead of it."""

    def decide(self, view: View) -> Decision:
        market = view.market
        best = view.cheapest_spot()
        if best is not None:
            return Decision(best, Reason("spot", "a spot instance can be had"))
        ahead = view.done - market.work * view.tick / market.deadline
        enough = 2 * market.launch if view.running == market.fallback else 0
        facts = {"ahead_ticks": ahead}
        if ahead < enough:
            return Decision(market.fallback, Reason("behind", f"{-ahead:.1f} ticks behind even progress", facts))
        return Decision(None, Reason("ahead", f"waits: {ahead:.1f} ticks ahead of even progress", facts))


class EagerFailover:
    """SkyPilot's managed jobs: stays where it is; after a preemption the next zone in a fixed order, and on demand
    where no zone has any. Nothing moves back."""

    def decide(self, view: View) -> Decision:
        if view.running is not None:
            return Decision(view.running, Reason("stay", "runs, and nothing else is looked at"))
        zones = [int(j) for j in np.flatnonzero(view.market.spot & view.up)]
        if zones:
            return Decision(zones[0], Reason("failover", "the first zone in order that has an instance"))
        return Decision(view.market.fallback, Reason("no-spot", "no zone has an instance"))


class UpperConfidence:
    """UCB over zones: where instances were had longest so far, with a bonus for zones seldom seen at work; stays
    while it runs, waits where there is none."""

    def decide(self, view: View) -> Decision:
        market = view.market
        if view.running is not None and market.spot[view.running]:
            return Decision(view.running, Reason("stay", "runs"))
        zones = np.flatnonzero(market.spot & view.up)
        if not len(zones):
            return Decision(None, Reason("no-spot", "waits: no zone has an instance"))
        seen = view.seen[:, zones]
        ends = np.maximum((seen[:-1] & ~seen[1:]).sum(axis=0), 1)
        had = seen.sum(axis=0) / ends
        score = had / max(float(had.max()), 1.0) + np.sqrt(2 * math.log(len(view.seen) + 1) / ends)
        score = score * market.speed[zones] / view.usd[zones]
        best = int(zones[int(score.argmax())])
        return Decision(best, Reason("ucb", "the highest upper bound of time to the next preemption for a dollar"))


class Ross:
    """ROSS (arXiv 2601.14612), randomised: its paper bounds the expected cost by r times the optimum, r the square root
    of the price on demand over that of spot, where launches take no time and deadlines are not too tight.

    Uniform progress until the time left is (1 + 2 r) / (1 + r) of the work left. From then on spot while there is some,
    and on demand without it in an interval drawn by chance, of 1 / (1 + r) of the work left; then the safety net.
    The paper was known from summaries. Inferred: the interval lies within the time of the work left (there the slack
    ends), and spot is taken in it too."""

    def __init__(self, seed: int = 0) -> None:
        self._rng, self._warm = np.random.default_rng(seed), UniformProgress()
        self._interval: tuple[float, float] | None = None

    def decide(self, view: View) -> Decision:
        market, fallback = view.market, view.market.fallback
        best = view.cheapest_spot()
        ticks = view.work / float(market.speed[fallback])
        if self._interval is None:
            quoted = float(np.where(market.spot & np.isfinite(view.usd), view.usd / market.speed, np.inf).min())
            ratio = float(view.usd[fallback] / market.speed[fallback]) / quoted if np.isfinite(quoted) else 1.0
            root = math.sqrt(max(ratio, 1.0))
            if view.left > ticks * (1 + 2 * root) / (1 + root):
                return self._warm.decide(view)
            length = ticks / (1 + root)
            begin = view.tick + float(self._rng.uniform(0.0, max(ticks - length, 0.0)))
            self._interval = (begin, begin + length)
        low, high = self._interval
        facts = {"from_tick": low, "to_tick": high}
        if best is not None:
            return Decision(best, Reason("spot", "a spot instance can be had", facts))
        if low <= view.tick < high:
            return Decision(fallback, Reason("drawn", "on demand in an interval drawn by chance", facts))
        return Decision(None, Reason("no-spot", "waits: no spot instance can be had", facts))
