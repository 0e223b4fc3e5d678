"""The state machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from shoal.core import Invalid
from shoal.schedule.rounds.carry import PairShares, taken
from shoal.schedule.rounds.filling import Entries, Filling
from shoal.schedule.rounds.machines import Nodes, assign
from shoal.schedule.rounds.round import Codes, Round, Why
from shoal.schedule.rounds.settings import Ranking, Settings
from shoal.schedule.rounds.state import JobState, State
from shoal.schedule.types import Allocation, Array, Column, Index, Mask, Problem, positions

__all__ = ["Ranking", "Rounds", "Settings"]

LITTLE = 1e-6
"""Shares below this are the solver's noise."""


class Rounds:
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
    _holds: bool

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self._problem: Problem | None = None
        self._number = 0
        self._settled: float | None = None
        self._restored: Mapping[str, JobState] = {}
        self._chance = np.random.default_rng(self.settings.shuffle)
        self._row_of = {}
        self._share = self._credit = self._received = np.empty((0, 0))
        self._placed = self._used = self._size = self._partner = np.empty(0, np.intp)
        self._since, self._ran = np.empty(0), np.empty(0, np.bool_)
        self._nodes = {}
        self._pairs = PairShares(self._placed, self._placed, self._placed, self._since, self._since)

    # What there is

    def enter(self, problem: Problem, allocation: Allocation | None = None, *, now: float) -> None:
        """These are the jobs and pools from now on, and what they are owed. Jobs that are no longer named are
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
        self._holds = self.settings.min_run_s > 0.0 or bool(problem.held.any())
        if self.settings.ranking is Ranking.PRIORITY:
            self._rank = _fastest_first(problem)
        if self._restored:
            self._remember(problem)

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
        if self.settings.ranking is Ranking.CREDIT:
            # What is owed in a column that a job no longer has a share of is forgotten, what is owed is bounded.
            owed = self._credit * (self._share > 0.0)
            most_s = self.settings.quantum_s if self.settings.owed_s is None else self.settings.owed_s
            self._credit = np.clip(owed, -most_s, most_s)

    # The next round

    def next(self, now: float) -> Round:
        """The round that begins now. Raises `Invalid` before `enter`."""
        problem = self._problem
        if problem is None:
            raise Invalid("there is nothing to make a round of", hint="tell it the jobs first: enter(problem, ...)")
        self._settle(now)
        self._settled = now
        filling = Filling(problem)
        held = self._held(now)
        if len(held):
            filling.fill(self._staying(held))
        entries, scores = self._entitled()
        filling.fill(entries)
        entitled = np.array(filling.column)
        if self.settings.spare and filling.waiting and any(filling.left) and not self._asked_all():
            filling.fill(self._spare(entitled < 0))
        return self._begin(now, filling, held, entitled, (entries, scores))

    def _asked_all(self) -> bool:
        """Whether `_entitled` names every job in every column: who does not fit then does not fit later either."""
        problem = self._problem
        assert problem is not None
        return self.settings.ranking is Ranking.PRIORITY and bool((self._size == problem.gang).all())

    def _held(self, now: float) -> Index:
        """The jobs that may not lose their place yet."""
        problem = self._problem
        assert problem is not None
        if not self._holds:
            return positions(np.empty(0, np.bool_))
        running = self._placed >= 0
        young = now - self._since < self.settings.min_run_s
        return positions(running & (young | (problem.held & (problem.placed == self._placed))))

    def _staying(self, jobs: Index) -> Entries:
        """Entries that leave these jobs where they are; a pair is one entry."""
        partner = self._partner[jobs]
        alone = (partner < 0) | (jobs < partner) | ~np.isin(partner, jobs)
        jobs = jobs[alone]
        return Entries(jobs, self._partner[jobs], self._placed[jobs], self._used[jobs])

    def _entitled(self) -> tuple[Entries, Array]:
        """Who has a share, the most deserving first; with `PRIORITY` everybody, column by column."""
        if self.settings.ranking is Ranking.PRIORITY:
            return self._by_priority()
        row, column = np.nonzero(self._share)
        able = self._possible[row, column]
        row, column = row[able], column[able]
        settings = self.settings
        here = (self._placed[row] == column) & (self._partner[row] < 0) & (self._used[row] == self._size[row])
        score = self._share.sum(axis=1)[row] + (self._credit[row, column] + settings.keep_s * here) / settings.quantum_s
        first, second, at, part, _ = self._pairs
        if len(first):
            together = (self._partner[first] == second) & (self._placed[first] == at)
            owed = np.minimum(self._credit[first, at], self._credit[second, at])
            row, column = np.concatenate([row, first]), np.concatenate([column, at])
            score = np.concatenate([score, part + (owed + settings.keep_s * together) / settings.quantum_s])
            second = np.concatenate([np.full(len(row) - len(first), -1), second])
        else:
            second = np.full(len(row), -1, np.intp)
        order = np.argsort(-score, kind="stable")
        return Entries(row, second, column, self._size[row]).take(order), score[order]

    def _by_priority(self) -> tuple[Entries, Array]:
        rank = self._rank
        if self.settings.shuffle is not None:
            rank = self._chance.permutation(len(rank))
        return self._by_rank(rank)

    def _by_rank(self, rank: Index) -> tuple[Entries, Array]:
        """Everybody by priority, column by column, those of rank (n,) zero first."""
        row, column = self._at, self._in
        cell = row * self._share.shape[1] + column
        share, credit = self._share.take(cell), self._credit.take(cell)
        priority = share / self._received.take(cell)
        first, second, at, part, got = self._pairs
        if not self.settings.spare:
            some = share > 0.0
            row, column, share, priority, credit = row[some], column[some], share[some], priority[some], credit[some]
        beside = np.full(len(row), -1, np.intp)
        if len(first):
            row, column, beside = np.append(row, first), np.append(column, at), np.append(beside, second)
            share, priority = np.append(share, part), np.append(priority, part / got)
            credit = np.append(credit, np.zeros(len(first)))
        order = np.lexsort((-share, -credit, -priority, rank[column]))
        return Entries(row, beside, column, self._size[row]).take(order), priority[order]

    def _spare(self, waits: Mask) -> Entries:
        """Who `waits` (m,), for what is left over: who is there already, then who is soonest done with it; where
        lengths are not known, who is owed most."""
        problem = self._problem
        assert problem is not None
        some = waits.take(self._at)
        row, column = self._at[some], self._in[some]
        rate = problem.rate[row, column]
        left = problem.work_left[row]
        here = (self._placed[row] == column) & (self._partner[row] < 0) & (self._used[row] == problem.gang[row])
        with np.errstate(divide="ignore"):
            soon = left / rate * problem.gang[row]
        owed = -self._credit.sum(axis=1)[row]
        key = np.where(np.isnan(soon), owed, soon) - self.settings.keep_s * here
        return Entries(row, np.full(len(row), -1, np.intp), column, problem.gang[row]).take(
            np.argsort(key, kind="stable")
        )

    def _begin(
        self, now: float, filling: Filling, held: Index, entitled: Index, ranked: tuple[Entries, Array]
    ) -> Round:
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
        judge = partial(_why, runs, stays, entitled, held, share, self._pairs, self._able, self._ran, self._placed)
        self._since = np.where(stays, self._since, now)
        self._placed, self._used, self._partner = column.copy(), used.copy(), partner.copy()
        self._ran = self._ran | runs
        self._number += 1
        return Round(
            number=self._number, start=now, problem=problem, column=column, accelerators=used, partner=partner,
            kept=stays, restarted=restarted, stopped=ran & ~runs, share=share, credit=self._credit.copy(), judge=judge,
            nodes=dict(self._nodes),
            good_for_s=self._good_for(column, *ranked),
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

    def _good_for(self, column: Index, entries: Entries, score: Array) -> float:
        """For how long no share that waits comes to be owed more than one that is served in its pool (or than the same
        job's other share). Served shares fall by what they do not cover, waiting ones rise by themselves."""
        problem = self._problem
        assert problem is not None
        lasting = self.settings.ranking is Ranking.CREDIT and not self._holds
        if not lasting or len(self._pairs.first) or np.isnan(problem.work_left).any():
            return 0.0
        served = column[entries.first] == entries.column
        waits, serves = positions(~served), positions(served)
        if len(waits) * len(serves) > 100_000:
            return 0.0
        if not len(waits) or not len(serves):
            return float("inf")
        pool = problem.pool_of[entries.column]
        rival = (pool[waits, None] == pool[serves]) | (entries.first[waits, None] == entries.first[serves])
        gap = score[serves] - score[waits, None]
        share = self._share[entries.first, entries.column]
        speed = share[waits, None] + 1.0 - share[serves]
        rival &= waits[:, None] > serves
        with np.errstate(divide="ignore"):
            times = np.where(rival & (speed > LITTLE), gap * self.settings.quantum_s / speed, np.inf)
        return float(times.min(initial=np.inf))

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

    # Its memory

    def state(self) -> State:
        """All that it knows, as plain data."""
        problem = self._problem
        if problem is None:
            return State(self._number, self._settled, dict(self._restored))
        names = [column.name for column in problem.columns]
        jobs = {}
        for row, name in enumerate(problem.ids):
            at, other = int(self._placed[row]), int(self._partner[row])
            jobs[name] = JobState(
                column=names[at] if at >= 0 else None,
                accelerators=int(self._used[row]),
                partner=problem.ids[other] if other >= 0 else None,
                nodes=self._nodes.get(row, ()),
                since=float(self._since[row]),
                ran=bool(self._ran[row]),
                share=_named(names, self._share[row]),
                received_s=_named(names, self._received[row]),
                owed_s=_named(names, self._credit[row]),
            )
        return State(self._number, self._settled, jobs)

    @classmethod
    def restore(cls, state: State, settings: Settings | None = None) -> Rounds:
        """Go on where another one was. Pair shares are not part of the state: they come with the next allocation."""
        made = cls(settings)
        made._number, made._settled, made._restored = state.number, state.settled, dict(state.jobs)
        return made

    def _remember(self, problem: Problem) -> None:
        names = {column.name: at for at, column in enumerate(problem.columns)}
        for name, known in self._restored.items():
            row = self._row_of.get(name)
            if row is None:
                continue
            self._ran[row] = known.ran
            for target, values in (
                (self._share, known.share), (self._received, known.received_s), (self._credit, known.owed_s)
            ):  # fmt: skip
                for column, value in values.items():
                    if column in names:
                        target[row, names[column]] = value
            if known.column in names:
                self._placed[row], self._used[row] = names[known.column], known.accelerators
                self._since[row] = known.since
                self._partner[row] = self._row_of.get(known.partner or "", -1)
                if known.nodes:
                    self._nodes[row] = known.nodes
        self._restored = {}


def _why(
    runs: Mask, stays: Mask, entitled: Index, held: Index, share: Array, pairs: PairShares, able: Mask, ran: Mask,
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
    why[held[stays[held]]] = Why.HELD
    return why


def _named(names: list[str], values: Array) -> dict[str, float]:
    return {name: float(value) for name, value in zip(names, values, strict=True) if value}


def _fastest_first(problem: Problem) -> Index:
    """(n,) the rank of each column by the mean of the jobs' rates there, relative to each one's best."""
    best = problem.rate.max(axis=1, initial=0.0)
    total = (problem.rate / np.where(best > 0.0, best, 1.0)[:, None]).sum(axis=0)
    rank = np.empty(len(total), np.intp)
    rank[np.argsort(-total, kind="stable")] = np.arange(len(total))
    return rank
