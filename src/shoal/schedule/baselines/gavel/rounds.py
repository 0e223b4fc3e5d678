"""Gavel's rounds (OSDI'20, section 5): priorities are allocation over time received since the allocation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.core import Invalid
from shoal.schedule.rounds.filling import Entries, Filling
from shoal.schedule.rounds.next_round import LITTLE, sizes
from shoal.schedule.types import Allocation, Array, Index, Mask, Problem, no_pairs, positions

T = TypeVar("T", np.float64, np.intp, np.bool_)

SHUFFLES = 5
"""Added to the seed, as Gavel does."""


@dataclass(frozen=True, slots=True)
class GavelSettings:
    """`spare` gives out what no share asks for; `shuffle` seeds the order in which columns are visited (None: the
    fastest first). `published` has the habits of Gavel's code, without which its tables do not come out:

    - Every share counts, however small. An interior point solver (`centre.py`) leaves a little of every type to
      every job, and what is left over in a round goes by these.
    - A job that came after the allocation is chosen for what is left over, but not started: its place stays empty until
      it is part of an allocation.
    - Columns are shuffled by Python's generator, seeded as Gavel seeds it."""

    round_s: float = 360.0
    spare: bool = True
    shuffle: int | None = None
    published: bool = False


class GavelRound(NamedTuple):
    """The jobs (m,) of `problem` in one round: the column of each or -1, on how many accelerators, with which partner
    or -1; which stay where they are, which are started again, and which stop."""

    problem: Problem
    column: Index
    accelerators: Index
    partner: Index
    kept: Mask
    restarted: Mask
    stopped: Mask


class PairShares(NamedTuple):
    """Shares of pairs, and the seconds that they received since the allocation."""

    first: Index
    second: Index
    column: Index
    share: Array
    received: Array

    def kept(self, keep: Mask) -> PairShares:
        first, second, column, share, received = self
        return PairShares(first[keep], second[keep], column[keep], share[keep], received[keep])


class GavelRounds:
    """Who runs where, round after round.

    Use it so: `enter(problem, allocation, now=...)` whenever there is a new allocation, `enter(problem, now=...)` when
    only jobs changed (shares stay with the jobs that are still there), `next(now)` for the round that begins now.
    Between two calls the jobs of the last round are taken to have run, unless they are `gone`.
    """

    def __init__(self, settings: GavelSettings | None = None) -> None:
        self.settings = settings or GavelSettings()
        self._problem: Problem | None = None
        self._settled: float | None = None
        self._chance = np.random.default_rng(self.settings.shuffle)
        self._shuffler = random.Random((self.settings.shuffle or 0) + SHUFFLES)  # noqa: S311
        self._row_of: dict[str, int] = {}
        self._allotted: frozenset[str] = frozenset()
        self._share = self._credit = self._received = np.empty((0, 0))
        self._placed = self._used = self._size = self._partner = np.empty(0, np.intp)
        self._rank = self._at = self._in = np.empty(0, np.intp)
        self._ran = np.empty(0, np.bool_)
        self._pairs = PairShares(*no_pairs(), np.empty(0))

    def enter(self, problem: Problem, allocation: Allocation | None = None, *, now: float) -> None:
        """These are the jobs from now on, and their deficits. Jobs that are no longer named are forgotten. Raises
        `Invalid` if the allocation is of another problem."""
        if allocation is not None and allocation.problem is not problem:
            raise Invalid("the allocation was made for another problem", where="allocation")
        self._settle(now)
        if problem is not self._problem:
            self._adopt(problem)
        if allocation is not None:
            self._allot(allocation)

    def gone(self, job: int) -> None:
        """This job of the present problem has ended; it need not be entered anew to say so."""
        other = int(self._partner[job])
        if other >= 0:
            self._partner[other] = -1
        self._placed[job], self._partner[job], self._used[job] = -1, -1, 0
        self._share[job], self._credit[job] = 0.0, 0.0
        kept = self._at != job
        self._at, self._in = self._at[kept], self._in[kept]
        self._pairs = self._pairs.kept((self._pairs.first != job) & (self._pairs.second != job))

    def placed(self, ids: Sequence[str]) -> Index:
        """(k,) the column of the present problem that each of these jobs runs in, or -1."""
        rows = self._rows(ids)
        return _taken(self._placed, rows, positions(rows < 0), -1)

    def next(self, now: float) -> GavelRound:
        """The round that begins now. Raises `Invalid` before `enter`."""
        problem = self._problem
        if problem is None:
            raise Invalid("there is nothing to make a round of", hint="tell it the jobs first: enter(problem, ...)")
        self._settle(now)
        self._settled = now
        filling = Filling(problem)
        filling.fill(self._by_priority())
        column, used = np.array(filling.column, np.intp), np.array(filling.need, np.intp)
        partner = np.array(filling.partner, np.intp)
        if self.settings.published:
            came = [at for at, name in enumerate(problem.ids) if name not in self._allotted]
            waits = [at for at in came if column[at] >= 0 and column[at] != self._placed[at]]
            column[waits], used[waits] = -1, 0
        runs = column >= 0
        stays = runs & (column == self._placed) & (used == self._used)
        stopped = (self._placed >= 0) & ~runs
        found = GavelRound(problem, column, used, partner, stays, runs & self._ran & ~stays, stopped)
        self._placed, self._used, self._partner = column.copy(), used.copy(), partner.copy()
        self._ran = self._ran | runs
        return found

    def _adopt(self, problem: Problem) -> None:
        """Make arrays for a new set of jobs, with what is known of those that were there before."""
        if self._problem is None:
            self._share = self._credit = self._received = np.empty((0, len(problem.columns)))
        rows = self._rows(problem.ids)
        fresh = positions(rows < 0)
        now_at = np.full(len(self._row_of) + 1, -1, np.intp)  # for each old row its new one, or -1 (last: -1)
        now_at[rows] = np.arange(len(rows))
        now_at[-1] = -1
        self._partner = now_at[_taken(self._partner, rows, fresh, -1)]
        pairs = self._pairs._replace(first=now_at[self._pairs.first], second=now_at[self._pairs.second])
        self._pairs = pairs.kept((pairs.first >= 0) & (pairs.second >= 0))
        self._share, self._credit = _taken(self._share, rows, fresh, 0.0), _taken(self._credit, rows, fresh, 0.0)
        self._received = _taken(self._received, rows, fresh, self.settings.round_s / 2)
        self._placed, self._used = _taken(self._placed, rows, fresh, -1), _taken(self._used, rows, fresh, 0)
        self._ran = _taken(self._ran, rows, fresh, problem.restarts[fresh] > 0)
        self._size = _taken(self._size, rows, fresh, problem.gang[fresh])
        self._problem = problem
        self._row_of = {name: row for row, name in enumerate(problem.ids)}
        self._at, self._in = np.nonzero(problem.possible)
        self._rank = _fastest_first(problem)

    def _rows(self, ids: Sequence[str]) -> Index:
        """(k,) the row of each of these jobs in the present problem, or -1."""
        return np.array([self._row_of.get(name, -1) for name in ids], np.intp)

    def _allot(self, allocation: Allocation) -> None:
        """New shares: time received is counted from here on, each job credited with half a round, so that new ones do
        not take over (Gavel, section 5)."""
        share, half_s = allocation.share, self.settings.round_s / 2
        self._share = share.copy() if self.settings.published else np.where(share > LITTLE, share, 0.0)
        self._received = np.full(share.shape, half_s)
        keep = allocation.pairs.share > LITTLE
        self._pairs = PairShares(*allocation.pairs, np.full(len(keep), half_s)).kept(keep)
        self._size = sizes(allocation)
        self._allotted = frozenset(allocation.problem.ids)

    def _by_priority(self) -> Entries:
        """Everybody by priority, column by column, in an order of these that may be shuffled."""
        rank = self._rank
        if self.settings.shuffle is not None and self.settings.published:
            columns = list(range(len(rank)))
            self._shuffler.shuffle(columns)
            rank = np.argsort(columns)
        elif self.settings.shuffle is not None:
            rank = self._chance.permutation(len(rank))
        row, column = self._at, self._in
        share, deficit = self._share[row, column], self._credit[row, column]
        priority = share / self._received[row, column]
        first, second, at, part, got = self._pairs
        if not self.settings.spare:
            some = share > 0.0
            row, column, share, priority, deficit = row[some], column[some], share[some], priority[some], deficit[some]
        beside = np.full(len(row), -1, np.intp)
        if len(first):
            row, column, beside = np.append(row, first), np.append(column, at), np.append(beside, second)
            share, priority = np.append(share, part), np.append(priority, part / got)
            deficit = np.append(deficit, np.zeros(len(first)))
        order = np.lexsort((-share, -deficit, -priority, rank[column]))
        return Entries(row, beside, column, self._size[row]).take(order)

    def _settle(self, now: float) -> None:
        """Count the time since the last call: what shares promised, and what was received."""
        if self._settled is None:
            return
        elapsed = now - self._settled
        if elapsed < 0.0:
            raise Invalid(f"time went back by {-elapsed:g} seconds", where="now")
        if elapsed == 0.0:
            return
        self._settled = now
        self._credit += self._share * elapsed
        running = positions(self._placed >= 0)
        columns = self._placed[running]
        first, second, at, part, got = self._pairs
        if len(first):
            np.add.at(self._credit, (first, at), part * elapsed)
            np.add.at(self._credit, (second, at), part * elapsed)
            together = (self._partner[first] == second) & (self._placed[first] == at)
            got[together] += elapsed
        self._credit[running, columns] -= elapsed
        self._received[running, columns] += elapsed


def _taken(values: NDArray[T], rows: Index, fresh: Index, default: ArrayLike) -> NDArray[T]:
    """(k, ...) values (m, ...) of these rows (k,), but for the `fresh` ones of them, which have the default."""
    if not len(values):
        values = np.zeros((1, *values.shape[1:]), values.dtype)
    found = values.take(rows, axis=0)
    found[fresh] = default
    return found


def _fastest_first(problem: Problem) -> Index:
    """(n,) the rank of each column by the mean of the jobs' rates there, relative to each one's best."""
    best = problem.rate.max(axis=1, initial=0.0)
    total = (problem.rate / np.where(best > 0.0, best, 1.0)[:, None]).sum(axis=0)
    rank = np.empty(len(total), np.intp)
    rank[np.argsort(-total, kind="stable")] = np.arange(len(total))
    return rank
