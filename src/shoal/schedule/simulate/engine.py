"""The simulator: the control plane's own loop under a clock of its own, on simulated accelerators.

Every `round_s` seconds the loop decides, as it does live; between two rounds what becomes free is given out. Time goes
from event to event: a round, an arrival, an end, a failure, a change of prices.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.core import Invalid, Money
from shoal.schedule.loop import Decided, decide_round
from shoal.schedule.minimum_run import Kept, keeps_s, waited_for
from shoal.schedule.presets import resize_s, time_slice_s
from shoal.schedule.rounds import State
from shoal.schedule.rounds.filling import Filling
from shoal.schedule.simulate.actuators import Actuators
from shoal.schedule.simulate.cluster import Cluster
from shoal.schedule.simulate.lengths import LengthOracle
from shoal.schedule.simulate.options import Run
from shoal.schedule.simulate.placing import free_places
from shoal.schedule.simulate.result import OnProgress, Simulated
from shoal.schedule.types import Array, Index, Pool, Problem, positions

IDLE_ROUNDS = 1000
"""The number of rounds in which nothing runs, and nothing will come, after which no job ever will."""


def simulate(
    cluster: Cluster,
    run: Run,
    *,
    measured: range | None = None,
    on_progress: OnProgress | None = None,
    cpu_s: Callable[[], float] = time.thread_time,
) -> Simulated:
    """Simulate until all measured jobs (positions in order of arrival; all, unless told) are done. `cpu_s` is only
    used to report what decisions cost. Raises what the policy raises; `Invalid` if jobs can never run."""
    jobs = cluster.workload.jobs
    window = range(jobs) if measured is None else measured
    if not 0 <= window.start < window.stop <= jobs:
        raise Invalid(f"jobs {window.start} to {window.stop} of {jobs}", where="measured jobs", hint="0:1000, say")
    tell = on_progress or _silent
    if run.baseline is not None:
        from shoal.schedule.baselines.gavel.engine import play

        return play(cluster, run, window, tell, cpu_s)
    return _Simulation(cluster, run, window, tell, cpu_s).result()


def _silent(done: int, of: int, now_s: float) -> None:
    """Shows nothing."""


class _Simulation:
    def __init__(
        self, cluster: Cluster, run: Run, measured: range, on_progress: OnProgress, cpu_s: Callable[[], float]
    ) -> None:
        self._cluster, self._run, self._cpu_s, self._on_progress = cluster, run, cpu_s, on_progress
        self._measured = np.arange(measured.start, measured.stop)
        self._waiting_for = len(self._measured)
        self._oracle = LengthOracle(run.lengths, cluster.workload.steps, run.seed)
        self._there = Actuators(cluster, run)
        self._active = np.empty(0, np.intp)
        self._arrivals, self._next_arrival, self._prices_at = 0, -math.inf, 0
        self._pools: tuple[Pool, ...] = cluster.pools
        self._everybody = cluster.everybody(cluster.pools)
        self._shown: Problem | None = None
        self._state = State()
        self._last: Decided | None = None
        self._decided_for = self._active
        self._round_at = -math.inf
        self._waited_since: dict[str, float] = {}
        self._decisions: list[float] = []
        self._idle = self._extended = self._extendable = 0
        self._now = 0.0

    def result(self) -> Simulated:
        work, there = self._cluster.workload, self._there
        self._now = began = float(work.arrived[0])
        self._charge()
        changed = False
        while self._waiting_for:
            changed |= self._reprice()
            changed |= self._arrive()
            if len(self._active):
                if self._now >= self._round_at:
                    self._round()
                elif changed:
                    self._fill()
            to = self._next_event()
            there.advance(self._now, to)
            self._now = to
            changed = self._over()
        count = sum(pool.count for pool in self._pools)
        return Simulated(
            run=self._run, workload=work, measured=self._measured, started=there.started, finished=there.finished,
            ran_s=there.ran_s, alone_s=there.alone_s, held_s=there.held_s, lost_s=there.lost_s,
            cost_usd=there.cost_usd, restarts=there.restarts, failures=there.failures, began=began, ended=self._now,
            capacity_s=count * (self._now - began), rounds=len(self._decisions), extended=self._extended,
            extendable=self._extendable, policy_cpu_s=np.array(self._decisions),
        )  # fmt: skip

    # Events

    def _next_event(self) -> float:
        found = [self._next_arrival, self._there.event_at()]
        if self._prices_at < len(self._cluster.prices):
            found.append(self._cluster.prices[self._prices_at].at_s)
        soonest = min(found)
        if not len(self._active):
            return soonest
        self._idle = 0 if len(self._there.running) or soonest < math.inf else self._idle + 1
        if self._idle > IDLE_ROUNDS:
            raise self._cluster.stuck(self._active, self._run.policy)
        return min(soonest, self._round_at)

    def _arrive(self) -> bool:
        """Let in who has arrived."""
        if self._now < self._next_arrival:
            return False
        arrived = self._cluster.workload.arrived
        until = int(np.searchsorted(arrived, self._now, side="right"))
        self._active = np.concatenate([self._active, np.arange(self._arrivals, until)])
        self._arrivals = until
        self._shown = None
        self._next_arrival = float(arrived[until]) if until < len(arrived) else math.inf
        self._there.among = len(self._active)
        return True

    def _reprice(self) -> bool:
        prices, changed = self._cluster.prices, False
        while self._prices_at < len(prices) and prices[self._prices_at].at_s <= self._now:
            change = prices[self._prices_at]
            self._prices_at += 1
            self._pools = tuple(
                Pool(p.type, p.count, Money.usd(change.usd_per_hour), p.zone, p.per_node, p.unconsolidated)
                if p.type == change.type else p
                for p in self._pools
            )  # fmt: skip
            changed = True
        if changed:
            self._everybody = self._cluster.everybody(self._pools)
            self._shown = None
            self._charge()
        return changed

    def _charge(self) -> None:
        self._there.usd_per_hour = self._everybody.usd_per_hour

    def _over(self) -> bool:
        ended, failed = self._there.over(self._now)
        if not len(ended) and not len(failed):
            return False
        if len(ended):
            self._active = self._active[np.isnan(self._there.finished[self._active])]
            self._shown = None
            counted = int(((ended >= self._measured[0]) & (ended <= self._measured[-1])).sum())
            if counted:
                self._waiting_for -= counted
                self._on_progress(len(self._measured) - self._waiting_for, len(self._measured), self._now)
            self._there.among = len(self._active)
        return True

    # Deciding

    def _problem(self) -> Problem:
        """The jobs that are there, as they are now."""
        active, there, cluster = self._active, self._there, self._cluster
        state = self._of(active)
        if cluster.sizes:
            placed = there.placed[active]
            gang = np.where(placed >= 0, there.size[active], cluster.workload.gang[active])
            now_s = self._now - there.since[active]
            rate = cluster.rate[active].copy()
            running = positions(placed >= 0)
            for size, speeds in cluster.sizes.items():
                mine = running[gang[running] == size]
                rate[mine] = speeds[active[mine]]
            state |= {"gang": gang, "rate": rate, "held": (placed >= 0) & (now_s < resize_s(self._run.settings))}
            return cluster.problem(self._everybody, active, **state)
        if self._shown is None:
            self._shown = cluster.problem(self._everybody, active, **state)
        else:
            self._shown = self._shown.again(**state)
        return self._shown

    def _of(self, jobs: Index) -> dict[str, Any]:
        """What changes from moment to moment, of these jobs."""
        there = self._there
        return {
            "now": self._now, "work_left": self._oracle.work_left(jobs, there.left[jobs], there.done[jobs]),
            "ran_s": there.ran_s[jobs], "isolated_s": there.alone_s[jobs], "restarts": there.restarts[jobs],
            "placed": there.placed[jobs],
        }  # fmt: skip

    def _round(self) -> None:
        """Decide as the control plane does, and carry it out."""
        problem, active, there = self._problem(), self._active, self._there
        since = there.since[active]
        kept = self._kept(problem, since)
        row_of = {job: row for row, job in enumerate(active.tolist())} if there.nodes else {}
        before = self._cpu_s()
        decided = decide_round(
            self._run.settings, problem, self._state, self._now, since=since, since_s=self._now - since,
            previous=self._last.allocation if self._last is not None else None, slice_s=kept.slice_s,
            kept_s=kept.keeps_s, nodes={row_of[job]: places for job, places in there.nodes.items()},
        )  # fmt: skip
        self._decisions.append(self._cpu_s() - before)
        self._state, self._last, self._decided_for = decided.state, decided, active
        self._round_at = self._now + self._run.settings.round_s
        found = decided.round
        ran = problem.placed >= 0
        self._extended += int(found.kept.sum())
        self._extendable += int(ran.sum())
        there.stop(active[ran & ~found.kept], self._now)
        new = positions((found.column >= 0) & ~found.kept)
        there.start(active[new], found.column[new], found.accelerators[new], self._now)
        there.nodes = {int(active[row]): places for row, places in found.nodes.items()}

    def _kept(self, problem: Problem, since: Array) -> Kept:
        """For how much longer running jobs keep their places because they would lose their work, and how long the time
        slices are of all that do not save it."""
        active, there = self._active, self._there
        none = np.zeros(len(active))
        if not self._run.unsaved:
            return Kept(none, none)
        saving_s = time_slice_s(self._run.settings)
        names = [column.key for column in problem.columns]
        running = problem.placed >= 0
        waiting = [
            ([names[at] for at in positions(problem.possible[row])], self._now - since[row])
            for row in positions(~running).tolist()
        ]
        self._waited_since = waited_for(waiting, self._waited_since, self._now)
        unsaved = ~there.saves[active]
        lost = there.lost_run_s[active]
        keeps, slices = none, np.where(unsaved & ~running & (lost > saving_s), lost, 0.0)
        for row in positions(unsaved & running).tolist():
            wanted = self._waited_since.get(names[int(problem.placed[row])])
            lose_s = self._now - float(since[row])
            keeps[row] = keeps_s(lose_s, float(since[row]), float(lost[row]), self._now, wanted, saving_s)
            slices[row] = lose_s + keeps[row]
        return Kept(keeps, slices)

    def _fill(self) -> None:
        """Give out what became free."""
        there, everybody = self._there, self._everybody
        waiting = self._active[there.placed[self._active] < 0]
        if not len(waiting):
            return
        running = there.running
        columns, sizes = there.placed[running], there.size[running]
        left = everybody.counts - np.bincount(everybody.pool_of[columns], sizes, minlength=len(everybody.pools))
        least = 1 if self._cluster.sizes else self._cluster.workload.gang[waiting].min()
        if left.max() < least:
            return
        problem = self._cluster.problem(everybody, waiting, **self._of(waiting))
        filling = Filling(problem)
        filling.take(everybody.tenant[running], columns, sizes)
        # Jobs are numbered in order of arrival: those that came since the decision are behind its last one.
        before = np.searchsorted(self._decided_for, waiting)
        before[before == len(self._decided_for)] = -1
        found = free_places(problem, filling, self._last, before)
        there.start(waiting[found.rows], found.columns, found.accelerators, self._now)
