"""Decisions of admission on a snapshot, now and later: worked out once, for all explanations of that snapshot.

What comes later is decided by the same policy along the expected ends of jobs. An end is what the job reports, else
what it declared, else the mean run time of its tenant; `max_runtime` bounds all of them, and is the only end
that is known of what runs until somebody stops it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from heapq import heapify, heappop, heappush
from threading import RLock

from shoal.admission.decide import decide
from shoal.admission.futures import Futures
from shoal.admission.index import ClusterIndex
from shoal.admission.snapshot import Snapshot, expected_runtime_s
from shoal.admission.types import Decision, Running

_STEPS = 64
_STEP_COST = 100_000
"""A forecast looks at most `_STEPS` decisions ahead, fewer where there are many jobs (each costs some of them)."""

_RATE_OF = 4
"""The least number of jobs of a tenant that must start within a forecast before their rate is used beyond it."""


class EndBy(StrEnum):
    """What the expected end of a job rests on, in the words of an explanation."""

    STOPPING = "being stopped"
    TOLD = "a declared or reported run time"
    HISTORY = "the mean run time of its tenant"
    LIMIT = "its max_runtime"


@dataclass(frozen=True, slots=True)
class Expected:
    """When a job is expected to end, and by what; `overdue` when it should have ended by that already, and is taken to
    run as long again."""

    at: float
    by: EndBy
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """When a waiting job is expected to start, and what ends that rests on."""

    at: float
    ends: tuple[tuple[EndBy, int], ...] = ()
    overdue: int = 0


def expected_end(snapshot: Snapshot, running: Running) -> Expected | None:
    """None where nothing is known."""
    now, mean = snapshot.now, snapshot.tenants[running.tenant].mean_runtime_s
    if running.stopping:
        return Expected(now, EndBy.STOPPING)
    if running.endless:
        return None if running.latest_end is None else Expected(max(now, running.latest_end), EndBy.LIMIT)
    if running.expected_end is not None:
        found = Expected(running.expected_end, EndBy.TOLD)
    elif mean is not None:
        found = Expected(running.started_at + mean, EndBy.HISTORY)
    elif running.latest_end is not None:
        return Expected(max(now, running.latest_end), EndBy.LIMIT)
    else:
        return None
    if found.at <= now:  # as for lifetimes with a heavy tail: what has run for long will run for long
        found = Expected(now + max(1.0, now - running.started_at), found.by, overdue=True)
    if running.latest_end is not None and running.latest_end < found.at:
        return Expected(max(now, running.latest_end), EndBy.LIMIT)
    return found


class Outlook:
    """May be asked from several threads."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._lock = RLock()
        self._starts: dict[str, ExpectedStart] = {}
        self._by_tenant: Counter[str] = Counter()
        self._until = snapshot.now
        self._steps = self._forecast()

    @property
    def decision(self) -> Decision:
        with self._lock:
            return self._decision

    def start_of(self, job_id: str) -> ExpectedStart | None:
        """When a waiting job starts, as far as the forecast goes."""
        with self._lock:
            while job_id not in self._starts and next(self._steps, False):
                pass
            return self._starts.get(job_id)

    def start_by_rate(self, tenant: str, before: int) -> tuple[float, int] | None:
        """When a job starts that has `before` other jobs of its tenant ahead of it, if the tenant's jobs go on to start
        as often as within the forecast; and how many started within it. None if those were too few."""
        with self._lock:
            for _ in self._steps:
                pass
            started = self._by_tenant[tenant]
            span_s = self._until - self.snapshot.now
        if started < _RATE_OF or span_s <= 0:
            return None
        return self.snapshot.now + span_s * (before + 1) / started, started

    def starts_in_futures(self, job_id: str, before: int) -> list[float]:
        """As `Futures.starts`."""
        with self._lock:
            return self._futures.starts(job_id, self.snapshot.pending.by_id[job_id].tenant, before)

    # --- inside

    @cached_property
    def _futures(self) -> Futures:
        return Futures(self.snapshot, self._decision)

    @cached_property
    def _decision(self) -> Decision:
        return decide(self.snapshot)

    def _forecast(self) -> Iterator[bool]:
        """One decision after another, computed on demand: a job that starts soon costs only a few of them."""
        snapshot, now = self.snapshot, self.snapshot.now
        index = ClusterIndex.resume(snapshot)
        ends: list[tuple[float, str, EndBy, bool]] = []
        for running in snapshot.running.values():
            end = expected_end(snapshot, running)
            if end is not None:
                ends.append((end.at, running.job_id, end.by, end.overdue))
        heapify(ends)
        used: Counter[EndBy] = Counter()
        overdue = 0
        current, decision = snapshot, self._decision
        for _ in range(max(1, min(_STEPS, _STEP_COST // (1 + len(snapshot.running) + len(snapshot.pending))))):
            start = ExpectedStart(now, tuple(sorted(used.items())), overdue)
            for each in decision.starts:
                self._starts.setdefault(each.job_id, start)
                self._by_tenant[current.pending.by_id[each.job_id].tenant] += 1
            self._until = now
            yield True
            index.take_over()
            _carry_out(index, current, decision, ends)
            later = [at for at in (decision.wake_at, ends[0][0] if ends else None) if at is not None]
            if not later:
                break
            now = max(now, min(later))
            while ends and ends[0][0] <= now:
                _, job_id, by, late = heappop(ends)
                ended = index.running(job_id)
                if ended is not None:
                    used[by] += 1
                    overdue += late
                    index.stop(job_id, ran_s=now - ended.started_at, completed=False)
            current = index.snapshot(now)
            decision = decide(current)


def _carry_out(
    index: ClusterIndex, current: Snapshot, decision: Decision, ends: list[tuple[float, str, EndBy, bool]]
) -> None:
    index.settle(decision)
    for start in decision.starts:
        job = current.pending.by_id[start.job_id]
        mean = current.tenants[job.tenant].mean_runtime_s
        known = not job.endless and (job.expected_s is not None or mean is not None)
        end = current.now + expected_runtime_s(job, mean, current.policy) if known else None
        index.start(
            Running(
                job.job_id, job.tenant, job.priority_class, job.priority, job.resources, start.placement,
                current.now, expected_end=end, endless=job.endless, affinity=job.affinity,
            )
        )  # fmt: skip
        if end is not None:
            heappush(ends, (end, job.job_id, EndBy.TOLD if job.expected_s is not None else EndBy.HISTORY, False))
    for preemption in decision.preemptions:
        index.update_running(preemption.job_id, stopping=True)
        heappush(ends, (current.now, preemption.job_id, EndBy.STOPPING, False))
