"""Plans for long jobs: several ticks in one step of the grid, with the error that this makes."""

from __future__ import annotations

import math

import numpy as np

from shoal.market.history import Floats
from shoal.market.policy.beliefs import COUNT, Rates
from shoal.market.policy.plan import DEMAND, SPOT, WAIT, Plan, Terms, transitions

_LEVELS, _STEPS = 400, 2016
"""Work and time beyond these many points are planned in longer steps."""
_LEAST_ERROR = 0.01


def plan_for(terms: Terms, rates: Rates, work: float, left: int, tick_s: float) -> Plan:
    """On the finest grid that takes a second and a few hundred megabytes."""
    states = (DEMAND + max(terms.launch, 1)) / (DEMAND + 1)
    each = math.ceil(max(work / max(terms.speed) / _LEVELS, left * states / _STEPS))
    return Plan(terms, rates, work, left, tick_s) if each <= 1 else CoarsePlan(terms, rates, work, left, tick_s, each)


class CoarsePlan(Plan):
    """A plan in steps of `each` ticks. Within a step, a job on spot instances takes each one that comes and waits in
    between: its mean progress, launches and losses count, from the chain of single ticks.

    `error` is the part by which the expected cost may be wrong: twice the difference to a plan with steps twice as
    long, and 1 % at least."""

    def __init__(
        self, terms: Terms, rates: Rates, work: float, left: int, tick_s: float, each: int, *, judged: bool = True
    ) -> None:
        self._terms, self._move, self._switch = terms, transitions(rates, tick_s), rates.switch
        self.each, self._grid = each, each * max(terms.speed)
        self._size = int(np.ceil((work + 3 * terms.launch * max(terms.speed) + terms.lost) / self._grid)) + 2
        self._level = np.asarray(np.arange(self._size + 1) * self._grid, dtype=np.float64)
        hopeless = 1e3 * max(terms.usd) * (self._level / max(terms.speed) + 1)
        cost = np.tile(hopeless, (2 * COUNT, 3, 1))
        cost[:, :, 0] = 0.0
        self.cost = [cost]
        self._later = np.linalg.matrix_power(self._move, each)
        up, starts, losses = _within(self._move, self._switch, each)
        lives = _survival(self._move, self._switch, terms.launch)
        self._launch, self._lost = float(lives[:-1].sum()), terms.lost * float(lives[-1])
        moved = [[self._moved(float(up[a]), float(starts[a]), float(losses[a]))] for a in range(2 * COUNT)]
        for a in range(COUNT, 2 * COUNT):
            moved[a].append(self._moved(float(up[a]), float(starts[a]) + 1.0, float(losses[a])))
        demand = [each * terms.speed[1], (each - terms.launch) * terms.speed[1]]
        paid = [each * terms.usd[1], each * terms.usd[1] + terms.begin[1]]
        self._demand = [
            (self._after(self._level - one), self._part(one) * usd) for one, usd in zip(demand, paid, strict=True)
        ]
        self._spot = [[(self._after(self._level - one), self._part(one) * usd) for one, usd in row] for row in moved]
        redone, close = self._after(terms.after_loss(self._level)), 1e-5 * max(terms.usd)
        for _ in range(math.ceil(left / each)):
            begun = cost.copy()
            begun[:COUNT, SPOT] = self._pick(cost[:COUNT, WAIT], redone)
            gone = self._pick(cost[COUNT:, WAIT], redone)
            begun[COUNT:, SPOT] = (1 - self._switch) * cost[COUNT:, SPOT] + self._switch * gone
            before, cost = cost, self._step(np.tensordot(self._later, begun, axes=1))
            self.cost.append(cost)
            if float(np.abs(cost - before).max()) < close:
                break
        self.error = self._judged(rates, work, left, tick_s) if judged else 0.0

    def _moved(self, up: float, starts: float, losses: float) -> tuple[float, float]:
        """Work done and dollars of a step on spot instances."""
        terms = self._terms
        done = (up - starts * self._launch) * terms.speed[0] - losses * self._lost
        return done, up * terms.usd[0] + starts * terms.begin[0]

    def _part(self, done: float) -> Floats:
        """Of a step in which the work may end."""
        return np.minimum(1.0, self._level / done) if done > 0 else np.ones(self._size + 1)

    def _step(self, ahead: Floats) -> Floats:
        """The step before, from what is expected after it."""
        now = np.empty_like(ahead)
        where, paid = self._demand[1]
        best = np.minimum(ahead[:, WAIT], paid + self._pick(ahead[:, DEMAND], where))
        for a, row in enumerate(self._spot):
            where, paid = row[-1]
            best[a] = np.minimum(best[a], paid + self._pick(ahead[a, SPOT], where))
            where, paid = row[0]
            now[a, SPOT] = paid + self._pick(ahead[a, SPOT], where)
        now[:, WAIT] = best
        now[:, SPOT] = np.minimum(now[:, SPOT], best)
        where, paid = self._demand[0]
        now[:, DEMAND] = np.minimum(best, paid + self._pick(ahead[:, DEMAND], where))
        now[:, :, 0] = 0.0
        return now

    def _next(self, action: int, to_come: int, work: float) -> tuple[int, float]:
        """The launch is charged as work that is owed."""
        return action, work + (to_come - 1) * self._terms.speed[action - 1]

    def _layer(self, left: int) -> Floats:
        at = min(left / self.each, len(self.cost) - 1.0)
        low = min(int(at), len(self.cost) - 2)
        return np.asarray((1 - at + low) * self.cost[low] + (at - low) * self.cost[low + 1])

    def _judged(self, rates: Rates, work: float, left: int, tick_s: float) -> float:
        other = CoarsePlan(self._terms, rates, work, left, tick_s, 2 * self.each, judged=False)
        one, two = (plan.expected(left, work) for plan in (self, other))
        return max(_LEAST_ERROR, 2 * float(np.abs(two / one - 1).max()))


def _within(move: Floats, switch: float, each: int) -> tuple[Floats, Floats, Floats]:
    """For each state of capacity at the beginning of a step: the mean number of ticks with capacity, of instances that
    start after the first tick, and of those that end before the last."""
    there = np.concatenate([np.zeros(COUNT), np.ones(COUNT)])
    chance = np.eye(2 * COUNT)
    up, starts, losses = chance @ there, np.zeros(2 * COUNT), np.zeros(2 * COUNT)
    for _ in range(each - 1):
        comes, goes = move @ there * (1 - there), move @ (1 - there) * there
        stays = switch * (move @ there * there)
        starts, losses = starts + chance @ (comes + stays), losses + chance @ (goes + stays)
        chance = chance @ move
        up = up + chance @ there
    return up, starts, losses


def _survival(move: Floats, switch: float, ticks: int) -> Floats:
    """For 0 to `ticks` ticks, the chance that an instance on capacity that has just come stays for so long: a launch
    that ends before costs no more ticks, and loses no work."""
    chance, found = np.eye(2 * COUNT)[COUNT], [1.0]
    for _ in range(ticks):
        chance = chance @ move * (1 - switch)
        chance[:COUNT] = 0.0
        found.append(float(chance.sum()))
    return np.array(found)
