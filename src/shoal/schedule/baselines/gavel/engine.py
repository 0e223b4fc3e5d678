"""Gavel's simulator: its rounds under its accounting.

It goes from round to round. A round counts as Gavel's does: a job does whole steps in it, one that ends in
its middle leaves its accelerators idle until its end, who arrives in its middle waits for the next, and a round in
which all end early is cut short. It has no failures, no changes of prices and no machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from shoal.core import Invalid
from shoal.schedule.baselines.gavel.rounds import GavelRound, GavelRounds
from shoal.schedule.policies import POLICIES, decide
from shoal.schedule.simulate.cluster import Cluster
from shoal.schedule.simulate.lengths import LengthOracle
from shoal.schedule.simulate.options import Baseline, Run
from shoal.schedule.simulate.result import OnProgress, Simulated
from shoal.schedule.types import Allocation, Array, Index, Mask, Problem, positions

RESET_S = 1920.0
"""Gavel computes an allocation at most this often, however often jobs come and go."""


def play(cluster: Cluster, run: Run, measured: range, on_progress: OnProgress, cpu_s: Callable[[], float]) -> Simulated:
    """Simulate until all measured jobs are done. Raises what the policy raises; `Invalid` if jobs can never run, or for
    what Gavel does not know."""
    assert run.baseline is not None
    if cluster.prices or any(pool.per_node is not None for pool in cluster.pools):
        raise Invalid("Gavel's rounds know no machines, and no prices that change", hint="with --mechanism shoal")
    return _Replay(cluster, run, run.baseline, measured, on_progress, cpu_s).result()


class _Replay:
    def __init__(
        self, cluster: Cluster, run: Run, how: Baseline, measured: range, on_progress: OnProgress,
        cpu_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._how = how
        self._cluster, self._run, self._cpu_s, self._on_progress = cluster, run, cpu_s, on_progress
        work, jobs = cluster.workload, cluster.workload.jobs
        self._measured = np.arange(measured.start, measured.stop)
        self._waiting_for = len(self._measured)
        self._policy = POLICIES[run.policy]
        self._oracle = LengthOracle(run.lengths, work.steps, run.seed)
        self._rounds = GavelRounds(how.rounds)
        self._left, self._done, self._debt = work.steps.copy(), np.zeros(jobs), np.zeros(jobs)
        self._finished, self._started = np.full(jobs, np.nan), np.full(jobs, np.nan)
        self._ran_s, self._alone_s, self._held_s = np.zeros(jobs), np.zeros(jobs), np.zeros(jobs)
        self._lost_s, self._cost = np.zeros(jobs), np.zeros(jobs)
        self._alone_rate = np.ones(jobs)
        self._restarts = np.zeros(jobs, np.intp)
        self._active = np.empty(0, np.intp)
        self._gone: Mask = np.empty(0, np.bool_)
        self._arrivals, self._next_arrival = 0, -math.inf
        self._everybody = cluster.everybody(cluster.pools)
        self._problem: Problem | None = None
        self._allocation: Allocation | None = None
        self._allocated = -np.inf
        self._decisions: list[float] = []
        self._round_count = self._extended = self._extendable = 0

    def result(self) -> Simulated:
        work = self._cluster.workload
        self._now = began = float(work.arrived[0])
        stale = False
        while self._waiting_for:
            stale |= self._arrive()
            if not len(self._active):
                self._now = self._next_arrival
                continue
            if stale and (self._now - self._allocated >= RESET_S or self._allocated <= began):
                self._allocate()
                stale = False
            stale |= self._round(stale)
        count = sum(pool.count for pool in self._cluster.pools)
        return Simulated(
            run=self._run, workload=work, measured=self._measured, started=self._started, finished=self._finished,
            ran_s=self._ran_s, alone_s=self._alone_s, held_s=self._held_s, lost_s=self._lost_s, cost_usd=self._cost,
            restarts=self._restarts, failures=np.zeros(work.jobs, np.intp), began=began, ended=self._now,
            capacity_s=count * (self._now - began), rounds=self._round_count, extended=self._extended,
            extendable=self._extendable, policy_cpu_s=np.array(self._decisions),
        )  # fmt: skip

    def _arrive(self) -> bool:
        """Let in who has arrived."""
        if self._now < self._next_arrival:
            return False
        arrived = self._cluster.workload.arrived
        until = int(np.searchsorted(arrived, self._now, side="right"))
        new = np.arange(self._arrivals, until)
        self._arrivals = until
        self._next_arrival = float(arrived[until]) if until < len(arrived) else math.inf
        self._active = np.concatenate([self._active[~self._gone], new])
        self._gone = np.zeros(len(self._active), np.bool_)
        self._problem = None
        return True

    def _allocate(self) -> None:
        """Ask the policy."""
        problem = self._look()
        settings = dict(self._how.given)
        if "seed" in self._policy.settings:
            settings["seed"] = self._run.seed + len(self._decisions)
        if "previous" in self._policy.settings:
            settings["previous"] = self._allocation
        before = self._cpu_s()
        self._allocation = decide(self._run.policy, problem, **settings)
        self._decisions.append(self._cpu_s() - before)
        self._rounds.enter(problem, self._allocation, now=self._now)
        self._allocated = self._now
        self._alone_rate[self._active] = self._cluster.alone(self._active, len(self._active))

    def _look(self) -> Problem:
        """The problem of the jobs that are there now."""
        if self._gone.any():
            self._active = self._active[~self._gone]
            self._gone = np.zeros(len(self._active), np.bool_)
        active, cluster = self._active, self._cluster
        self._problem = cluster.problem(
            self._everybody, active, now=self._now,
            work_left=self._oracle.work_left(active, self._left[active], self._done[active]),
            ran_s=self._ran_s[active], isolated_s=self._alone_s[active], restarts=self._restarts[active],
            placed=self._rounds.placed(cluster.ids_of(active)),
        )  # fmt: skip
        return self._problem

    def _round(self, stale: bool) -> bool:
        """Run one round; true if a job ended."""
        if self._problem is None:
            self._rounds.enter(self._look(), now=self._now)
        plan = self._rounds.next(self._now)
        rows = positions(plan.column >= 0)
        if not len(rows):
            self._idle(stale)
            return False
        jobs, length, used = self._active[rows], self._how.rounds.round_s, plan.accelerators[rows]
        rate = self._rates(plan, rows)
        self._begin(plan, jobs)
        debt, left = self._debt[jobs], self._left[jobs]
        could = rate * np.maximum(length - debt, 0.0)
        doable = np.floor(could + 1e-9)
        doable = np.where(doable >= 1.0, doable, could)
        ends = doable >= left - 1e-9
        took = np.where(ends, debt + left / rate, length)
        if ends.all():
            length = float(took.max())
        steps, held = np.where(ends, left, doable), np.where(ends, took, length)
        self._debt[jobs] = np.maximum(debt - length, 0.0)
        self._left[jobs] -= steps
        self._done[jobs] += steps
        self._alone_s[jobs] += steps / self._alone_rate[jobs]
        self._ran_s[jobs] += held
        taken = held * used / np.where(plan.partner[rows] >= 0, 2.0, 1.0)
        self._held_s[jobs] += taken
        self._lost_s[jobs] += np.minimum(debt, held) * used
        self._cost[jobs] += taken / 3600.0 * plan.problem.usd_per_hour[plan.column[rows]]
        self._round_count += 1
        started_at = self._now
        self._now += length
        for at in positions(ends).tolist():
            self._end(int(rows[at]), int(jobs[at]), started_at + float(took[at]))
        return bool(ends.any())

    def _rates(self, plan: GavelRound, rows: Index) -> Array:
        """(k,) how fast the jobs in these rows are in a round."""
        cluster, column, partner = self._cluster, plan.column[rows], plan.partner[rows]
        rate = cluster.speed(self._active[rows], column, plan.accelerators[rows])
        if cluster.pair_rate is not None:
            kind, shares = plan.problem.kind, positions(partner >= 0)
            rate[shares] = cluster.pair_rate[kind[rows[shares]], kind[partner[shares]], column[shares]]
        return rate

    def _end(self, row: int, job: int, at: float) -> None:
        self._rounds.gone(row)
        self._finished[job], self._left[job] = at, 0.0
        self._gone[row] = True
        if self._measured[0] <= job <= self._measured[-1]:
            self._waiting_for -= 1
            self._on_progress(len(self._measured) - self._waiting_for, len(self._measured), self._now)

    def _begin(self, plan: GavelRound, jobs: Index) -> None:
        again = self._active[positions(plan.restarted)]
        self._restarts[again] += 1
        self._debt[again] = self._run.restart_s
        self._started[jobs[np.isnan(self._started[jobs])]] = self._now
        stays = int(np.count_nonzero(plan.kept))
        self._extended += stays
        self._extendable += stays + int(np.count_nonzero(plan.restarted | plan.stopped))

    def _idle(self, stale: bool) -> None:
        """No job can run: go to the next event that may change it."""
        events = [self._next_arrival] if self._next_arrival < math.inf else []
        if stale:
            events.append(max(self._allocated + RESET_S, self._now + self._how.rounds.round_s))
        if not events:
            raise self._cluster.stuck(self._active[~self._gone], self._run.policy)
        self._now = min(events)
