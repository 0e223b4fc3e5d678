"""The attempt runner drives each attempt from its placement to its end (FfDL's Guardian, as a loop instead of a pod).

One coroutine per active job goes through an attempt from the top. It may die at any line: after a restart it
begins again from the top, and each step finds what was done before. States only move forward, and launches carry
deterministic names and adopt. So nothing is lost and nothing runs twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import structlog

from shoal.base.loops import Turns
from shoal.contract.gangs import DOWNLOAD, PHASES, RUN, STORE, Move, gang_name, parse_gang_name
from shoal.contract.lifecycle import ErrorCode, JobState, Stop
from shoal.contract.records import AttemptRecord, Change, JobRecord
from shoal.control.attempts import phases
from shoal.control.attempts.phases import Layout
from shoal.control.attempts.results import NotKept, Results
from shoal.control.attempts.staging import Staging
from shoal.control.home.vault import SecretMissing
from shoal.control.jobs import transitions
from shoal.control.jobs.cache import Live
from shoal.control.jobs.memory_use import out_of_memory
from shoal.control.jobs.repository import JobRepository
from shoal.control.jobs.transitions import ORDER, AttemptEnd
from shoal.core import Fault, Reason
from shoal.engine import Engine, Gang, GangStatus, LaunchFailed, Phase, Refused

log = structlog.get_logger("shoal.attempt_runner")

_NO_CAUSE_YET = Reason("cluster-queue", "waits in the cluster's queue")

_PHASES = list(Phase)
"""In the order in which a gang goes through them."""


class AttemptRunner:
    """`drain` collects what a job reported, before its end is written; `secrets` resolves references; `prepare` may
    change a gang before it is launched; `killed` says why an extension had a job's processes killed, if one had. Of a
    job that is `delegated`, an extension knows what it runs, and keeps what it reports and leaves. `inputs` says how
    its inputs are fetched, `staging` brings what extensions have for it. `ended` is told the end of each attempt."""

    def __init__(
        self, jobs: JobRepository, engine: Engine, layout: Layout, *,
        secrets: Callable[[Live], dict[str, str]],
        prepare: Callable[[Live, Gang], Gang],
        drain: Callable[[Live], Awaitable[None]],
        killed: Callable[[Live], str | None],
        delegated: Callable[[Live], bool],
        inputs: Callable[[Live], Sequence[Move]],
        staging: Staging,
        ended: Callable[[Live], None],
        epoch: int,
        on_fatal: Callable[[BaseException], None],
        retry_s: float = 1.0,
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._engine = engine
        self._layout = layout
        self._secrets = secrets
        self._prepare = prepare
        self._drain = drain
        self._killed = killed
        self._delegated = delegated
        self._inputs = inputs
        self._staging = staging
        self._ended = ended
        self._epoch = epoch
        self._turns = Turns(log, "driving an attempt failed", on_fatal)
        self._retry_s = retry_s
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._statuses: dict[str, GangStatus] = {}
        self._watch: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._watch = asyncio.create_task(self._follow_engine(), name="attempt-runner-watch")

    async def close(self) -> None:
        tasks = [*self._tasks.values(), *([self._watch] if self._watch else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def waits_for(self, name: str) -> bool:
        """Whether this gang was handed over and has not ended, as far as was told."""
        status = self._statuses.get(name)
        return status is not None and not status.ended

    def driven(self, job_id: str) -> bool:
        return job_id in self._tasks

    def take(self, job_id: str) -> None:
        """Drive the job's attempts until it waits or is over; nothing when it is driven already."""
        if job_id not in self._tasks:
            self._tasks[job_id] = asyncio.create_task(self._drive(job_id), name=f"attempt-{job_id}")

    async def _follow_engine(self) -> None:
        async for status in self._engine.changes():
            named = parse_gang_name(status.name)
            if named is None:
                continue
            live = self._jobs.cache.get(named.job_id)
            if live is not None:
                self._statuses[status.name] = status
                live.wake.set()

    async def _drive(self, job_id: str) -> None:
        try:
            while True:
                # Asked again after each attempt: while its last lines were told, the job may have got a new place.
                live = self._jobs.cache.get(job_id)
                if live is None or not live.job.state.active:
                    return
                with self._turns.turn(job=job_id) as turn:
                    await self._attempt(live)
                if turn.over:
                    return  # the control lease is gone: another server drives this job now
                if turn.held_up:
                    await asyncio.sleep(self._retry_s)
        finally:
            self._tasks.pop(job_id, None)

    async def _attempt(self, live: Live) -> None:
        job_id = live.job.id
        await self._jobs.change(job_id, self._adopt)
        number = live.job.attempt
        delegated = self._delegated(live)
        end = await self._through_phases(live)
        if not delegated or _stopped(live):  # what it reported tells whether it had finished all the same
            await self._drain(live)
        if end.code is ErrorCode.SIGNAL:
            end = replace(end, message=self._killed(live) or end.message)
        elif end.code is ErrorCode.OUT_OF_MEMORY:
            end = replace(end, message=out_of_memory(end.message, live.manifest.resources))
        self._fault("before-conclude")
        await self._jobs.change(
            job_id,
            lambda job, attempt: transitions.conclude(job, _must(attempt), end, live.manifest, now=self._jobs.now()),
        )
        self._ended(live)
        for phase in PHASES:
            name = gang_name(job_id, number, phase)
            if self._statuses.pop(name, None) is not None:
                await self._engine.forget(name)
        if live.job.owner_id is not None and not delegated:
            # What an extension has it for may end thousands of times: a replica, each time with a copy of its models.
            await self._layout.discard_run(job_id, number)

    async def _through_phases(self, live: Live) -> AttemptEnd:
        manifest = live.manifest
        try:
            if (ended := await self._staged(live)) is not None:
                return ended
            if self._fetches(live):
                end = await self._phase(live, DOWNLOAD, JobState.DOWNLOADING, "fetching inputs")
                if end.code is not None or (_stopped(live) and await self._engine.status(_run_of(live)) is None):
                    return end if end.code else AttemptEnd(ErrorCode.SIGNAL, "stopped before it began", end.ranks)
            end = await self._phase(live, RUN, JobState.RUNNING, transitions.STARTED)
            finished = end.code is None and not transitions.left_early(live.job, _must(live.attempt), end)
            if finished and (outputs := phases.kept_outputs(manifest)):
                end = await self._keep(live, end, outputs)
                finished = end.code is None
            if STORE in phases.phases_of(manifest, (), finished=finished):
                try:
                    stored = await self._phase(live, STORE, JobState.STORING, "storing outputs", finished=finished)
                except LaunchFailed as error:
                    stored = self._not_launched(live, error)
                return transitions.with_store(end, stored, finished=finished)
            return end
        except LaunchFailed as error:
            return self._not_launched(live, error)
        except SecretMissing as error:
            return AttemptEnd(ErrorCode.SECRET, str(error), rolled_back=True)

    async def _staged(self, live: Live) -> AttemptEnd | None:
        """Have extensions bring what the job needs, where it was not launched yet; how the attempt ends if it is to end
        meanwhile."""
        if live.job.state is not JobState.STARTING or not self._staging.needed() or self._delegated(live):
            return None
        for phase in (DOWNLOAD, RUN):
            if await self._engine.status(gang_name(live.job.id, live.job.attempt, phase)) is not None:
                return None  # a server before this one launched it

        async def ends() -> bool:
            if (at := live.job.deadline_at) is not None and at <= self._jobs.now():
                await self._jobs.change(
                    live.job.id, lambda job, attempt: transitions.stop_late(job, _must(attempt), self._jobs.now())
                )
            return _stopped(live)

        if await self._staging.run(live, ends):
            return None
        return AttemptEnd(ErrorCode.SIGNAL, "stopped before what it needs was there", rolled_back=True)

    def _fetches(self, live: Live) -> bool:
        """Whether its inputs are still to be fetched, or are being fetched."""
        if live.job.state is JobState.STARTING:
            return DOWNLOAD in phases.phases_of(live.manifest, self._inputs(live))
        return live.job.state is JobState.DOWNLOADING

    async def _keep(self, live: Live, end: AttemptEnd, outputs: list[str]) -> AttemptEnd:
        """Keep these files of the run directory; work whose results are not there has failed."""
        try:
            await asyncio.to_thread(Results(self._layout).keep, live.job.id, live.job.attempt, outputs)
        except NotKept as problem:
            return replace(end, code=ErrorCode.OUTPUT, message=f"outputs could not be kept: {problem}")
        return end

    async def _phase(
        self, live: Live, phase: str, state: JobState, cause: str, *, finished: bool = False
    ) -> AttemptEnd:
        """Launch a phase or find it running, and see it to its end."""
        name = gang_name(live.job.id, live.job.attempt, phase)
        status = await self._launch_or_adopt(live, phase, state, finished=finished)
        if status is None:
            if _stopped(live):
                return AttemptEnd(ErrorCode.SIGNAL, f"stopped before {cause}", rolled_back=True)
            return AttemptEnd(ErrorCode.RANK_LOST, "no trace of its processes was found")
        told = self._statuses.get(name, status)
        self._statuses[name] = max(status, told, key=lambda each: _PHASES.index(each.phase))  # told meanwhile
        self._fault("after-launch")
        status = await self._until(live, name, phase, lambda now: now.phase not in (Phase.QUEUED, Phase.STARTING))
        if status.fault is not None and status.reason is not None:
            raise LaunchFailed(status.reason.text, fault=status.fault, where=name)
        if status.ended and _stopped(live) and not any(rank.started_at for rank in status.ranks):
            return AttemptEnd(ErrorCode.SIGNAL, f"stopped before {cause}", rolled_back=True)
        # What ended at once is written down as one change, its beginning with its end.
        at_once = status.ended and phase == RUN and STORE not in phases.phases_of(live.manifest, ())
        begun = status if at_once else None
        if begun is None:
            # Of what was handed over, the one who did so has written it down.
            write = self._jobs.put_off if self._delegated(live) else self._jobs.change
            await write(
                live.job.id,
                lambda job, attempt: transitions.advance(job, _must(attempt), state, self._jobs.now(), cause, status),
            )
        ended = await self._until(live, name, phase, lambda now: now.ended)
        end = transitions.read_end(ended, _must(live.attempt).placement, phase=phase, begun=begun)
        if end.code is None or phase == RUN:
            return end
        # A tenant reads the log of the run; what a helper said about its failure goes into the message.
        said = await self._engine.read(name, 0, "log", 0)
        last_line = said.data.decode(errors="replace").strip().rpartition("\n")[2]
        return replace(end, message=f"{end.message}: {last_line[:500]}")

    async def _launch_or_adopt(self, live: Live, phase: str, state: JobState, *, finished: bool) -> GangStatus | None:
        """None when it must not be launched: it ran before and left no trace, or the attempt is to end anyway."""
        was_launched = ORDER[live.job.state] >= ORDER[state]
        if not was_launched and phase != STORE and live.job.deadline_at is not None:
            await self._jobs.change(
                live.job.id, lambda job, attempt: transitions.stop_late(job, _must(attempt), self._jobs.now())
            )
        delegated = self._delegated(live)
        must_be_there = was_launched or (_stopped(live) and phase != STORE)
        there = False
        if must_be_there or delegated:  # that one of these has begun may not be written down
            there = await self._engine.status(gang_name(live.job.id, live.job.attempt, phase)) is not None
        if must_be_there and not there:
            return None
        self._fault("before-launch")
        gang = self._gang(live, phase, finished=finished)
        return await self._engine.launch(gang if there and delegated else self._prepare(live, gang))

    def _gang(self, live: Live, phase: str, *, finished: bool) -> Gang:
        if self._delegated(live):
            return phases.placed_gang(live.job, _must(live.attempt), live.manifest, self._layout)
        arguments = (live.job, _must(live.attempt), live.manifest, self._layout, self._secrets(live))
        if phase == DOWNLOAD:
            return phases.download_gang(*arguments, self._inputs(live))
        if phase == STORE:
            return phases.store_gang(*arguments, finished=finished)
        return phases.run_gang(*arguments)

    async def _until(self, live: Live, name: str, phase: str, there: Callable[[GangStatus], bool]) -> GangStatus:
        """Wait until the gang is there; pass on a stop that was asked for, and ask for one when a limit is reached."""
        asked: Stop | None = None
        while True:
            live.wake.clear()
            status = self._statuses[name]
            if there(status):
                return status
            if status.phase is Phase.QUEUED:
                await self._note_queue(live, status.reason)
            attempt = _must(live.attempt)
            if attempt.stop is not None and attempt.stop is not asked and phase != STORE:
                asked = attempt.stop
                await self._ask_to_stop(live, name, attempt)
                continue
            await self._wait(live, phase)

    async def _note_queue(self, live: Live, reason: Reason | None) -> None:
        """What the cluster says changes often; written down is a new cause, not a new count. None: it has not said."""
        self._jobs.cache.handed_over(live, reason or _NO_CAUSE_YET)
        if reason is None:
            return
        await self._jobs.change(
            live.job.id,
            lambda job, _: transitions.note_queue(job, reason, self._jobs.now(), f"engine:{self._engine.name}"),
        )

    async def _wait(self, live: Live, phase: str) -> None:
        limit = self._next_limit(live) if phase == RUN else None
        if limit is None:
            await live.wake.wait()
            return
        stop, at, cause = limit
        try:
            async with asyncio.timeout(max(0.0, at - self._jobs.now())):
                await live.wake.wait()
        except TimeoutError:
            await self._jobs.change(
                live.job.id,
                lambda job, attempt: transitions.request_stop(
                    job, _must(attempt), stop, now=self._jobs.now(), actor="attempt-runner", cause=cause
                ),
            )

    def _next_limit(self, live: Live) -> tuple[Stop, float, str] | None:
        attempt, limits = _must(live.attempt), []
        if attempt.stop is not None:
            return None
        for each in phases.time_limits(live.job, live.manifest):
            at = each.at
            if each.after_s is not None and attempt.running_at is not None:
                at = attempt.running_at + each.after_s
            if at is not None:
                limits.append((Stop(each.name), at, each.detail))
        return min(limits, key=lambda limit: limit[1], default=None)

    async def _ask_to_stop(self, live: Live, name: str, attempt: AttemptRecord) -> None:
        if attempt.stop in (Stop.PREEMPT, Stop.SUSPEND) and live.job.state is JobState.RUNNING:
            await self._jobs.change(
                live.job.id,
                lambda job, current: transitions.advance(
                    job, _must(current), JobState.CHECKPOINTING, self._jobs.now(), attempt.stop_cause
                ),
            )
        self._fault("before-stop")
        await self._engine.stop(name, reason=str(attempt.stop))

    def _adopt(self, job: JobRecord, attempt: AttemptRecord | None) -> Change | None:
        return transitions.adopt(job, _must(attempt), epoch=self._epoch, now=self._jobs.now())

    def _fault(self, point: str) -> None:
        self._jobs.fault(point)

    def lose(self, job_id: str, name: str, detail: str = "vanished") -> None:
        """The engine no longer knows a gang that should run, or tells nothing more of it."""
        live = self._jobs.cache.get(job_id)
        known = self._statuses.get(name)
        if live is None or known is None or known.ended:
            return
        self._statuses[name] = transitions.lost(known, detail)
        live.wake.set()

    def _not_launched(self, live: Live, error: LaunchFailed) -> AttemptEnd:
        code = ErrorCode.COMMAND_NOT_FOUND if error.fault is Fault.USER else ErrorCode.LAUNCH
        if isinstance(error, Refused):
            code = ErrorCode.REFUSED
        if error.fault is not Fault.USER and self._jobs.cache.missing(live):
            code = ErrorCode.NODE_LOST
        return AttemptEnd(code, _message(error, live.job.id), rolled_back=True)


def _message(error: LaunchFailed, job_id: str) -> str:
    """What a person is told, without the name of the gang, which nobody knows."""
    where = error.where or ""
    if where.startswith(f"{job_id}."):
        where = where.partition(": ")[2]
    return str(LaunchFailed(error.what, fault=error.fault, where=where or None, hint=error.hint))


def _must(attempt: AttemptRecord | None) -> AttemptRecord:
    if attempt is None:
        raise AssertionError("an active job has an attempt")
    return attempt


def _run_of(live: Live) -> str:
    return gang_name(live.job.id, live.job.attempt, RUN)


def _stopped(live: Live) -> bool:
    return live.attempt is not None and live.attempt.stop is not None
