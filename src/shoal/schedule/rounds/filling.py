"""Filling the pools of one round: whole gangs in a given order, each job once, within pools and quotas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shoal.schedule.types import Index, Problem, positions


class Entries(NamedTuple):
    """What can be chosen, in order: job `first` (k,) alone, or beside `second` (k,) where that is not -1, in `column`
    (k,) with `need` (k,) accelerators."""

    first: Index
    second: Index
    column: Index
    need: Index

    def take(self, order: Index) -> Entries:
        return Entries(*(part.take(order) for part in self))


class Reserving(NamedTuple):
    """Which (job, column) may have places `reserved` where they find too few, and where jobs are `here` (m,) now, with
    how many accelerators `used` (m,): these may stay on reserved places, others may not come there."""

    here: Index
    used: Index
    may: frozenset[tuple[int, int]]


class Filling:
    """What is free in a round, and who got what: `column` by job (-1: nothing), `need`, and `partner`; how many are
    still `waiting`; in which column places are `reserved` for a job (-1: in none)."""

    def __init__(self, problem: Problem) -> None:
        self._pool_of = problem.pool_of.tolist()
        self.left = [pool.count for pool in problem.pools]
        self.column = [-1] * problem.jobs
        self.need = [0] * problem.jobs
        self.partner = [-1] * problem.jobs
        self.reserved = [-1] * problem.jobs
        self._aside: dict[int, int] = {}
        self.waiting = problem.jobs
        self._tenant = problem.tenant
        self._quotas = [
            (each.tenant, frozenset(positions(each.columns).tolist()), [float(each.most)]) for each in problem.quotas
        ]

    def take(self, tenant: Index, column: Index, need: Index) -> None:
        """What jobs of these tenants (k,) that are none of the problem's hold in these columns (k,)."""
        held = np.bincount(np.take(self._pool_of, column), need, minlength=len(self.left))
        self.left = [room - int(count) for room, count in zip(self.left, held, strict=True)]
        for at, columns, limit in self._quotas:
            limit[0] -= float(need[(tenant == at) & np.isin(column, list(columns))].sum())

    def fill(self, entries: Entries, reserving: Reserving | None = None) -> None:
        """Give each entry, in order, what it needs, if its jobs have nothing yet and there is room. In each pool the
        first one that may have places reserved and lacks some keeps the others from coming there."""
        if reserving is not None and reserving.may:
            self._fill_reserving(entries, reserving)
            return
        left, column, need_of, partner, pool_of = self.left, self.column, self.need, self.partner, self._pool_of
        room, waiting = sum(left), self.waiting
        if not room or not waiting:
            return
        quotas = bool(self._quotas)
        parts: Sequence[list[int]] = [part.tolist() for part in entries]
        for first, second, at, need in zip(*parts, strict=True):
            pool = pool_of[at]
            if need > left[pool] or column[first] >= 0 or (second >= 0 and column[second] >= 0):
                continue
            if quotas and not self._within(first, second, at, need):
                continue
            left[pool] -= need
            column[first], need_of[first] = at, need
            waiting -= 1
            if second >= 0:
                column[second], need_of[second] = at, need
                partner[first], partner[second] = second, first
                waiting -= 1
            room -= need
            if not room or not waiting:
                break
        self.waiting = waiting

    def _fill_reserving(self, entries: Entries, reserving: Reserving) -> None:
        here, used, may = reserving
        parts: Sequence[list[int]] = [part.tolist() for part in (entries.first, entries.column, entries.need)]
        for job, at, need in zip(*parts, strict=True):
            pool = self._pool_of[at]
            if self.column[job] >= 0:
                continue
            room = self._aside if pool in self._aside else self.left
            if pool in self._aside and not (here[job] == at and used[job] == need):
                continue
            if need > room[pool]:
                if pool not in self._aside and (job, at) in may and self.reserved[job] < 0:
                    self.reserved[job] = at
                    self._aside[pool], self.left[pool] = self.left[pool], 0
                continue
            if self._quotas and not self._within(job, -1, at, need):
                continue
            room[pool] -= need
            self.column[job], self.need[job] = at, need
            self.waiting -= 1

    def _within(self, first: int, second: int, column: int, need: int) -> bool:
        """Whether the quotas of the jobs' tenants allow it; if so, it is taken off them. Both of a pair count in
        full: each of them holds the accelerators."""
        using = [(limit, need) for job in (first, second) if job >= 0 for limit in self._limits(job, column)]
        for at, (limit, _) in enumerate(using):
            if limit[0] < sum(each for other, each in using[: at + 1] if other is limit):
                return False
        for limit, each in using:
            limit[0] -= each
        return True

    def _limits(self, job: int, column: int) -> list[list[float]]:
        tenant = self._tenant[job]
        return [limit for at, columns, limit in self._quotas if at == tenant and column in columns]
