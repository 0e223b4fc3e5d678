"""Ours: a Markov decision on a plan of expected costs, learned from what was seen of capacity."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from shoal.core import Reason
from shoal.market.history import Floats
from shoal.market.policy.beliefs import COUNT, Rates, class_of, learn
from shoal.market.policy.coarse import plan_for
from shoal.market.policy.plan import DEMAND, SPOT, WAIT, Plan, Terms, lives
from shoal.market.policy.view import Decision, View
from shoal.market.ticks import Bools, Ticks

_WORDS = ("wait", "spot", "on demand")
_EQUAL = 1e-3
"""Costs within this part of the least are equal: then the job goes on, or begins, before it waits."""
_SELDOM = 200
"""The number of ticks after which a zone's rates are learned anew every second tick; after twice as many, every
third."""


class Markov:
    """Decides by a `Plan` that is made anew every `again` ticks, from what others saw (`prior`) and what the
    job sees.

    Among spot offers: the cheapest by work, launches to come included. How long each zone's capacity can be expected
    to last follows from what was seen of it and how long it has been there."""

    def __init__(self, prior: Rates | None = None, *, worth: float = 30.0, again: int = 48) -> None:
        self._prior, self._again = (prior or _COMMON).weighed(worth), again
        self._plan: Plan | None = None
        self._made, self._terms = -1, Terms((0.0, 0.0), (0.0, 0.0), (0.0, 0.0), 0, 0.0)
        self._looked, self._lives = -1, dict[int, Floats]()

    def decide(self, view: View) -> Decision:
        market, spot = view.market, self._spot(view)
        state: Bools = np.asarray(view.seen[:, market.spot].any(axis=1))
        capacity = COUNT * int(state[-1]) + class_of(_age(state), market.tick_s)
        quoted = spot if spot is not None else _likely(view)
        if quoted is None:
            return Decision(market.fallback, Reason("no-spot-offers", "there are only offers on demand"))
        demand = steady(view)
        plan = self._planned(view, quoted, demand)
        running = SPOT if view.running is not None and market.spot[view.running] else WAIT
        running = DEMAND if view.running == demand else running
        prices = (float(view.usd[quoted]), float(view.usd[demand]))
        costs = plan.choices(view.left, capacity, running, view.launching, view.work, prices)
        best = _least(costs, running)
        target = (None, spot, demand)[best]
        facts = {word: float(usd) for word, usd in zip(_WORDS, costs, strict=True) if np.isfinite(usd)}
        # A plan that can no longer end in time expects absurd costs; the safety net has decided long before.
        others = ", ".join(f"{word} ${usd:.2f}" for word, usd in facts.items() if word != _WORDS[best])
        where = "" if target is None else f" on {market.offers[target].name}"
        text = f"{_WORDS[best]}{where}: ${costs[best]:.2f} expected to the end ({others})"
        if plan.error:
            step_h = plan.each * market.tick_s / 3600
            text += f", each +-{plan.error:.0%}: planned in steps of {step_h:.1f} h"
            facts |= {"error": plan.error, "step_h": step_h}
        return Decision(target, Reason("least-expected", text, facts))

    def _spot(self, view: View) -> int | None:
        market = view.market
        there = np.flatnonzero(market.spot & view.up)
        if len(there) <= 1:
            return int(there[0]) if len(there) else None
        rank = []
        for j in there:
            lasts, work = self._lasting(view, int(j)), max(view.work / float(market.speed[j]), 1.0)
            begin = float(market.launch_usd[j] + market.launch * view.usd[j])
            first = 0.0 if j == view.running else begin / min(lasts, work)
            rank.append((float(view.usd[j]) + first + begin / lasts) / float(market.speed[j]))
        best = int(np.argmin(rank))
        if view.running in there:
            at = int(np.flatnonzero(there == view.running)[0])
            best = at if rank[at] <= rank[best] * (1 + 1e-9) else best
        return int(there[best])

    def _lasting(self, view: View, j: int) -> float:
        """Ticks that this zone's capacity can be expected to stay."""
        if not 0 <= view.tick - self._looked <= view.tick // _SELDOM:
            self._looked, self._lives = view.tick, {}
        if j not in self._lives:
            self._lives[j] = lives(self._prior + learn(view.seen[:, j : j + 1], view.market.tick_s), view.market.tick_s)
        return float(self._lives[j][class_of(_age(view.seen[:, j]), view.market.tick_s)])

    def _planned(self, view: View, quoted: int, demand: int) -> Plan:
        market = view.market
        again = self._again if self._plan is None else self._again * self._plan.each
        stale = view.tick - self._made >= again or view.tick < self._made
        terms = terms_of(view, quoted, demand)
        if self._plan is None or stale or not terms.like(self._terms):
            rates = self._prior + learn(view.seen[:, market.spot], market.tick_s)
            self._plan = plan_for(terms, rates, view.work, view.left, market.tick_s)
            self._made, self._terms = view.tick, terms
        return self._plan


def _least(costs: Floats, running: int) -> int:
    near = costs <= float(costs.min()) * (1 + _EQUAL)
    return next(action for action in (running or SPOT, SPOT, DEMAND, WAIT) if near[action])


def steady(view: View) -> int:
    """The offer on demand to plan with: of those that alone end in time the cheapest from here to the end, or else the
    fastest."""
    market, costs = view.market, dict[int, float]()
    for j in np.flatnonzero(~market.spot).tolist():
        launch = view.launching if j == view.running else market.launch
        ticks = launch + view.work / float(market.speed[j])
        if math.ceil(ticks - 1e-9) + (0 if j == view.running else market.retries) <= view.left:
            begin = 0.0 if j == view.running else float(market.launch_usd[j])
            costs[j] = begin + ticks * float(view.usd[j])
    return min(costs, key=costs.__getitem__) if costs else market.fallback


def terms_of(view: View, quoted: int, demand: int) -> Terms:
    market, pair = view.market, (quoted, demand)
    return Terms(
        usd=(float(view.usd[pair[0]]), float(view.usd[pair[1]])),
        speed=(float(market.speed[pair[0]]), float(market.speed[pair[1]])),
        begin=(float(market.launch_usd[pair[0]]), float(market.launch_usd[pair[1]])),
        launch=market.launch, lost=market.lost, retries=market.retries, most=market.work,
        surely=float(market.speed[market.fallback]),
    )  # fmt: skip


def _likely(view: View) -> int | None:
    """The spot offer that would be cheapest if it could be had."""
    rank = np.where(view.market.spot & np.isfinite(view.usd), view.usd / view.market.speed, np.inf)
    return int(rank.argmin()) if np.isfinite(rank).any() else None


def _age(state: Bools) -> int:
    other = np.flatnonzero(state != state[-1])
    return len(state) - 1 - int(other[-1]) - 1 if len(other) else len(state) - 1


_COMMON = Rates(np.full((2, COUNT), 50.0), np.array([[5.0, 3.0, 2.0, 1.0, 0.5]] * 2))
"""Where nothing was learned from others: capacity changes every few hours, and less often the longer it lasts."""


def prior_of(markets: Iterable[Ticks]) -> Rates:
    """What other zones, or other days, saw."""
    total = Rates.none()
    for market in markets:
        total = total + learn(market.up[:, market.spot], market.tick_s)
    return total
