"""Gavel's simulator: its rounds under its accounting.

It goes from round to round. A round counts as Gavel's does: a job does whole steps in it, one that ends in
its middle leaves its accelerators idle until its end, who arrives in its middle waits for the next, and a round in
which all end early is cut short.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from shoal.core import Invalid, Money
from shoal.schedule.policies import POLICIES, decide
from shoal.schedule.rounds import Round
from shoal.schedule.simulate.cluster import Cluster
from shoal.schedule.simulate.lengths import Oracle
from shoal.schedule.simulate.options import Baseline, Run
from shoal.schedule.simulate.result import OnProgress, Simulated
from shoal.schedule.types import Allocation, Array, Index, Mask, Pool, Problem, positions

FAILURES = 103
"""Added to the seed for the draws of failures."""


def play(cluster: Cluster, run: Run, measured: range, on_progress: OnProgress, cpu_s: Callable[[], float]) -> Simulated:
    """Simulate until all measured jobs are done. Raises what the policy raises; `Invalid` if jobs can never run."""
    assert run.baseline is not None
    return _Simulation(cluster, run, run.baseline, measured, on_progress, cpu_s).result()


class _Simulation:
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
        self._oracle = Oracle(run.lengths, work.steps, run.seed)
        self._chance = np.random.default_rng(run.seed + FAILURES)
        self._rounds = how.mechanism(how.rounds)
        self._left, self._done = work.steps.copy(), np.zeros(jobs)
        self._safe = np.zeros(jobs)
        self._debt = np.full(jobs, 0.0)
        self._finished, self._started = np.full(jobs, np.nan), np.full(jobs, np.nan)
        self._ran_s, self._alone_s, self._held_s = np.zeros(jobs), np.zeros(jobs), np.zeros(jobs)
        self._lost_s, self._cost = np.zeros(jobs), np.zeros(jobs)
        self._alone_rate = np.ones(jobs)
        self._restarts, self._failures = np.zeros(jobs, np.intp), np.zeros(jobs, np.intp)
        self._active = np.empty(0, np.intp)
        self._gone: Mask = np.empty(0, np.bool_)
        self._arrivals, self._next_arrival, self._prices_at = 0, -math.inf, 0
        self._pools: tuple[Pool, ...] = cluster.pools
        self._everybody = cluster.everybody(cluster.pools)
        self._charged = bool(cluster.prices) or any(pool.price_per_hour.micro_usd for pool in cluster.pools)
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
            stale |= self._reprice()
            if not len(self._active):
                self._now = self._next_arrival
                continue
            if stale and (self._now - self._allocated >= self._how.reset_s or self._allocated <= began):
                self._allocate()
                stale = False
            stale |= self._round(stale)
        count = sum(pool.count for pool in self._pools)
        return Simulated(
            run=self._run, workload=work, measured=self._measured, started=self._started, finished=self._finished,
            ran_s=self._ran_s, alone_s=self._alone_s, held_s=self._held_s, lost_s=self._lost_s, cost_usd=self._cost,
            restarts=self._restarts, failures=self._failures, began=began, ended=self._now,
            capacity_s=count * (self._now - began), rounds=self._round_count, extended=self._extended,
            extendable=self._extendable, policy_cpu_s=np.array(self._decisions),
        )  # fmt: skip

    # Events

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

    def _reprice(self) -> bool:
        prices = self._cluster.prices
        changed = False
        while self._prices_at < len(prices) and prices[self._prices_at].at_s <= self._now:
            change = prices[self._prices_at]
            self._prices_at += 1
            self._pools = tuple(
                Pool(p.type, p.count, Money.usd(change.usd_per_hour), p.zone, p.per_node, p.unconsolidated)
                if p.type == change.type else p
                for p in self._pools
            )  # fmt: skip
            self._problem, changed = None, True
        if changed:
            self._everybody = self._cluster.everybody(self._pools)
        return changed

    def _allocate(self) -> None:
        """Ask the policy."""
        problem = self._look()
        settings = dict(self._how.given)
        if self._policy.seeded:
            settings["seed"] = self._run.seed + len(self._decisions)
        if self._policy.remembers:
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
        placed = self._rounds.placed(cluster.ids_of(active))
        self._problem = cluster.problem(
            self._everybody, active, now=self._now,
            work_left=self._oracle.work_left(active, self._left[active], self._done[active]),
            ran_s=self._ran_s[active], isolated_s=self._alone_s[active], restarts=self._restarts[active],
            placed=placed,
        )  # fmt: skip
        return self._problem

    # A round

    def _round(self, stale: bool) -> bool:
        """Run one round; true if a job ended."""
        if self._problem is None:
            self._rounds.enter(self._look(), now=self._now)
        plan = self._rounds.next(self._now)
        rows = positions(plan.column >= 0)
        if not len(rows):
            self._idle(stale)
            return False
        jobs, length = self._active[rows], self._how.rounds.round_s
        rate = self._cluster.rate_of(jobs, plan, rows)
        used = plan.accelerators[rows]
        self._begin(plan, jobs)
        faults = self._run.faults
        speed = rate * (faults.every_s / (faults.every_s + faults.cost_s)) if faults.cost_s else rate
        debt = self._debt[jobs]
        indebted = bool(debt.any())
        could = speed * np.maximum(length - debt, 0.0) if indebted else speed * length
        doable = np.floor(could + 1e-9)
        doable = np.where(doable >= 1.0, doable, could)
        left = self._left[jobs]
        ends = doable >= left - 1e-9
        took = np.where(ends, debt + left / speed, length)
        failed = self._fail(jobs, used, took)
        if ends.all() and not failed.any():
            length = float(took.max())
        steps = np.where(ends, left, doable)
        held = np.where(ends, took, length)
        if indebted:
            self._debt[jobs] = np.maximum(debt - length, 0.0)
        self._left[jobs] -= steps
        self._done[jobs] += steps
        self._alone_s[jobs] += steps / self._alone_rate[jobs]
        self._ran_s[jobs] += held
        taken = held * used if self._cluster.pair_rate is None else held * used / _sharers(plan, rows)
        self._held_s[jobs] += taken
        if indebted or faults.cost_s:
            waited = np.minimum(debt, held)
            self._lost_s[jobs] += (waited + (1.0 - speed / rate) * (held - waited)) * used
        if self._charged:
            self._cost[jobs] += taken / 3600.0 * plan.problem.usd_per_hour[plan.column[rows]]
        if math.isfinite(faults.mtbf_h):
            self._keep_safe(jobs, speed, failed, used)
        self._round_count += 1
        finished = positions(ends & ~failed)
        started_at = self._now
        self._now += length
        for at in finished.tolist():
            self._end(int(rows[at]), int(jobs[at]), started_at + float(took[at]))
        for row in rows[failed]:
            self._rounds.left(int(row), at=self._now)
        return len(finished) > 0

    def _end(self, row: int, job: int, at: float) -> None:
        self._rounds.gone(row, at=at)
        self._finished[job], self._left[job] = at, 0.0
        self._gone[row] = True
        if self._measured[0] <= job <= self._measured[-1]:
            self._waiting_for -= 1
            self._on_progress(len(self._measured) - self._waiting_for, len(self._measured), self._now)

    def _begin(self, plan: Round, jobs: Index) -> None:
        if plan.restarted.any():
            again = self._active[positions(plan.restarted)]
            self._restarts[again] += 1
            self._debt[again] = self._run.restart_s
        fresh = np.isnan(self._started[jobs])
        if fresh.any():
            self._started[jobs[fresh]] = self._now
        stays = int(np.count_nonzero(plan.kept))
        self._extended += stays
        self._extendable += stays + int(np.count_nonzero(plan.restarted | plan.stopped))

    def _idle(self, stale: bool) -> None:
        """No job can run: go to the next event that may change it."""
        events = []
        if self._next_arrival < math.inf:
            events.append(self._next_arrival)
        if self._prices_at < len(self._cluster.prices):
            events.append(self._cluster.prices[self._prices_at].at_s)
        if stale:
            events.append(max(self._allocated + self._how.reset_s, self._now + self._how.rounds.round_s))
        if not events:
            names = ", ".join(str(self._cluster.workload.ids[job]) for job in self._active[~self._gone][:5])
            raise Invalid(
                f"{self._run.policy} never lets {int((~self._gone).sum())} jobs run, among them {names}",
                where=self._cluster.workload.where(int(self._active[~self._gone][0])),
                hint="its gang, its tenant's quota or its deadline may leave no room",
            )
        self._now = min(events)

    # Failures

    def _fail(self, jobs: Index, used: Index, took: Array) -> Mask:
        """Who fails before the round (or the job) is over."""
        hours = self._run.faults.mtbf_h
        if not math.isfinite(hours):
            return np.zeros(len(jobs), np.bool_)
        chance = 1.0 - np.exp(-used * took / (hours * 3600.0))
        failed: Mask = self._chance.random(len(jobs)) < chance
        return failed

    def _keep_safe(self, jobs: Index, speed: Array, failed: Mask, used: Index) -> None:
        """Checkpoints are taken on the way; who failed goes back to the last one."""
        every = self._run.faults.every_s
        self._safe[jobs] = np.maximum(self._safe[jobs], self._done[jobs] - speed * every)
        lost = positions(failed)
        if not len(lost):
            return
        thrown = jobs[lost]
        redo = (self._done[thrown] - self._safe[thrown]) * self._chance.random(len(lost))
        self._done[thrown] -= redo
        self._left[thrown] += redo
        self._lost_s[thrown] += redo / speed[lost] * used[lost]
        self._failures[thrown] += 1


def _sharers(plan: Round, rows: Index) -> Array:
    """(k,) by how many jobs the accelerators of each are used."""
    return np.where(plan.partner[rows] >= 0, 2.0, 1.0)
