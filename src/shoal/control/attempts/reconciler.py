"""The reconciler compares engine, memory and database both ways, and repairs what differs.

It leaves healthy jobs alone, and rests while there are none. It kills processes of no gang, and starts the attempt
runner of active jobs without one. It declares lost what the engine no longer knows, and fails jobs that waited past
their deadline."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from shoal.base.loops import BackgroundLoop, Turns
from shoal.contract.events import EventKind
from shoal.contract.gangs import RUN, gang_name, parse_gang_name
from shoal.contract.lifecycle import JobState
from shoal.contract.records import NewEvent
from shoal.control.attempts.runner import AttemptRunner
from shoal.control.jobs import transitions
from shoal.control.jobs.repository import JobRepository
from shoal.engine import Engine

log = structlog.get_logger("shoal.reconciler")

_IDLE_S = 60.0
"""How often to compare while no job is active: an engine may still start a gang whose launch it never answered."""


class Reconciler(BackgroundLoop):
    def __init__(
        self, jobs: JobRepository, engine: Engine, runner: AttemptRunner, *,
        on_fatal: Callable[[BaseException], None],
        every_s: float = 5.0,
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._engine = engine
        self._runner = runner
        self._turns = Turns(log, "reconciling failed", on_fatal)
        self._every_s = every_s
        self._suspects: frozenset[str] = frozenset()
        self._calm_turns = 0
        self.repaired = 0

    async def _run(self) -> None:
        pause = min(1.0, self._every_s)
        waited = self._every_s  # what a server that died left behind is looked for at once
        while True:
            if self._calm_turns > 1 and not self._jobs.cache.watched.is_set() and not await self._stirred():
                waited = self._every_s
            await asyncio.sleep(pause)
            with self._turns.turn() as turn:
                await self.expire_waiting()
                waited += pause
                if waited >= self._every_s:
                    waited = 0.0
                    await self.reconcile()
            if turn.over:
                return

    async def _stirred(self) -> bool:
        """Wait for the first job that has to be watched; False when there was none for long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._jobs.cache.watched.wait(), _IDLE_S)
            self._calm_turns = 0
            return True
        return False

    async def expire_waiting(self) -> None:
        """Fail queued jobs whose deadline passed."""
        now = self._jobs.now()
        for job_id in list(self._jobs.cache.deadlines):
            live = self._jobs.cache.get(job_id)
            if live is None or live.job.state is not JobState.QUEUED or not transitions.late(live.job, now):
                continue
            with contextlib.suppress(transitions.JobOver):
                await self._jobs.change(
                    job_id,
                    lambda job, _: transitions.expire(job, now, "reconciler") if job.state is JobState.QUEUED else None,
                )

    async def reconcile(self) -> None:
        """One comparison, both ways. What looks wrong must look wrong twice in a row, for a change on its way
        between the three is no fault."""
        gangs = await self._engine.gangs()
        wanted = {(live.job.id, live.job.attempt) for live in self._jobs.cache.active()}
        orphans = {name for name in gangs if (parse_gang_name(name) or ())[:2] not in wanted}
        for name in [name for name in orphans & self._suspects if gangs[name].ended]:
            # Not a fault: its end was written down, and the server died before it let go of the record.
            await self._engine.forget(name)
            orphans.discard(name)
        undriven = {live.job.id for live in self._jobs.cache.active() if not self._runner.driven(live.job.id)}
        vanished = {
            gang_name(live.job.id, live.job.attempt, RUN): live.job.id
            for live in self._jobs.cache.active()
            if live.job.state in (JobState.STARTING, JobState.RUNNING, JobState.CHECKPOINTING)
        }
        vanished = {
            name: job_id
            for name, job_id in vanished.items()
            if name not in gangs and (self._jobs.cache[job_id].job.state is not JobState.STARTING
                                      or self._runner.waits_for(name))
        }  # fmt: skip
        suspects = frozenset(orphans | undriven | vanished.keys())
        for name in sorted(suspects & self._suspects):
            await self._repair(name, orphan=name in orphans, vanished=vanished.get(name))
        self._suspects = suspects
        # Asked anew: what was launched since must not be taken for a stray.
        killed = await self._engine.sweep(frozenset(await self._engine.gangs()))
        for ended in killed:
            await self._report(
                EventKind.RECONCILE_PROCESS_KILLED, ended, "processes that belonged to no gang were killed"
            )
        self._calm_turns = 0 if gangs or wanted or suspects or killed else self._calm_turns + 1

    async def _repair(self, name: str, *, orphan: bool, vanished: str | None) -> None:
        """`vanished` is the job whose gang it was, if it is one."""
        if orphan:
            await self._engine.forget(name)
            await self._report(
                EventKind.RECONCILE_ORPHAN_REMOVED, name, "the engine held a gang that no active job owns"
            )
        elif vanished is not None:
            self._runner.lose(vanished, name)
            await self._report(
                EventKind.RECONCILE_GANG_VANISHED, name, "the engine no longer knows a gang that should run"
            )
        else:
            self._runner.take(name)
            await self._report(EventKind.RECONCILE_RUNNER_RESTARTED, name, "an active job had no attempt runner")

    async def _report(self, kind: str, name: str, cause: str) -> None:
        self.repaired += 1
        log.warning(cause, gang=name)
        parsed = parse_gang_name(name)
        await self._jobs.store.record(
            [NewEvent(self._jobs.now(), kind, "reconciler", cause, job_id=parsed.job_id if parsed else None,
                      data={"name": name})]
        )  # fmt: skip
