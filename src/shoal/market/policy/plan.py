"""Expected cost to finish, by backward induction over work left, time left, what runs, and how long capacity has been
there or away."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shoal.market.history import Floats, Integers
from shoal.market.policy.beliefs import COUNT, Rates, classes
from shoal.market.ticks import Bools

_Where = tuple[Integers, Floats]
"""Points of the grid, and the weight of each one's upper neighbour."""

WAIT, SPOT, DEMAND = 0, 1, 2


@dataclass(frozen=True)
class Terms:
    """What a tick costs and does, spot and on demand; the launch of each costs `begin` on top of its ticks. No loss
    leaves more than `most` work. The safety net ends the work at speed `surely` (0: that on demand), after a launch and
    at most `retries` failed launches."""

    usd: tuple[float, float]
    speed: tuple[float, float]
    begin: tuple[float, float]
    launch: int
    lost: float
    retries: int = 0
    most: float = np.inf
    surely: float = 0.0

    def after_loss(self, level: Floats) -> Floats:
        return np.asarray(np.minimum(level + self.lost, np.maximum(level, self.most)))

    def like(self, other: Terms) -> bool:
        """Whether a plan for the other serves: prices of now are charged in this tick anyway."""
        near = np.isclose(self.usd, other.usd, rtol=0.05).all() and np.isclose(self.begin, other.begin, rtol=0.05).all()
        return bool(near) and replace(self, usd=other.usd, begin=other.begin) == other


class _Net:
    """What the safety net leaves to choose, as `safe` has it, by work left (w,)."""

    def __init__(self, terms: Terms, level: Floats) -> None:
        worked = np.maximum(level - terms.speed[0], 0.0)
        launched, lost = terms.after_loss(level), np.where(worked > 0, terms.after_loss(worked), 0.0)
        started = launched if terms.launch else np.maximum(level, lost)
        before, speed = 1 + terms.launch + terms.retries, terms.surely or terms.speed[1]
        # The least ticks to go at which waiting, starting, working and launching still leave time for the fallback.
        self._least = before + np.ceil(np.stack([level, started, lost, launched]) / speed - 1e-9)
        self._least[2, lost == 0] = 0
        self.most = int(self._least.max())

    def allows(self, left: int) -> Bools:
        return np.asarray(self._least <= left)


def _launching(to_come: int) -> int:
    return DEMAND + to_come if to_come else SPOT


class Plan:
    """Expected cost to finish, `cost[left][a, s, w]`, with `left` ticks to go: `a` is the state of capacity (`COUNT`
    age classes away, then as many there), `s` what runs, `w` work left in ticks. Behind `WAIT`, `SPOT` and `DEMAND`
    come spot instances with 1, 2, ... ticks of their launch to come; the launch on demand is charged as work that is
    owed. Where only the safety net's choice is allowed, it is what the plan does. `each` is the ticks in a step of the
    grid, and `error` the part by which longer steps may put the expected cost wrong."""

    each = 1
    error = 0.0

    def __init__(self, terms: Terms, rates: Rates, work: float, left: int, tick_s: float) -> None:
        self._terms, self._move = terms, transitions(rates, tick_s)
        self._switch = rates.switch
        self._grid = max(terms.speed)
        self._size = int(np.ceil((work + 3 * terms.launch * self._grid + terms.lost) / self._grid)) + 2
        level = np.asarray(np.arange(self._size + 1) * self._grid, dtype=np.float64)
        hopeless = 1e3 * max(terms.usd) * (level / self._grid + 1)  # grows with the work that was not done
        cost = np.tile(hopeless, (2 * COUNT, DEMAND + max(terms.launch, 1), 1))
        cost[:, :, 0] = 0.0
        self.cost: list[Floats] = [cost]
        steps = [self._after(level - speed) for speed in terms.speed]
        owed = self._after(level + (terms.launch - 1) * terms.speed[1])
        redone = self._after(terms.after_loss(level))
        parts = [np.minimum(1.0, level / speed) for speed in terms.speed]
        net = _Net(terms, level)
        close = 1e-5 * max(terms.usd)
        for ticks in range(1, left + 1):
            before, cost = cost, self._back(cost, steps, owed, redone, parts, net.allows(ticks))
            self.cost.append(cost)
            if ticks > net.most and float(np.abs(cost - before).max()) < close:
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
        self, cost: Floats, steps: list[_Where], owed: _Where, redone: _Where, parts: list[Floats], allowed: Bools
    ) -> Floats:
        terms, there, launching = self._terms, slice(COUNT, None), slice(DEMAND + 1, None)
        # At the beginning of a tick an instance that is gone has lost its work; one that launches had none.
        begun = cost.copy()
        begun[:COUNT, SPOT] = self._pick(cost[:COUNT, WAIT], redone)
        begun[:COUNT, launching] = cost[:COUNT, WAIT, None]
        if self._switch:
            gone = self._pick(cost[there, WAIT], redone)
            begun[there, SPOT] = (1 - self._switch) * cost[there, SPOT] + self._switch * gone
            begun[there, launching] = (1 - self._switch) * cost[there, launching]
            begun[there, launching] += self._switch * cost[there, WAIT, None]
        ahead = np.tensordot(self._move, begun, axes=1)
        now = np.empty_like(cost)
        may_wait, may_start, may_stay, may_launch = allowed
        demand = terms.usd[1] + terms.begin[1] + self._pick(ahead[:, DEMAND], owed)
        works = terms.usd[0] * parts[0] + self._pick(ahead[:, SPOT], steps[0])
        begins = terms.begin[0] + (terms.usd[0] + ahead[:, _launching(terms.launch - 1)] if terms.launch else works)
        best = np.minimum(demand, np.where(may_wait, ahead[:, WAIT], np.inf))
        best[there] = np.minimum(best[there], np.where(may_start, begins[there], np.inf))
        now[:] = best[:, None]
        now[there, SPOT] = np.minimum(best[there], np.where(may_stay, works[there], np.inf))
        for k in range(1, terms.launch):
            stays = terms.usd[0] + ahead[there, _launching(k - 1)]
            now[there, _launching(k)] = np.minimum(best[there], np.where(may_launch, stays, np.inf))
        now[:, DEMAND] = np.minimum(best, terms.usd[1] * parts[1] + self._pick(ahead[:, DEMAND], steps[1]))
        now[:, :, 0] = 0.0
        return now

    def _next(self, action: int, to_come: int, work: float) -> tuple[int, float]:
        """What runs after this tick, and the work left, of an instance with this number of ticks of its launch to
        come."""
        if action == SPOT and to_come:
            return _launching(to_come - 1), work
        return action, work + (to_come - 1) * self._terms.speed[action - 1]

    def _layer(self, left: int) -> Floats:
        return self.cost[min(left, len(self.cost) - 1)]

    def expected(self, left: int, work: float) -> Floats:
        """Expected dollars to the end where nothing runs, by state of capacity."""
        return np.asarray(self._pick(self._layer(left)[:, WAIT], self._after(np.array([work])))[:, 0])

    def choices(
        self, left: int, capacity: int, running: int, launching: int, work: float, usd: tuple[float, float]
    ) -> Floats:
        """Expected dollars to the end of waiting, spot and on demand in this tick, at the prices of now. What is
        `running` has `launching` ticks of its launch to come."""
        terms = self._terms
        cost = self._layer(left - 1)
        found = np.full(3, np.inf)
        for action in (WAIT, SPOT, DEMAND):
            if action == SPOT and capacity < COUNT:
                continue
            state, level, paid = action, work, 0.0
            if action:
                to_come = launching if running == action else terms.launch
                state, level = self._next(action, to_come, work)
                paid = usd[action - 1] * (1.0 if to_come else min(1.0, work / terms.speed[action - 1]))
                paid += 0.0 if running == action else terms.begin[action - 1]
            kept = np.array([max(level, 0.0)])
            after = self._pick(cost[:, state], self._after(kept))[:, 0]
            if action == SPOT:
                lost = terms.after_loss(kept) if state == SPOT else kept
                gone = self._pick(cost[:, WAIT], self._after(lost))[:, 0]
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
