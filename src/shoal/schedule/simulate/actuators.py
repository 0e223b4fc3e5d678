"""Simulated actuators: the accelerators, who runs on them, and what that does to the work that is left.

Jobs progress continuously at their true speeds. Starting again after having run costs `restart_s`; a job that does not
save its work starts from nothing.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.schedule.rounds.machines import Nodes
from shoal.schedule.simulate.cluster import Cluster
from shoal.schedule.simulate.options import Run
from shoal.schedule.types import Array, Index, positions

FAILURES, SAVES = 103, 107
"""Added to the seed for the draws of failures, and of the jobs that do not save."""


class Actuators:
    """All arrays are (m,) by job. `placed` is the column that a job runs in or -1, `size` with how many accelerators,
    `since` since when it is there or in the queue; `left` and `done` are steps, the rest as in `Simulated`.
    `saves` is false for jobs that do not save their work, and `lost_run_s` the run time that these have lost. `among`
    is the number of jobs that are there, waiting ones included."""

    def __init__(self, cluster: Cluster, run: Run) -> None:
        work, jobs = cluster.workload, cluster.workload.jobs
        self._cluster, self._run = cluster, run
        self._chance = np.random.default_rng(run.seed + FAILURES)
        self.left, self.done, self._safe = work.steps.copy(), np.zeros(jobs), np.zeros(jobs)
        self.placed, self.size = np.full(jobs, -1, np.intp), work.gang.astype(np.intp)
        self.since, self._works_from = work.arrived.copy(), np.zeros(jobs)
        self._speed, self._ends, self._fails = np.zeros(jobs), np.full(jobs, np.inf), np.full(jobs, np.inf)
        self.started, self.finished = np.full(jobs, np.nan), np.full(jobs, np.nan)
        self.ran_s, self.alone_s, self.held_s = np.zeros(jobs), np.zeros(jobs), np.zeros(jobs)
        self.lost_s, self.cost_usd = np.zeros(jobs), np.zeros(jobs)
        self.restarts, self.failures = np.zeros(jobs, np.intp), np.zeros(jobs, np.intp)
        self.saves = np.random.default_rng(run.seed + SAVES).random(jobs) >= run.unsaved
        self.lost_run_s = np.zeros(jobs)
        self.nodes: Nodes = {}
        self.running = np.empty(0, np.intp)
        self.usd_per_hour = np.zeros(0)
        self.among = 0

    def event_at(self) -> float:
        """When the next running job ends or fails."""
        if not len(self.running):
            return math.inf
        return float(min(self._ends[self.running].min(), self._fails[self.running].min()))

    def advance(self, now: float, to: float) -> None:
        """Let everybody run from `now` to `to`, before which no job ends."""
        jobs = self.running
        if not len(jobs) or to <= now:
            return
        works = np.clip(to - np.maximum(now, self._works_from[jobs]), 0.0, to - now)
        steps = np.minimum(self._speed[jobs] * works, self.left[jobs])
        self.left[jobs] -= steps
        self.done[jobs] += steps
        self.alone_s[jobs] += steps / self._cluster.alone(jobs, self.among)
        self.ran_s[jobs] += to - now
        used = (to - now) * self.size[jobs]
        self.held_s[jobs] += used
        lost = used - works * self.size[jobs] / self._slowed
        self.lost_s[jobs] += lost
        if self.usd_per_hour.any():
            self.cost_usd[jobs] += used / 3600.0 * self.usd_per_hour[self.placed[jobs]]

    @property
    def _slowed(self) -> float:
        """By how much longer work takes because of checkpoints on the way."""
        return 1.0 + self._run.faults.cost_s / self._run.faults.every_s

    def start(self, jobs: Index, columns: Index, sizes: Index, now: float) -> None:
        """These come to run; those that ran before pay for it."""
        if not len(jobs):
            return
        again = ~np.isnan(self.started[jobs])
        self.restarts[jobs[again]] += 1
        self.started[jobs[~again]] = now
        self.placed[jobs], self.size[jobs], self.since[jobs] = columns, sizes, now
        self._works_from[jobs] = now + np.where(again, self._run.restart_s, 0.0)
        self._speed[jobs] = self._cluster.speed(jobs, columns, sizes) / self._slowed
        with np.errstate(divide="ignore"):
            self._ends[jobs] = self._works_from[jobs] + self.left[jobs] / self._speed[jobs]
        hours = self._run.faults.mtbf_h
        if math.isfinite(hours):
            self._fails[jobs] = now + self._chance.exponential(hours * 3600.0, len(jobs)) / sizes
        self.running = np.concatenate([self.running, jobs])

    def stop(self, jobs: Index, now: float) -> None:
        """These are asked to leave: what they saved they keep."""
        if not len(jobs):
            return
        unsaved = jobs[~self.saves[jobs]]
        self.lost_run_s[unsaved] += now - self.since[unsaved]
        self._throw_away(unsaved, self.done[unsaved])
        self._leave(jobs, now)

    def over(self, now: float) -> tuple[Index, Index]:
        """The jobs that end now, and those that fail: neither runs any longer."""
        ended = self.running[self._ends[self.running] <= now]
        self.left[ended], self.finished[ended] = 0.0, now
        failed = self.running[(self._fails[self.running] <= now) & (self._ends[self.running] > now)]
        if len(failed):
            every = self._run.faults.every_s
            behind = self.done[failed] - self._speed[failed] * every
            kept = np.where(self.saves[failed], np.maximum(self._safe[failed], behind), 0.0)
            self._safe[failed] = kept
            part = np.where(self.saves[failed], self._chance.random(len(failed)), 1.0)
            self._throw_away(failed, (self.done[failed] - kept) * part)
            self.failures[failed] += 1
        self._leave(np.concatenate([ended, failed]), now)
        return ended, failed

    def _throw_away(self, jobs: Index, steps: Array) -> None:
        some = positions(steps > 0.0)
        jobs, steps = jobs[some], steps[some]
        self.done[jobs] -= steps
        self.left[jobs] += steps
        self.alone_s[jobs] -= np.minimum(steps / self._cluster.alone(jobs, self.among), self.alone_s[jobs])
        self.lost_s[jobs] += steps / self._speed[jobs] * self.size[jobs]

    def _leave(self, jobs: Index, now: float) -> None:
        self.placed[jobs], self.since[jobs] = -1, now
        self._ends[jobs] = self._fails[jobs] = np.inf
        for job in jobs.tolist():
            self.nodes.pop(job, None)
        self.running = self.running[self.placed[self.running] >= 0]
