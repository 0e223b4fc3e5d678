"""Expected cost to finish, by backward induction over work left, time left, what runs, and how long capacity has been
there or away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.market.history import Floats, Integers
from shoal.market.policy.beliefs import COUNT, Rates, classes

_Where = tuple[Integers, Floats]
"""Points of the grid, and the weight of each one's upper neighbour."""

WAIT, SPOT, DEMAND = 0, 1, 2


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

    A launch is charged as work that is owed; the safety net knows launches exactly. `each` is the ticks in a step of
    the grid, and `error` the part by which longer steps may put the expected cost wrong."""

    each = 1
    error = 0.0

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

    def _layer(self, left: int) -> Floats:
        return self.cost[min(left, len(self.cost) - 1)]

    def expected(self, left: int, work: float) -> Floats:
        """Expected dollars to the end where nothing runs, by state of capacity."""
        return np.asarray(self._pick(self._layer(left)[:, WAIT], self._after(np.array([work])))[:, 0])

    def choices(self, left: int, capacity: int, running: int, work: float, usd: tuple[float, float]) -> Floats:
        """Expected dollars to the end of waiting, spot and on demand in this tick, at the prices of now."""
        terms = self._terms
        cost = self._layer(left - 1)
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
