"""Gavel's rounds (OSDI'20, section 5): priorities are allocation over time received since the allocation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from shoal.core import Invalid
from shoal.schedule.baselines.gavel.carry import PairShares, taken
from shoal.schedule.rounds.filling import Entries, Filling
from shoal.schedule.rounds.machines import Nodes, assign
from shoal.schedule.rounds.next_round import LITTLE
from shoal.schedule.rounds.round import Codes, Round, Why
from shoal.schedule.types import Allocation, Array, Column, Index, Mask, Problem, positions


@dataclass(frozen=True, slots=True)
class GavelSettings:
    """`spare` gives out what no share asks for; `shuffle` seeds the order in which columns are visited (None: the
    fastest first)."""

    round_s: float = 360.0
    spare: bool = True
    shuffle: int | None = None


class GavelRounds:
    """Who runs where, round after round.

    Use it so: `enter(problem, allocation, now=...)` whenever there is a new allocation, `enter(problem, now=...)` when
    only jobs or pools changed (shares stay with the jobs that are still there), `next(now)` for the round that begins
    now. Between two calls the jobs of the last round are taken to have run, unless `left` says that one did not.
    Times are seconds on any one clock; the machine reads none.
    """

    _row_of: dict[str, int]
    _share: Array
    _credit: Array
    _received: Array
    _possible: Mask
    _at: Index
    _in: Index
    _rank: Index
    _placed: Index
    _used: Index
    _partner: Index
    _size: Index
    _since: Array
    _ran: Mask
    _nodes: Nodes
    _pairs: PairShares
    _able: Mask
    _machines: bool

    def __init__(self, settings: GavelSettings | None = None) -> None:
        self.settings = settings or GavelSettings()
        self._problem: Problem | None = None
        self._number = 0
        self._settled: float | None = None
        self._chance = np.random.default_rng(self.settings.shuffle)
        self._row_of = {}
        self._share = self._credit = self._received = np.empty((0, 0))
        self._placed = self._used = self._size = self._partner = np.empty(0, np.intp)
        self._since, self._ran = np.empty(0), np.empty(0, np.bool_)
        self._nodes = {}
        self._pairs = PairShares(self._placed, self._placed, self._placed, self._since, self._since)

    # What there is

    def enter(self, problem: Problem, allocation: Allocation | None = None, *, now: float) -> None:
        """These are the jobs and pools from now on, and their deficits. Jobs that are no longer named are
        forgotten. Raises `Invalid` if the allocation is of another problem."""
        if allocation is not None and allocation.problem is not problem:
            raise Invalid("the allocation was made for another problem", where="allocation")
        self._settle(now)
        if problem is not self._problem:
            self._adopt(problem)
        if allocation is not None:
            self._allot(allocation)

    def left(self, job: int, *, at: float) -> None:
        """This job of the present problem stopped running (it ended, failed or was killed) at this time, before its
        round was over."""
        if self._settled is not None and self._placed[job] >= 0:
            part = self._column_share(job)
            self._received[job] += part * (at - self._settled)
            self._credit[job] -= part * (at - self._settled)
        other = int(self._partner[job])
        if other >= 0:
            self._partner[other] = -1
        self._placed[job], self._partner[job], self._used[job] = -1, -1, 0
        self._nodes.pop(job, None)

    def gone(self, job: int, *, at: float) -> None:
        """This job of the present problem will not run again (it ended); it need not be entered anew to say so."""
        self.left(job, at=at)
        self._share[job], self._credit[job] = 0.0, 0.0
        if self._able[job]:
            self._possible[job] = False
            self._able = self._able.copy()  # rounds that were made know the old one
            self._able[job] = False
            kept = self._at != job
            self._at, self._in = self._at[kept], self._in[kept]
        if len(pairs := self._pairs.first):
            mine = (pairs == job) | (self._pairs.second == job)
            self._pairs = self._pairs._replace(first=np.where(mine, -1, pairs)).kept()

    def placed(self, ids: Sequence[str]) -> Index:
        """(k,) the column of the present problem that each of these jobs runs in, or -1."""
        rows = self._rows(ids)
        return taken(self._placed, rows, positions(rows < 0), -1)

    def _column_share(self, job: int) -> Array:
        part = np.zeros(self._credit.shape[1])
        part[self._placed[job]] = 1.0
        return part

    def _adopt(self, problem: Problem) -> None:
        """Make arrays for a new set of jobs and columns, with what is known of those that were there before."""
        before = () if self._problem is None else self._problem.columns
        if before != problem.columns:
            self._change_columns(before, problem.columns)
        rows = self._rows(problem.ids)
        fresh = positions(rows < 0)
        partner = taken(self._partner, rows, fresh, -1)
        if self._nodes or len(self._pairs.first) or (partner >= 0).any():
            where = np.full(len(self._row_of) + 1, -1, np.intp)  # for each old row its new one, or -1 (last: -1)
            where[rows] = np.arange(len(rows))
            where[-1] = -1
            partner = where[partner]
            self._nodes = {int(where[job]): at for job, at in self._nodes.items() if where[job] >= 0}
            first, second = where[self._pairs.first], where[self._pairs.second]
            self._pairs = self._pairs._replace(first=first, second=second).kept()
        self._partner = partner
        self._share, self._credit = taken(self._share, rows, fresh, 0.0), taken(self._credit, rows, fresh, 0.0)
        self._received = taken(self._received, rows, fresh, self.settings.round_s / 2)
        self._placed, self._used = taken(self._placed, rows, fresh, -1), taken(self._used, rows, fresh, 0)
        self._since = taken(self._since, rows, fresh, 0.0)
        self._ran = taken(self._ran, rows, fresh, problem.restarts[fresh] > 0)
        self._size = taken(self._size, rows, fresh, problem.gang[fresh])
        self._problem = problem
        self._row_of = {name: row for row, name in enumerate(problem.ids)}
        self._possible = problem.possible.copy()
        self._able = np.asarray(self._possible.any(axis=1))
        self._at, self._in = np.nonzero(self._possible)
        self._machines = any(pool.per_node is not None for pool in problem.pools)
        self._rank = _fastest_first(problem)

    def _rows(self, ids: Sequence[str]) -> Index:
        """(k,) the row of each of these jobs in the present problem, or -1."""
        return np.array([self._row_of.get(name, -1) for name in ids], np.intp)

    def _change_columns(self, before: tuple[Column, ...], after: tuple[Column, ...]) -> None:
        """Go over to other columns: those of the same name go on, and who ran in one that is gone runs nowhere."""
        names = {column.name: at for at, column in enumerate(after)}
        onto = np.array([*(names.get(column.name, -1) for column in before), -1], np.intp)
        old = positions(onto >= 0)
        for name, fresh in (("_share", 0.0), ("_credit", 0.0), ("_received", self.settings.round_s / 2)):
            values = np.full((len(self._placed), len(after)), fresh)
            values[:, onto[old]] = getattr(self, name)[:, old]
            setattr(self, name, values)
        self._placed = onto[self._placed]
        self._used = np.where(self._placed >= 0, self._used, 0)
        self._partner = np.where(self._placed >= 0, self._partner, -1)
        self._pairs = self._pairs._replace(column=onto[self._pairs.column]).kept()

    def _allot(self, allocation: Allocation) -> None:
        """New shares: time received is counted from here on, each job credited with half a round, so that new ones do
        not take over (Gavel, section 5)."""
        problem = allocation.problem
        self._share = np.where(allocation.share > LITTLE, allocation.share, 0.0)
        self._received = np.full(self._share.shape, self.settings.round_s / 2)
        pairs = allocation.pairs
        keep = pairs.share > LITTLE
        count = int(keep.sum())
        self._pairs = PairShares(
            pairs.first[keep], pairs.second[keep], pairs.column[keep], pairs.share[keep],
            np.full(count, self.settings.round_s / 2),
        )  # fmt: skip
        self._size = problem.gang.astype(np.intp)
        if allocation.configuration is not None and problem.configurations is not None:
            chosen = positions(allocation.configuration >= 0)
            self._size[chosen] = problem.configurations.accelerators[allocation.configuration[chosen]]

    # The next round

    def next(self, now: float) -> Round:
        """The round that begins now. Raises `Invalid` before `enter`."""
        problem = self._problem
        if problem is None:
            raise Invalid("there is nothing to make a round of", hint="tell it the jobs first: enter(problem, ...)")
        self._settle(now)
        self._settled = now
        filling = Filling(problem)
        entries = self._entitled()
        filling.fill(entries)
        entitled = np.array(filling.column)
        return self._begin(now, filling, entitled)

    def _entitled(self) -> Entries:
        """Everybody by priority."""
        rank = self._rank
        if self.settings.shuffle is not None:
            rank = self._chance.permutation(len(rank))
        return self._by_rank(rank)

    def _by_rank(self, rank: Index) -> Entries:
        """Everybody by priority, column by column, those of rank (n,) zero first."""
        row, column = self._at, self._in
        cell = row * self._share.shape[1] + column
        share, deficit = self._share.take(cell), self._credit.take(cell)
        priority = share / self._received.take(cell)
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

    def _begin(self, now: float, filling: Filling, entitled: Index) -> Round:
        problem = self._problem
        assert problem is not None
        column, used = np.array(filling.column, np.intp), np.array(filling.need, np.intp)
        partner = np.array(filling.partner, np.intp)
        before = self._nodes
        if self._machines:
            self._assign(column, used, partner)
        runs, ran = column >= 0, self._placed >= 0
        stays = runs & (column == self._placed) & (used == self._used)
        for job in self._nodes:
            stays[job] &= before.get(job) == self._nodes[job]
        restarted = runs & self._ran & ~stays
        share = self._share.copy()
        judge = partial(_why, runs, stays, entitled, share, self._pairs, self._able, self._ran, self._placed)
        self._since = np.where(stays, self._since, now)
        self._placed, self._used, self._partner = column.copy(), used.copy(), partner.copy()
        self._ran = self._ran | runs
        self._number += 1
        return Round(
            number=self._number, start=now, problem=problem, column=column, accelerators=used, partner=partner,
            kept=stays, restarted=restarted, stopped=ran & ~runs, share=share, deficit=self._credit.copy(), judge=judge,
            nodes=dict(self._nodes), reserved=np.full(problem.jobs, -1, np.intp),
        )  # fmt: skip

    def _assign(self, column: Index, used: Index, partner: Index) -> None:
        """Machines for those who run; in place, who finds no place together runs spread, or waits."""
        problem = self._problem
        assert problem is not None
        stays = (column >= 0) & (column == self._placed) & (used == self._used)
        found = assign(problem, column, used, partner, stays, self._nodes)
        for job, other in found.spread.items():
            column[job] = other
            if partner[job] >= 0:
                column[partner[job]] = other
        for job in found.dropped:
            for each in (job, int(partner[job])):
                if each >= 0:
                    column[each], used[each], partner[each] = -1, 0, -1
        self._nodes = found.nodes

    def _settle(self, now: float) -> None:
        """Count the time since the last call: what shares promised, and what was received."""
        if self._settled is None or self._problem is None:
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
        self._credit[running, columns] -= elapsed
        self._received[running, columns] += elapsed
        if len(first):
            together = (self._partner[first] == second) & (self._placed[first] == at)
            got[together] += elapsed


def _why(
    runs: Mask, stays: Mask, entitled: Index, share: Array, pairs: PairShares, able: Mask, ran: Mask,
    before: Index,
) -> Codes:  # fmt: skip
    """Why jobs run and wait, given who is `able` to run anywhere, who `ran` ever, and who ran where `before`."""
    why = np.full(len(runs), Why.NO_SHARE, np.int8)
    shares: Mask = np.asarray(share.any(axis=1))
    shares[pairs.first] = True
    shares[pairs.second] = True
    why[shares] = Why.TURN
    why[~able] = Why.NOWHERE
    why[runs] = np.where(ran[runs], Why.RESUMED, Why.STARTED)
    why[runs & (before >= 0)] = Why.MOVED
    why[runs & (entitled < 0)] = Why.SPARE
    why[stays] = Why.KEPT
    return why


def _fastest_first(problem: Problem) -> Index:
    """(n,) the rank of each column by the mean of the jobs' rates there, relative to each one's best."""
    best = problem.rate.max(axis=1, initial=0.0)
    total = (problem.rate / np.where(best > 0.0, best, 1.0)[:, None]).sum(axis=0)
    rank = np.empty(len(total), np.intp)
    rank[np.argsort(-total, kind="stable")] = np.arange(len(total))
    return rank
