"""The decider asks admission what to start, and commits its answer before any other part acts on it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from itertools import takewhile

import structlog

from shoal.admission import Decision, Preemption, Snapshot, decide
from shoal.base.loops import BackgroundLoop, Turns
from shoal.contract.lifecycle import JobState, Stop
from shoal.contract.records import Change
from shoal.control.jobs import transitions
from shoal.control.jobs.repository import JobRepository

log = structlog.get_logger("shoal.decider")

Decide = Callable[[Snapshot], Decision]


class Decider(BackgroundLoop):
    """Runs a decision whenever something changed; `started` is told of every job that got a place, and `decided` that
    a decision is written down. With `put_off` a start is written with the job's next step, or after half a minute: what
    it is given to writes it down, and a control plane that opens anew asks that first."""

    def __init__(
        self, jobs: JobRepository, *, epoch: int, started: Callable[[str], None],
        on_fatal: Callable[[BaseException], None],
        policy: Decide = decide, decided: Callable[[], None] = lambda: None, put_off: bool = False,
        retry_s: float = 1.0,
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._epoch = epoch
        self._started = started
        self._turns = Turns(log, "decision failed", on_fatal)
        self._policy = policy
        self._decided = decided
        self._put_off = put_off
        self._unwritten: dict[str, float] = {}
        self._retry_s = retry_s
        self._wake = asyncio.Event()
        self.cycles = 0
        self.last_cycle_s = 0.0

    def open(self) -> None:
        self._wake.set()
        super().open()

    def wake(self) -> None:
        self._wake.set()

    def wake_from_thread(self) -> None:
        """As `wake`, from a thread other than the event loop's; nothing before `open` and once the loop is closed."""
        if self._task is not None:
            with contextlib.suppress(RuntimeError):
                self._task.get_loop().call_soon_threadsafe(self._wake.set)

    async def _run(self) -> None:
        wake_at = math.inf
        while True:
            await self._next(wake_at)
            self._wake.clear()
            began = self._jobs.clock.monotonic()
            with self._turns.turn() as turn:
                wake_at = await self.cycle()
            if turn.over:
                return
            if turn.held_up:
                wake_at = self._jobs.now() + self._retry_s
            if self.last_cycle_s > _COALESCE_ABOVE_S:
                # Under a flood, deciding takes at most half the time and later arrivals share a cycle.
                await asyncio.sleep(began + 2 * self.last_cycle_s - self._jobs.clock.monotonic())

    async def _next(self, wake_at: float) -> None:
        if wake_at == math.inf:
            await self._wake.wait()
            return
        try:
            async with asyncio.timeout(max(0.0, wake_at - self._jobs.now())):
                await self._wake.wait()
        except TimeoutError:
            return

    async def cycle(self) -> float:
        """One decision; returns when to decide again even if nothing changes (infinity: no need)."""
        self.cycles += 1
        began = self._jobs.clock.monotonic()
        cache, now = self._jobs.cache, self._jobs.now()
        snapshot = cache.index.snapshot(now)
        decision = self._policy(snapshot)
        cache.index.settle(decision)
        changes, note_at = self._changes(decision, now)
        self.last_cycle_s = self._jobs.clock.monotonic() - began
        done = [change for change in changes if self._follows(change)] if self._put_off else []
        if len(done) < len(changes):
            followed = set(map(id, done))
            done += await self._jobs.apply_all([change for change in changes if id(change) not in followed])
        started = {change.after.id for change in done if _starts(change)}
        cache.index.refund(start for start in decision.starts if start.job_id not in started)
        for change in done:
            if change.after.id in started:
                self._started(change.after.id)
        self._decided()
        write_at = next(iter(self._unwritten.values()), math.inf)
        return min(math.inf if decision.wake_at is None else decision.wake_at, note_at, write_at)

    def _follows(self, change: Change) -> bool:
        if not _starts(change) or not self._jobs.follow(change):
            return False
        self._unwritten[change.after.id] = change.after.updated_at + _WRITE_AFTER_S
        return True

    def _overdue(self, now: float) -> list[Change]:
        """Starts that are still not written though it is time."""
        due = list(takewhile(lambda job_id: self._unwritten[job_id] <= now, self._unwritten))
        for job_id in due:
            del self._unwritten[job_id]
        lives = [live for job_id in due if (live := self._jobs.cache.get(job_id)) is not None]
        return [Change(live.job, live.job) for live in lives if live.unwritten is not None and not live.writes]

    def _changes(self, decision: Decision, now: float) -> tuple[list[Change], float]:
        """What the decision writes, and when the causes of waits that are too young for it will be old enough."""
        changes = self._overdue(now)
        note_at, cache = math.inf, self._jobs.cache
        for job_id, cause in cache.held.doomed.items():
            changes.append(transitions.cancel_waiting(cache[job_id].job, now, "dependencies", cause))
        for start in decision.starts:
            live = self._jobs.cache.get(start.job_id)
            if live is None or live.job.state is not JobState.QUEUED:
                continue
            if transitions.late(live.job, now):
                changes.append(transitions.expire(live.job, now, "decider"))
                continue
            changes.append(
                transitions.place(live.job, start.placement, start.reason, epoch=self._epoch, now=now, wait=live.wait)
            )
        for preemption in decision.preemptions:
            change = self._preempt(preemption, now)
            if change is not None:
                changes.append(change)
        for job_id, reason in decision.waits.items():
            live = self._jobs.cache.get(job_id)
            if live is None:
                continue
            if live.wait is None or live.wait.code != reason.code:
                live.wait_since = now
            live.wait = reason
            if now < live.wait_since + _NOTE_AFTER_S:
                note_at = min(note_at, live.wait_since + _NOTE_AFTER_S)
                continue
            noted = transitions.note_wait(live.job, reason, now)
            if noted is not None:
                changes.append(noted)
        return changes, note_at

    def _preempt(self, preemption: Preemption, now: float) -> Change | None:
        live = self._jobs.cache.get(preemption.job_id)
        if live is None or live.attempt is None:
            return None
        return transitions.request_stop(
            live.job, live.attempt, Stop.PREEMPT, now=now, actor="decider", cause=preemption.reason.text
        )


def _starts(change: Change) -> bool:
    return change.before.state is JobState.QUEUED and change.after.state is JobState.STARTING


_COALESCE_ABOVE_S = 0.002

_WRITE_AFTER_S = 30.0
"""A start that was put off is written down after this time; most jobs have had their next step then."""

_NOTE_AFTER_S = 0.25
"""A wait is written down with its cause once it lasted this long; under a flood most end sooner."""
