"""Starts of a waiting job in drawn futures of a snapshot: an interval of its start rests on them.

In each future the same policy decides. What is not known is drawn, each time anew: when jobs end, by the runs that
their tenants' jobs had before or by what they report, and which jobs come meanwhile, as they came before. If the truth
is one more future of that kind, it lies between the earliest and the latest of 19 in nine of ten cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count, groupby, pairwise
from math import exp, inf, log
from operator import attrgetter
from random import Random
from statistics import fmean

from shoal.admission.decide import decide
from shoal.admission.index import ClusterIndex
from shoal.admission.lives import Lives
from shoal.admission.past import NO_PAST, Arrival, Past
from shoal.admission.snapshot import Snapshot, expected_runtime_s
from shoal.admission.types import Decision, Pending, Running

FUTURES = 19
_MOST_STEPS = 64
_MOST_ARRIVALS = 64
"""The arrivals of one future."""
_TOGETHER = 0.1
"""What happens within this part of the time since the snapshot is decided at once, as if it had come with the first."""
_FEWEST_STEPS = 6
_COST = 100_000
"""The decisions of all futures together, times the jobs that each looks at. Where that leaves too few for each, none is
looked at."""
_LEAST_RUNS = 3
"""Where fewer runs of a tenant are over, nothing is said of how long its others take."""
_RATE_OF = 4
"""The least number of a tenant's starts within a future before their rate is used beyond it."""
_SAME_S = 1e-3
"""An end no further off is the one that was declared."""
_NINE_OF_TEN = 1.645
"""Standard deviations around the middle of a normal distribution."""
_LEAVING_S = 3.0
"""The longest that a job that was asked to end is taken to need for that."""
_ETA_OFF = 0.2
"""The spread of the logarithm of what is left, where a job reports that without bounds."""


class Futures:
    """Worked out as far as it is asked for. `decision` is that of the snapshot."""

    def __init__(self, snapshot: Snapshot, decision: Decision) -> None:
        size = 1 + len(snapshot.running) + len(snapshot.pending)
        steps = min(_MOST_STEPS, _COST // size // FUTURES)
        self._futures: list[_Future] = []
        if steps >= _FEWEST_STEPS:
            sources = _Sources(snapshot)
            self._futures = [_Future(snapshot, decision, sources, seed, steps) for seed in range(FUTURES)]

    def starts(self, job_id: str, tenant: str, before: int) -> list[float]:
        """When a job starts in each of them, sorted, `before` being the number of its tenant's jobs that go first.
        Infinity where that cannot be said."""
        return sorted(future.start_of(job_id, tenant, before) for future in self._futures)


class _Sources:
    """What a snapshot knows of run times and arrivals, the same for all futures."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._going: dict[str, list[Running]] = {}
        for running in _by_id(snapshot):
            if not running.stopping and not running.endless:
                self._going.setdefault(running.tenant, []).append(running)
        self._lives: dict[tuple[str, str, bool], Lives] = {}
        self.batches = {name: _batches(past) for name, past in sorted(snapshot.past.items())}

    def lives(self, tenant: str, kind: str, declared: bool) -> Lives:
        """How long runs lasted; with `declared`, over what was declared."""
        key = (tenant, kind, declared)
        found = self._lives.get(key)
        if found is None:
            found = self._lives[key] = self._find(tenant, kind, declared)
        return found

    def _find(self, tenant: str, kind: str, declared: bool) -> Lives:
        past: Past = self._snapshot.past.get(tenant) or NO_PAST
        mine = [run for run in past.runs if not declared or run.declared_s]
        over = [run for run in mine if run.kind == kind]
        now = self._snapshot.now
        going = [run for run in self._going.get(tenant, ()) if run.kind == kind and (not declared or run.declared_s)]
        if declared:
            ages = [(now - run.started_at) / (run.declared_s or 1.0) for run in going]
            return Lives((run.held_s / (run.declared_s or 1.0) for run in over), ages, 1.0)
        near = exp(fmean(log(max(run.held_s, 1e-3)) for run in mine)) if len(mine) >= _LEAST_RUNS else None
        if near is None:
            return Lives(())
        return Lives((run.held_s for run in over), (now - run.started_at for run in going), near)


def _batches(past: Past) -> list[tuple[float, list[Arrival]]]:
    """A tenant's arrivals by time."""
    return [(at, list(jobs)) for at, jobs in groupby(past.arrivals, key=attrgetter("at"))]


def _again(running: Running) -> Pending:
    """A job that was preempted waits to go on."""
    return Pending(
        running.job_id, running.tenant, running.priority_class, running.priority, running.resources,
        len(running.placement), running.started_at, expected_s=running.declared_s, endless=running.endless,
        affinity=running.affinity, kind=running.kind,
    )  # fmt: skip


def _by_id(snapshot: Snapshot) -> list[Running]:
    """Its running jobs in an order that does not depend on the process: what is drawn for each follows from it."""
    return sorted(snapshot.running.values(), key=lambda running: running.job_id)


class _Future:
    """One of them."""

    def __init__(self, snapshot: Snapshot, decision: Decision, sources: _Sources, seed: int, steps: int) -> None:
        self._snapshot, self._first, self._sources = snapshot, decision, sources
        self._chance = Random(f"{seed} {snapshot.now} {len(snapshot.pending)}")  # noqa: S311 - no secret
        self._steps = steps
        self._lives: dict[tuple[str, str, bool], Lives] = {}
        self._gaps: dict[str, Lives] = {}
        self._events: list[tuple[float, int, str]] = []
        self._ends: dict[str, int] = {}
        self._numbers = count()
        self._starts: dict[str, float] = {}
        self._by_tenant: Counter[str] = Counter()
        self._until = snapshot.now
        self._came = 0
        self._preempted: set[str] = set()
        self._walking = self._walk()

    def start_of(self, job_id: str, tenant: str, before: int) -> float:
        """When the job starts. Beyond the steps, its tenant's jobs go on to start as often; infinity: no telling."""
        while job_id not in self._starts and next(self._walking, False):
            pass
        if job_id in self._starts:
            return self._starts[job_id]
        started, span_s = self._by_tenant[tenant], self._until - self._snapshot.now
        if started < _RATE_OF or span_s <= 0:
            return inf
        return self._until + max(0.0, span_s * (before + 1) / started - span_s) * self._chance.uniform(0.8, 1.25)

    # --- inside

    def _walk(self) -> Iterator[bool]:
        snapshot = current = self._snapshot
        index, decision = ClusterIndex.resume(snapshot), self._first
        now = snapshot.now
        for running in _by_id(snapshot):
            self._add(self._end_of(running), running.job_id)
        for tenant in self._sources.batches:
            self._add(self._next_arrival(tenant, now, first=True), f"+{tenant}")
        heapify(self._events)
        for _ in range(self._steps):
            for start in decision.starts:
                self._starts.setdefault(start.job_id, now)
                self._by_tenant[current.pending.by_id[start.job_id].tenant] += 1
            self._until = now
            yield True
            index.take_over()
            self._carry_out(index, current, decision)
            later = [at for at in (decision.wake_at, self._events[0][0] if self._events else None) if at is not None]
            if not later:
                break
            now = max(now, min(later))
            together = now + (now - snapshot.now) * _TOGETHER
            wake_at = inf if decision.wake_at is None else decision.wake_at
            matters = now >= wake_at
            while self._events and self._events[0][0] <= (together if matters else wake_at):
                at, number, what = heappop(self._events)
                if self._ends[what] != number:
                    continue  # it was preempted before that
                now = now if matters else max(now, at)
                matters |= self._happen(index, now, what)
            if not matters:
                if wake_at == inf:
                    break
                now = wake_at
            current = index.snapshot(now)
            decision = decide(current)

    def _happen(self, index: ClusterIndex, now: float, what: str) -> bool:
        """Whether the policy has something new to decide."""
        matters = False
        if what.startswith("+"):
            tenant = what[1:]
            self._came += 1
            if self._came > _MOST_ARRIVALS:
                return False
            for arrival in self._chance.choice(self._sources.batches[tenant])[1]:
                job, number = arrival.job, next(self._numbers)
                matters |= index.add_pending(
                    job._replace(
                        job_id=f"{job.job_id}+{number}", queued_at=now - max(0.0, arrival.at - job.queued_at),
                        not_before=now + job.not_before - arrival.at if job.not_before > arrival.at else 0.0,
                    )
                )  # fmt: skip
            self._add(self._next_arrival(tenant, now), what)
            return matters
        ended = index.running(what)
        if ended is None:
            return False
        index.stop(what, ran_s=now - ended.started_at, completed=False)
        if what in self._preempted:
            self._preempted.discard(what)
            index.add_pending(_again(ended))
        return True

    def _carry_out(self, index: ClusterIndex, current: Snapshot, decision: Decision) -> None:
        index.settle(decision)
        for start in decision.starts:
            job = current.pending.by_id[start.job_id]
            mean = current.tenants[job.tenant].mean_runtime_s
            known = not job.endless and (job.expected_s is not None or mean is not None)
            index.start(
                Running(
                    job.job_id, job.tenant, job.priority_class, job.priority, job.resources, start.placement,
                    current.now, endless=job.endless, affinity=job.affinity, kind=job.kind, declared_s=job.expected_s,
                    expected_end=current.now + expected_runtime_s(job, mean, current.policy) if known else None,
                )
            )  # fmt: skip
            self._add(current.now + self._life_of(job), job.job_id)
        for preemption in decision.preemptions:
            index.update_running(preemption.job_id, stopping=True)
            self._preempted.add(preemption.job_id)
            self._add(current.now + self._chance.uniform(0, _LEAVING_S), preemption.job_id)

    def _add(self, at: float, what: str) -> None:
        number = next(self._numbers)
        self._ends[what] = number
        if at < inf:
            heappush(self._events, (at, number, what))

    def _next_arrival(self, tenant: str, now: float, *, first: bool = False) -> float:
        batches = self._sources.batches[tenant]
        if len(batches) < 2:
            return inf
        age = now - batches[-1][0]
        gaps = self._gaps.get(tenant)
        if gaps is None:
            times = [at for at, _ in batches]
            seen = [later - at for at, later in pairwise(times)]
            gaps = self._gaps[tenant] = Lives(seen, (age,))
        return now - age + gaps.draw(self._chance, age) if first else now + gaps.draw(self._chance)

    def _life_of(self, job: Pending) -> float:
        """How long a job runs that starts in this future."""
        longest = inf if job.longest_s is None else job.longest_s
        if job.endless:
            return longest
        if job.expected_s:
            return min(longest, job.expected_s * self._source(job.tenant, job.kind, True).draw(self._chance))
        lives = self._source(job.tenant, job.kind, False)
        if lives.known:
            return min(longest, lives.draw(self._chance))
        return longest * self._chance.random() if longest < inf else inf

    def _end_of(self, running: Running) -> float:
        """When a job ends that runs in the snapshot."""
        now, chance = self._snapshot.now, self._chance
        latest = inf if running.latest_end is None else max(now, running.latest_end)
        age = max(0.0, now - running.started_at)
        if running.stopping:
            return now + chance.uniform(0, _LEAVING_S)
        if running.endless:
            return latest
        told, declared = running.expected_end, running.declared_s
        if told is not None and (
            running.end_between is not None or not declared or told != running.started_at + declared
        ):
            return min(latest, self._reported(running, told))
        if declared:
            lives = self._source(running.tenant, running.kind, True)
            return min(latest, running.started_at + declared * lives.draw(chance, age / declared))
        lives = self._source(running.tenant, running.kind, False)
        if lives.known:
            return min(latest, running.started_at + lives.draw(chance, age))
        return now + (latest - now) * chance.random() if latest < inf else inf

    def _reported(self, running: Running, told: float) -> float:
        """By the end that the job reports: what is left is as far off as its bounds say."""
        now, z = self._snapshot.now, self._chance.gauss(0, 1)
        left = told - now
        if left <= 1.0:
            return now + max(1.0, now - running.started_at) * 0.1 * self._chance.expovariate(1.0)
        if running.end_between is None:
            return now + left * exp(z * _ETA_OFF)
        bound = max(0.02 * left, running.end_between[z > 0] - now)
        return now + left * exp(log(bound / left) * abs(z) / _NINE_OF_TEN)

    def _source(self, tenant: str, kind: str, declared: bool) -> Lives:
        key = (tenant, kind, declared)
        found = self._lives.get(key)
        if found is None:
            found = self._lives[key] = self._sources.lives(tenant, kind, declared).copy()
        return found
