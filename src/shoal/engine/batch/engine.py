"""The protocol over a cluster with a scheduler of its own and a directory that all its nodes share.

What differs between clusters is a `BatchCluster`: its nodes as the control plane sees them, and its jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import py_compile
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from pathlib import Path

import structlog

from shoal.base import trees
from shoal.base.files import write_whole
from shoal.base.loops import Defects
from shoal.core import Capability, Clock, Fault, Unavailable
from shoal.engine.batch import handover, rank
from shoal.engine.batch.cluster import BatchCluster
from shoal.engine.batch.gangs import BatchGang, Gangs
from shoal.engine.batch.job import BatchJob, NotTaken
from shoal.engine.batch.layout import BatchDir
from shoal.engine.local import bundle, supervisor
from shoal.engine.local.layout import Launched
from shoal.engine.local.recorded import RecordedGangs, again, given_up, platform_failure, prepared
from shoal.engine.local.supervisor import ABORT, GO
from shoal.engine.protocol import (
    Gang,
    GangStatus,
    Inventory,
    LaunchFailed,
    Phase,
)

_ROLLBACK_S = 5.0
_END_S = 60.0
_RETRY_S = 1.0
_LOOKED_UP = 20
"""The maximum number of jobs that are asked for by their ids, one by one, after each list that lacks them."""
_BEFORE = (Phase.QUEUED, Phase.STARTING)


class BatchEngine(RecordedGangs[BatchGang]):
    """Runs gangs as jobs of a cluster. `home` lies on a directory that all nodes see under the same path.

    A gang that the cluster has given up is lost `lease_s` later, when no process of it can be left. Nodes are asked for
    every `look_every_s`, jobs every `poll_s` while any is there.
    """

    _lock_wait_s = 1.0
    """A command that the last engine was about to run has the lock too, until it runs."""

    def __init__(
        self, name: str, home: Path, cluster: BatchCluster, *,
        lease_s: float = 15.0, clock: Clock | None = None, look_every_s: float = 5.0, poll_s: float = 1.0,
    ) -> None:  # fmt: skip
        self.name = name
        super().__init__(home, clock)
        self._lease_s = lease_s
        self._cluster = cluster
        self._look_every_s = look_every_s
        self._poll_s = poll_s
        self._gangs = Gangs(
            self._home, self._changes, self._clock, lease_s=self._lease_s, cancel=self._cancel_soon,
            blind=cluster.close_blind, freed=cluster.freed,
        )  # fmt: skip
        self._listing = asyncio.Lock()
        self._list_now = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._hints: asyncio.DatagramTransport | None = None
        self._runner = Path(rank.__file__)
        self._mark = handover.mark_of(self._home)
        self._defects = Defects(structlog.get_logger("shoal.engine"))

    # --- life ---

    async def _open(self) -> None:
        await self._cluster.open()
        await self._listen()
        self._gangs.adopt_all(pooled=self._cluster.pooled)
        await self._list()
        self._start(self._look_now_and_then(), f"{self.name}-nodes")
        self._start(self._list_now_and_then(), f"{self.name}-jobs")

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._cluster.close()
        self._cluster.present.close()
        self._gangs.close()
        if self._hints is not None:
            self._hints.close()
        self._close_home()

    def _fill_home(self) -> None:
        """With compiled copies of what nodes run: they see it."""
        folder = self._home / "programs"
        folder.mkdir(mode=0o700, exist_ok=True)
        for module in (supervisor, trees, rank):
            source = Path(str(module.__file__))
            py_compile.compile(str(source), str(folder / f"{source.stem}.pyc"), doraise=True)
        self._runner = folder / "rank.pyc"

    async def _listen(self) -> None:
        """Hear of changes from supervisors, at the address that this machine has towards the cluster."""
        loop = asyncio.get_running_loop()
        host = self._cluster.own_address()
        self._hints, _ = await loop.create_datagram_endpoint(lambda: _Hints(self._hear), local_addr=(host, 0))
        address = self._hints.get_extra_info("sockname")
        write_whole(self._home / "engine.address", f"{address[0]}:{address[1]}", durable=False)

    def _hear(self, name: str) -> None:
        gang = self._gangs.known.get(name)
        if gang is not None:
            with contextlib.suppress(OSError):
                self._gangs.look(gang)
                if gang.status.phase is not Phase.ENDED and all(each.ended for each in gang.ranks):
                    self._list_now.set()  # the cluster is to say why

    # --- nodes ---

    def capabilities(self) -> tuple[Capability, ...]:
        return self._cluster.capabilities()

    async def inventory(self) -> Inventory:
        return await self._cluster.look()

    def nodes(self) -> AsyncIterator[Inventory]:
        return self._cluster.present.follow()

    async def _look_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._look_every_s)
            await self._survived(self._cluster.look())

    # --- jobs ---

    async def _list_now_and_then(self) -> None:
        while True:
            gangs = self._gangs
            busy = gangs.leaving or any(not gang.status.ended for gang in gangs.known.values())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s if busy else self._look_every_s):
                    await self._list_now.wait()
            self._list_now.clear()
            await self._survived(self._list())

    async def _survived(self, looking: Awaitable[object]) -> None:
        """An answer that was never foreseen must not be the last one that is read."""
        try:
            await looking
        except Exception as problem:
            self._defects.note("what the cluster told cannot be read", problem, engine=self.name)

    async def _list(self) -> tuple[BatchJob, ...]:
        """Ask for all jobs of this home. Where the cluster does not answer, what is known stays."""
        async with self._listing:
            listed = frozenset(name for name, gang in self._gangs.known.items() if gang.submitted)
            try:
                jobs = await self._cluster.jobs(self._mark)
                found, gone, left = await self._look_up(listed - {job.name for job in jobs})
            except (Unavailable, NotTaken) as problem:
                self._cluster.close_all(problem.what)
                return ()
            jobs = (*jobs, *found)
            await self._ask_why({job.name: job for job in jobs if job.over})
            self._gangs.see(jobs, gone)
            missing = self._gangs.missing() + left
            if missing:
                self._cluster.close_all(f"its list lacks {missing} jobs that it may still have")
            for job in jobs:
                if self._cluster.keeps_jobs and job.over:  # what it was is known, and it may not begin again
                    self._cancel_soon(job.id)
            return jobs

    async def _look_up(self, absent: frozenset[str]) -> tuple[list[BatchJob], frozenset[str], int]:
        """Of gangs whose jobs are not in the list: the jobs that the cluster knows all the same, the gangs of which it
        says that there is none, and how many were left for the next list."""
        found, gone = [], set()
        asked = left = 0
        for name in sorted(absent):
            gang = self._gangs.known.get(name)
            if gang is None or gang.status.ended:
                continue
            if gang.over or not gang.job_id:
                gone.add(name)
                continue
            if asked == _LOOKED_UP:
                left += 1
                continue
            asked += 1
            job = await self._cluster.find(gang.job_id, name, self._mark)
            if job is None:
                gone.add(name)
            else:
                found.append(job)
        return found, frozenset(gone), left

    async def _ask_why(self, over: Mapping[str, BatchJob]) -> None:
        """For gangs whose job is over and whose end is not told: how the cluster ended it."""
        for name, job in over.items():
            gang = self._gangs.known.get(name)
            if gang is not None and not gang.status.ended and not gang.why:
                try:
                    gang.why, gang.exit_code = await self._cluster.why_over(job)
                except (Unavailable, NotTaken):
                    gang.why = job.why_over()

    def _cancel_soon(self, job: str) -> None:
        self._start(self._cancel(job), f"cancel-{job}")

    async def _cancel(self, job: str) -> None:
        if job:
            with contextlib.suppress(Unavailable, NotTaken):  # it is over, or the next list tries again
                await self._cluster.cancel(job)
            self._list_now.set()

    def _start(self, work: Coroutine[None, None, None], name: str) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- launching ---

    async def _goes_on(self, known: BatchGang, gang: Gang) -> GangStatus | None:
        if known.status.ended or known.dir.decision() == GO or known.submitted:
            return await self._brought_up(gang, known)
        return None

    async def _launch_anew(self, gang: Gang) -> GangStatus:
        self._cluster.check(gang)
        launched = Launched.of(gang, master_port=0, created_at=self._clock.now())
        directory = BatchDir(self._home / "gangs" / gang.name)
        with prepared(directory):
            directory.create(launched)
            gang.run_dir.mkdir(parents=True, exist_ok=True)
        new = BatchGang.anew(launched, directory, pooled=self._cluster.pooled)
        new.places = sum(max(1, len(each.devices)) for each in gang.ranks)
        self._gangs.add(new)
        return await self._brought_up(gang, new)

    async def _brought_up(self, gang: Gang, known: BatchGang) -> GangStatus:
        try:
            if known.dir.decision() is None and not known.submitted:
                await self._submit(gang, known)
            if not known.pooled:
                await self._let_go(gang, known)
            if known.failure is not None:
                raise again(known.failure)
        except LaunchFailed as failure:
            self._gangs.fail(known, failure)
            await self._end_now(known)
            raise
        return known.status

    async def _submit(self, gang: Gang, known: BatchGang) -> None:
        """Hand the gang over; while the cluster does not answer, it waits. Raises LaunchFailed."""
        if gang.bundle is not None:
            most = gang.limits.unpacked_bytes
            await asyncio.to_thread(bundle.unpack, gang.bundle, gang.run_dir, limit_bytes=most)
        token = secrets.token_hex(8)
        sealed, key = handover.seal(gang.secrets)
        spec = handover.spec_of(
            gang, home=self._home, gang_dir=known.dir.path, lease_s=self._lease_s, sealed=sealed,
            pooled=self._cluster.pooled, types=self._cluster.device_types(),
        )  # fmt: skip
        try:
            known.files.write_spec(token, spec)
        except OSError as problem:
            raise platform_failure(problem) from problem
        while known.dir.decision() != ABORT:
            try:
                job = await self._cluster.submit(gang, known.dir.path, token, self._runner, key, self._mark)
            except Unavailable as problem:
                self._cluster.close_all(problem.what)
                await self._list()
                if known.submitted:
                    return  # only the answer was lost
                await asyncio.sleep(_RETRY_S)
            else:
                known.submitted, known.unseen, known.over = True, 0, False
                known.files.keep_job(job)
                return
        raise given_up(known)

    async def _let_go(self, gang: Gang, known: BatchGang) -> None:
        """Return when every rank's process was started; raise LaunchFailed when one cannot be."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(gang.launch_timeout_s):
                while known.failure is None and known.status.phase in _BEFORE:
                    if known.forgotten_by_cluster:
                        known.files.drop_specs()
                        await self._submit(gang, known)
                    await known.next_pulse()
        if known.failure is not None:
            raise again(known.failure)
        if known.status.phase not in _BEFORE:
            return
        if known.dir.decide(ABORT) == GO:
            await known.until_let_go()
            return
        waits = f": {known.job.why_waiting().text}" if known.job is not None and known.job.waiting else ""
        what = f"not all ranks were ready within {gang.launch_timeout_s:g} s{waits}"
        raise LaunchFailed(what, fault=Fault.PLATFORM, where=gang.name)

    async def _end_now(self, known: BatchGang) -> None:
        with contextlib.suppress(OSError):
            if known.dir.decide(ABORT) == GO:
                self._gangs.ask_to_stop(known, 0.0, reason="ended", code="stopped")
            else:
                known.files.drop_specs()
                await self._cancel(known.files.job)
        self._gangs.look(known)
        self._gangs.wake(known)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ROLLBACK_S):
                await known.until_ended()
            return
        await self._cancel(known.files.job)
        async with asyncio.timeout(_END_S + self._lease_s):
            await known.until_ended()

    # --- steering ---

    async def signal(self, name: str, signum: int) -> None:
        gang = self._gangs.known.get(name)
        if gang is None or gang.status.phase is not Phase.RUNNING:
            return
        try:
            gang.files.ask_for_signal(signal.Signals(signum))
        except OSError as problem:
            raise Unavailable(f"the signal cannot be passed on: {problem.strerror}", where=name) from problem
        self._gangs.wake(gang)

    async def stop(self, name: str, *, grace_s: float | None = None, reason: str = "") -> None:
        gang = self._gangs.known.get(name)
        if gang is None or gang.status.ended:
            return
        grace_s = gang.launched.grace_s if grace_s is None else grace_s
        self._gangs.ask_to_stop(gang, grace_s, reason=reason or "asked to stop", code="stopped")
        if gang.dir.decide(ABORT) == ABORT:  # it had not started: nothing to wait for
            gang.files.drop_specs()
            self._cancel_soon(gang.files.job)
            self._gangs.look(gang)
            self._gangs.wake(gang)

    async def sweep(self, known: frozenset[str]) -> tuple[str, ...]:
        before = set(self._gangs.known)
        jobs = await self._list()
        new = set(self._gangs.known) - before  # launched meanwhile
        strays = {
            job.name: job.id
            for job in jobs
            if not job.over and job.name not in known | new and job.id not in self._gangs.leaving
        }
        for name, job in list(strays.items()):
            gang = self._gangs.known.get(name)
            if gang is None:
                await self._cancel(job)
            elif gang.status.ended:
                del strays[name]  # the cluster is about to see that it is over
            else:
                await self.stop(name, grace_s=0, reason="unknown to the control plane")
                await self._end_now(gang)
        return tuple(sorted(strays))

    # --- inner parts ---

    @property
    def _known(self) -> Mapping[str, BatchGang]:
        return self._gangs.known

    def _drop(self, gang: BatchGang) -> None:
        job = gang.files.job
        with contextlib.suppress(FileNotFoundError):
            gang.dir.forget()
        self._gangs.known.pop(gang.name, None)
        if gang.job is None or not gang.job.over:
            self._gangs.leave(job)


class _Hints(asyncio.DatagramProtocol):
    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear

    def datagram_received(self, data: bytes, _address: object) -> None:
        self._hear(data.decode(errors="replace"))
