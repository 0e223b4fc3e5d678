"""Ours: a Markov decision by backward induction over work left, time left, what runs, and how long capacity has been
there or away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.core import Reason
from shoal.market.history import Floats, Integers
from shoal.market.policy.beliefs import COUNT, Rates, class_of, classes, learn
from shoal.market.policy.view import Decision, View
from shoal.market.ticks import Bools, Market

_Where = tuple[Integers, Floats]
"""Points of the grid, and the weight of each one's upper neighbour."""

WAIT, SPOT, DEMAND = 0, 1, 2
_WORDS = ("wait", "spot", "on demand")


@dataclass(frozen=True)
class Terms:
    """What a tick costs and does, spot and on demand; the launch of each costs `begin` on top of its ticks."""

    usd: tuple[float, float]
    speed: tuple[float, float]
    begin: tuple[float, float]
    launch: int
    lost: float

    def like(self, other: Terms) -> bool:
        """Whether a plan for the other serves: prices of now are charged in this tick anyway."""
        near = np.isclose(self.usd, other.usd, rtol=0.05).all() and np.isclose(self.begin, other.begin, rtol=0.05).all()
        return bool(near) and (self.speed, self.launch, self.lost) == (other.speed, other.launch, other.lost)


class Plan:
    """Expected cost to finish, `cost[left][a, s, w]`, with `left` ticks to go: `a` is the state of capacity (`COUNT`
    age classes away, then as many there), `s` what runs, `w` work left in ticks.

    A launch is charged as work that is owed; the safety net knows launches exactly."""

    def __init__(self, terms: Terms, rates: Rates, work: float, left: int, tick_s: float) -> None:
        self._terms, self._move = terms, transitions(rates, tick_s)
        self._switch = rates.switch
        self._grid = max(terms.speed)
        self._size = int(np.ceil((work + 3 * terms.launch * self._grid + terms.lost) / self._grid)) + 2
        level = np.asarray(np.arange(self._size + 1) * self._grid, dtype=np.float64)
        hopeless = 1e3 * max(terms.usd) * (level / self._grid + 1)  # grows with the work that was not done
        cost = np.tile(hopeless, (2 * COUNT, 3, 1))
        cost[:, :, 0] = 0.0
        self.cost: list[Floats] = [cost]
        steps = [self._after(level - speed) for speed in terms.speed]
        owed = [self._after(level + terms.launch * speed - speed) for speed in terms.speed]
        redone = self._after(level + terms.lost)
        parts = [np.minimum(1.0, level / speed) for speed in terms.speed]
        close = 1e-5 * max(terms.usd)
        for _ in range(left):
            before, cost = cost, self._back(cost, steps, owed, redone, parts)
            self.cost.append(cost)
            if float(np.abs(cost - before).max()) < close:
                break  # more time than this changes nothing

    def _after(self, level: Floats) -> _Where:
        """Where work falls on the grid: the point below and the weight of the one above."""
        at = np.clip(level / self._grid, 0, self._size)
        low = np.minimum(at.astype(np.int64), self._size - 1)
        return low, at - low

    @staticmethod
    def _pick(cost: Floats, where: _Where) -> Floats:
        low, part = where
        if not part.any():
            return np.asarray(cost[..., low])
        return np.asarray(cost[..., low] * (1 - part) + cost[..., low + 1] * part)

    def _back(
        self, cost: Floats, steps: list[_Where], owed: list[_Where], redone: _Where, parts: list[Floats]
    ) -> Floats:
        terms, there = self._terms, slice(COUNT, None)
        # At the beginning of a tick an instance that is gone has lost its work.
        begun = cost.copy()
        begun[:COUNT, SPOT] = self._pick(cost[:COUNT, WAIT], redone)
        if self._switch:
            gone = self._pick(cost[there, WAIT], redone)
            begun[there, SPOT] = (1 - self._switch) * cost[there, SPOT] + self._switch * gone
        ahead = np.tensordot(self._move, begun, axes=1)
        now = np.empty_like(cost)
        wait = ahead[:, WAIT]
        start = [terms.usd[k] + terms.begin[k] + self._pick(ahead[:, k + 1], owed[k]) for k in (0, 1)]
        stay = [terms.usd[k] * parts[k] + self._pick(ahead[:, k + 1], steps[k]) for k in (0, 1)]
        start[0][:COUNT] = stay[0][:COUNT] = np.inf  # there is none
        best = np.minimum(wait, np.minimum(start[0], start[1]))
        now[:, WAIT] = best
        now[:, SPOT] = np.minimum(best, stay[0])
        now[:, DEMAND] = np.minimum(best, stay[1])
        now[:, :, 0] = 0.0
        return now

    def choices(self, left: int, capacity: int, running: int, work: float, usd: tuple[float, float]) -> Floats:
        """Expected dollars to the end of waiting, spot and on demand in this tick, at the prices of now."""
        terms = self._terms
        cost = self.cost[min(left, len(self.cost)) - 1]
        found = np.full(3, np.inf)
        for action in (WAIT, SPOT, DEMAND):
            if action == SPOT and capacity < COUNT:
                continue
            level, paid = work, 0.0
            if action:
                k = action - 1
                level -= terms.speed[k]
                paid = usd[k]
                if running != action:
                    level += terms.launch * terms.speed[k]
                    paid += terms.begin[k]
                elif work < terms.speed[k]:
                    paid *= work / terms.speed[k]
            where = self._after(np.array([max(level, 0.0)]))
            after = self._pick(cost[:, action], where)[:, 0]
            if action == SPOT:
                gone = self._pick(cost[:, WAIT], self._after(np.array([max(level, 0.0) + terms.lost])))[:, 0]
                share = np.concatenate([np.ones(COUNT), np.full(COUNT, self._switch)])
                after = (1 - share) * after + share * gone
            found[action] = paid + float(self._move[capacity] @ after)
        return found


def transitions(rates: Rates, tick_s: float) -> Floats:
    """The chain of capacity: `COUNT` classes of being away, then as many of being there."""
    move = np.zeros((2 * COUNT, 2 * COUNT))
    widths = classes(tick_s)
    for state, hazards in enumerate(rates.hazards):
        for at, hazard in enumerate(hazards):
            here = state * COUNT + at
            move[here, (1 - state) * COUNT] = hazard
            older = (1 - hazard) / widths[at]
            if at + 1 < COUNT:
                move[here, here + 1] = older
                move[here, here] = 1 - hazard - older
            else:
                move[here, here] = 1 - hazard
    return move


def lives(rates: Rates, tick_s: float) -> Floats:
    """The mean number of ticks that capacity stays, by its age class."""
    stay = transitions(rates, tick_s)[COUNT:, COUNT:]
    return np.asarray(np.linalg.solve(np.eye(COUNT) - stay, np.ones(COUNT)))


class Markov:
    """Decides by a `Plan` that is made anew every `again` ticks, from what others saw (`prior`) and what the
    job sees.

    Among spot offers: the cheapest by work, launches to come included. How long each zone's capacity can be expected
    to last follows from what was seen of it and how long it has been there."""

    def __init__(self, prior: Rates | None = None, *, worth: float = 30.0, again: int = 48) -> None:
        self._prior, self._again = (prior or _COMMON).weighed(worth), again
        self._plan: Plan | None = None
        self._made, self._terms = -1, Terms((0.0, 0.0), (0.0, 0.0), (0.0, 0.0), 0, 0.0)
        self._looked, self._lives = -1, dict[int, float]()

    def decide(self, view: View) -> Decision:
        market, spot = view.market, self._spot(view)
        state: Bools = np.asarray(view.seen[:, market.spot].any(axis=1))
        capacity = COUNT * int(state[-1]) + class_of(_age(state), market.tick_s)
        quoted = spot if spot is not None else _likely(view)
        if quoted is None:
            return Decision(market.fallback, Reason("no-spot-offers", "there are only offers on demand"))
        plan = self._planned(view, quoted)
        running = WAIT if view.running is None else SPOT if market.spot[view.running] else DEMAND
        prices = (float(view.usd[quoted]), float(view.usd[market.fallback]))
        work = view.work + view.launching * (0.0 if view.running is None else float(market.speed[view.running]))
        costs = plan.choices(view.left, capacity, running, work, prices)
        best = int(costs.argmin())
        target = (None, spot, market.fallback)[best]
        facts = {word: float(usd) for word, usd in zip(_WORDS, costs, strict=True) if np.isfinite(usd)}
        # A plan that can no longer end in time expects absurd costs; the safety net has decided long before.
        others = ", ".join(f"{word} ${usd:.2f}" for word, usd in facts.items() if word != _WORDS[best])
        where = "" if target is None else f" on {market.offers[target].name}"
        text = f"{_WORDS[best]}{where}: ${costs[best]:.2f} expected to the end ({others})"
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
        if view.tick != self._looked:
            self._looked, self._lives = view.tick, {}
        if j not in self._lives:
            seen = view.seen[:, j : j + 1]
            rates = self._prior + learn(seen, view.market.tick_s)
            self._lives[j] = float(lives(rates, view.market.tick_s)[class_of(_age(seen[:, 0]), view.market.tick_s)])
        return self._lives[j]

    def _planned(self, view: View, quoted: int) -> Plan:
        market = view.market
        stale = view.tick - self._made >= self._again or view.tick < self._made
        terms = terms_of(view, quoted)
        if self._plan is None or stale or not terms.like(self._terms):
            rates = self._prior + learn(view.seen[:, market.spot], market.tick_s)
            self._plan = Plan(terms, rates, view.work, view.left, market.tick_s)
            self._made, self._terms = view.tick, terms
        return self._plan


def terms_of(view: View, quoted: int) -> Terms:
    market, pair = view.market, (quoted, view.market.fallback)
    return Terms(
        usd=(float(view.usd[pair[0]]), float(view.usd[pair[1]])),
        speed=(float(market.speed[pair[0]]), float(market.speed[pair[1]])),
        begin=(float(market.launch_usd[pair[0]]), float(market.launch_usd[pair[1]])),
        launch=market.launch, lost=market.lost,
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


def prior_of(markets: list[Market]) -> Rates:
    """What other zones, or other days, saw."""
    total = Rates.none()
    for market in markets:
        total = total + learn(market.up[:, market.spot], market.tick_s)
    return total
