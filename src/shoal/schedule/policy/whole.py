"""Whole jobs on whole accelerators, worth the most in sum.

Gangs do not pack by themselves: a program that gives a gang of four half of its time on the last three accelerators
has told nobody what to do. Here jobs get all of a column or nothing. The search fills up by worth per accelerator; then
jobs are exchanged while that raises the sum: one comes in, or goes where it is worth more, and those that it needs the
room of (the cheapest set that frees enough) go elsewhere or wait.
"""

from __future__ import annotations

import numpy as np

from shoal.schedule.policy.subproblem import Subproblem
from shoal.schedule.types import Array, Index, Mask, positions

EXCHANGES = 200
"""The most of them; there were never more than forty in two thousand decisions of a hundred jobs."""

EPS = 1e-9


def whole_jobs(sub: Subproblem, worth: Array) -> Index:
    """(k,) the column of each job of the sub, or -1: `worth` (n, k) is what each column is worth to each job."""
    return _Search(sub, worth).found()


class _Search:
    def __init__(self, sub: Subproblem, worth: Array) -> None:
        market = sub.market
        self._able: Mask = (market.rate > 0.0) & (worth > 0.0)
        self._worth = np.where(self._able, worth, 0.0)
        self._gang = sub.gang.astype(np.intp)
        load = market.constraints[0].load
        self._pool = load.argmax(axis=0) if len(load) else np.zeros(len(market.rate), np.intp)
        self._others = [(each.weight, each.load, each.limit) for each in market.constraints[1:]]
        self._limit = market.constraints[0].limit
        self.column = np.full(len(self._gang), -1, np.intp)
        self._room = self._free(self.column)

    def found(self) -> Index:
        self._fill(self.column, self._room)
        for _ in range(EXCHANGES):
            if not self._exchange():
                break
        return self.column

    def _free(self, column: Index) -> Array:
        """(pools,) what is free."""
        on = positions(column >= 0)
        used = np.bincount(self._pool[column[on]], self._gang[on], minlength=len(self._limit))
        room: Array = self._limit - used
        return room

    def _allowed(self, column: Index, row: int, at: int) -> bool:
        """Whether quotas and whole nodes leave the job room in a column, beside those that are placed."""
        for weight, load, limit in self._others:
            if not weight[row]:
                continue
            on = positions((column >= 0) & (np.arange(len(column)) != row))
            used = load[:, column[on]] @ weight[on]
            if (used + load[:, at] * weight[row] > limit + EPS).any():
                return False
        return True

    def _fill(self, column: Index, room: Array) -> None:
        """Put waiting jobs where there is room, those first that are worth most per accelerator; in place."""
        if not (column < 0).any():
            return
        at, row = np.nonzero(self._able & (column < 0) & (self._gang <= room[self._pool][:, None] + EPS))
        for position in np.argsort(-self._worth[at, row] / self._gang[row], kind="stable").tolist():
            job, place = int(row[position]), int(at[position])
            pool, gang = self._pool[place], self._gang[job]
            if column[job] < 0 and gang <= room[pool] + EPS and self._allowed(column, job, place):
                column[job] = place
                room[pool] -= gang

    def _exchange(self) -> bool:
        """Make the best exchange; false when none is worth it."""
        placed = self.column >= 0
        now = np.where(placed, self._worth[np.maximum(self.column, 0), np.arange(len(placed))], 0.0)
        pool = np.where(placed, self._pool[self.column], -1)
        # A job that changes columns of one pool brings its own room along.
        comes = self._able & (self._worth > now) & (self._pool[:, None] != pool)
        loss = now - self._elsewhere(now)
        gain = np.full(self._worth.shape, -np.inf)
        choices = {}
        for at in positions(comes.any(axis=1)).tolist():
            cost, choices[at] = self._cheapest(positions(pool == self._pool[at]), loss)
            need = np.maximum(self._gang - self._room[self._pool[at]], 0.0).astype(np.intp)
            gain[at] = np.where(comes[at], self._worth[at] - now - cost[np.minimum(need, len(cost) - 1)], -np.inf)
        total = float(now.sum())
        if not gain.max(initial=-np.inf) > EPS * max(total, EPS):
            return False
        for best in np.argsort(-gain, axis=None)[:8].tolist():
            at, row = divmod(best, len(self.column))
            if not float(gain[at, row]) > EPS * max(total, EPS):
                return False
            if self._try(row, at, choices[at], total):
                return True
        return False

    def _elsewhere(self, now: Array) -> Array:
        """(k,) what each placed job is worth where there is room for it now, at most what it is worth in its place."""
        fits = self._able & (self._gang <= self._room[self._pool][:, None] + EPS)
        fits[np.maximum(self.column, 0), np.arange(len(self.column))] = False
        best: Array = np.where(fits, self._worth, 0.0).max(axis=0)
        return np.minimum(best, now)

    def _cheapest(self, there: Index, loss: Array) -> tuple[Array, list[tuple[int, ...]]]:
        """For each number of accelerators up to the largest gang: the least loss (k,) of jobs that are `there` which
        frees as many, and by whom."""
        most = int(self._gang.max(initial=1))
        cost = [0.0, *[np.inf] * most]
        choice: list[tuple[int, ...]] = [()] * (most + 1)
        there = there[np.argsort(loss[there] / self._gang[there], kind="stable")[: 4 * most]]
        for job, gang, lost in zip(there.tolist(), self._gang[there].tolist(), loss[there].tolist(), strict=True):
            for needed in range(most, 0, -1):
                other = cost[max(needed - gang, 0)] + lost
                if other < cost[needed]:
                    cost[needed], choice[needed] = other, (*choice[max(needed - gang, 0)], job)
        return np.array(cost), choice

    def _try(self, row: int, at: int, choice: list[tuple[int, ...]], total: float) -> bool:
        """Do it, and keep it if the sum rose."""
        column = self.column.copy()
        pool, gang = self._pool[at], int(self._gang[row])
        need = max(int(np.ceil(gang - self._room[pool] - EPS)), 0)
        for job in choice[need]:
            column[job] = -1
        column[row] = -1
        if not self._allowed(column, row, at):
            return False
        column[row] = at
        room = self._free(column)
        if (room < -EPS).any():
            return False
        self._fill(column, room)
        rows = positions(column >= 0)
        if self._worth[column[rows], rows].sum() <= total * (1.0 + EPS):
            return False
        self.column, self._room = column, room
        return True
