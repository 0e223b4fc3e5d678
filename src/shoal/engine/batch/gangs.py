"""The gangs that this engine knows: adopted from the shared directory, followed there and in the
cluster's queue.

Truth is what the ranks' supervisors record. The cluster tells whether a job can still have processes. Where it says no
and a record is missing, the gang is fenced, and its rank is lost once the lease is over for certain.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.core import Clock, Fault
from shoal.engine.batch.handover import NO_SHARED_DIRECTORY, not_started
from shoal.engine.batch.job import BatchJob
from shoal.engine.batch.layout import BatchDir
from shoal.engine.changes import Changes
from shoal.engine.local import gangs as state
from shoal.engine.local.gangs import LocalGang, Rank
from shoal.engine.local.layout import Launched
from shoal.engine.local.supervisor import ABORT, ABORTED, EXITED, FAILED, GO
from shoal.engine.protocol import GangStatus, LaunchFailed, Phase, RankStatus

_SAID = (EXITED, FAILED, ABORTED)
_MARGIN_S = 1.0
"""What clocks may differ by over a lease."""
_UNSEEN = 2
"""The number of times in a row that the cluster must say that there is no such job before this is believed."""
_PATIENCE_S = 15.0
"""So long after its grace a stopped gang may still be there before the cluster is asked to end its job."""


_LEAVES_S = 3.0
"""So long a job may stay in the cluster's list after its last process."""
_WHY_S = 20.0
"""So long the cluster may take to say why it ended a rank: without that, the signal would be all that is known."""


@dataclass(slots=True)
class BatchGang(LocalGang):
    """`pooled`: the cluster picks its nodes. `places`: devices that it asked for. `job` is as it was last listed.
    `over`: the cluster has ended it, or does not know it. `cancel_at`: when the cluster is to end what did not stop by
    itself. `asked_at`: since when its word is awaited on why the ranks ended."""

    pooled: bool = False
    places: int = 1
    job: BatchJob | None = None
    submitted: bool = False
    unseen: int = 0
    over: bool = False
    why: str = ""
    exit_code: int | None = None
    cancel_at: float | None = None
    asked_at: float | None = None

    @classmethod
    def anew(cls, launched: Launched, directory: BatchDir, *, pooled: bool) -> BatchGang:
        phase = Phase.QUEUED if pooled else Phase.STARTING
        ranks = [Rank(RankStatus(number, phase, "" if pooled else node)) for number, node in enumerate(launched.nodes)]
        status = GangStatus(launched.name, phase, tuple(rank.status for rank in ranks))
        return cls(launched, directory, ranks, status, pooled=pooled)

    @property
    def files(self) -> BatchDir:
        assert isinstance(self.dir, BatchDir)
        return self.dir

    @property
    def job_id(self) -> str:
        """Empty while none is known."""
        return self.files.job or (self.job.id if self.job is not None else "")

    @property
    def forgotten_by_cluster(self) -> bool:
        """The cluster lost its job before it started."""
        return self.over and self.job is None and self.dir.decision() is None

    async def until_let_go(self) -> None:
        while self.status.phase in (Phase.QUEUED, Phase.STARTING):
            await self.next_pulse()


class Gangs:
    """All known gangs by name. Belongs to one event loop."""

    def __init__(
        self, home: Path, changes: Changes, clock: Clock, *,
        lease_s: float, cancel: Callable[[str], None], blind: Callable[[Iterable[str], str], None],
        freed: Callable[[int, float], None],
    ) -> None:  # fmt: skip
        self.known: dict[str, BatchGang] = {}
        self.leaving: dict[str, float] = {}
        """The cluster's jobs that have no process any more, and when it is to be told."""
        self._home = home
        self._changes = changes
        self._clock = clock
        self._lease_s = lease_s
        self._cancel = cancel
        self._blind = blind
        self._freed = freed
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def close(self) -> None:
        self._socket.close()

    def adopt_all(self, *, pooled: bool) -> None:
        """Find the gangs of earlier lives. Those that the cluster still holds back, or that are about to start, go on
        by themselves: what they need was handed over with their jobs."""
        for path in sorted((self._home / "gangs").iterdir()):
            directory = BatchDir(path)
            launched = directory.load()
            if launched is not None:
                gang = BatchGang.anew(launched, directory, pooled=pooled)
                gang.failure = directory.failure()
                gang.submitted = bool(directory.job)
                self.known[gang.name] = gang

    def add(self, gang: BatchGang) -> None:
        self.known[gang.name] = gang
        self._changes.put(gang.status)

    # --- what the cluster says ---

    def missing(self) -> int:
        """Of how many gangs it is open whether the cluster still has their jobs."""
        return sum(gang.unseen > 0 and not gang.over and not gang.status.ended for gang in self.known.values())

    def see(self, jobs: Iterable[BatchJob], gone: frozenset[str]) -> None:
        """Take in all our jobs. `gone` are gangs that had one, of which the cluster says that there is none now."""
        by_name: dict[str, list[BatchJob]] = {}
        for job in jobs:
            by_name.setdefault(job.name, []).append(job)
        for gang in list(self.known.values()):
            if gang.status.ended:
                for job in by_name.get(gang.name, []):
                    self.leave(job.id)
                continue
            self._see(gang, by_name.get(gang.name, []), gang.name in gone)
            with contextlib.suppress(OSError):  # the shared directory may answer again at the next look
                self.look(gang)
        self._end_left(job for of_name in by_name.values() for job in of_name)

    def _see(self, gang: BatchGang, jobs: list[BatchJob], gone: bool) -> None:
        owner = gang.files.job
        mine = next((job for job in jobs if job.id == owner), None)
        if mine is None and jobs:
            mine = max(jobs, key=lambda job: (not job.over, job.order))
        for job in jobs:
            if job is not mine and not job.over:
                self._cancel(job.id)  # a second one of its name: it may not run the gang
        if mine is None:
            gang.unseen += gone
            if gang.submitted and gang.unseen >= _UNSEEN:
                gang.over = True
                if gang.job is not None and not gang.job.over:
                    gang.job = None
            return
        gang.submitted, gang.unseen, gang.job, gang.over = True, 0, mine, mine.over
        if gang.cancel_at is not None and self._clock.now() >= gang.cancel_at and not mine.over:
            gang.cancel_at = self._clock.now() + _PATIENCE_S
            self._cancel(mine.id)

    def leave(self, job: str) -> None:
        """No process of the job is left. Where the cluster does not see that by itself, it is told after a moment."""
        self.leaving.setdefault(job, self._clock.now() + _LEAVES_S)

    def _end_left(self, jobs: Iterable[BatchJob]) -> None:
        there, now = {job.id for job in jobs if not job.over}, self._clock.now()
        self.leaving = {job: at for job, at in self.leaving.items() if job in there}
        for job, at in self.leaving.items():
            if now >= at:
                self.leaving[job] = now + _PATIENCE_S
                self._cancel(job)

    # --- what the shared directory says ---

    def look(self, gang: BatchGang) -> None:
        """Read the records again and tell what is new."""
        decision = gang.dir.decision()
        if gang.over and decision is None and (gang.job is not None or gang.pooled):
            decision = gang.dir.decide(ABORT)  # a placed one that was merely forgotten is submitted again
        why = gang.why or (gang.job.why_over() if gang.job is not None else "the cluster no longer knows its job")
        for rank in gang.ranks:
            if rank.ended:
                continue
            number = rank.status.rank
            rank.record = gang.dir.record(number) or rank.record
            said = rank.record.get("state") in _SAID
            if not said and gang.over and decision == GO:
                said = self._fence(gang, rank, why)
            no_more = decision == ABORT and (gang.over or not gang.submitted)
            found = state.rank_status(rank.status, rank.record, alive=not (said or no_more), decision=decision)
            rank.status = replace(found, node=rank.record.get("node") or found.node)
        wish = gang.dir.stop_wish()
        reason = state.why_all_stop(gang, decision, wish)
        if reason and not gang.over:
            self.ask_to_stop(gang, gang.launched.grace_s, reason=reason, code="rank-failed")
            wish = gang.dir.stop_wish()
        if gang.failure is None:
            failure = self._failure(gang, decision, wish, why)
            if failure is not None:
                self.fail(gang, failure)
        status = self._status(gang, decision, wish)
        if status.ended and decision == GO and _asks_why(gang, wish):
            status = self._judged(gang, status, why)
        if status != gang.status:
            gang.status = status
            self._changes.put(status)
            if status.ended:
                self._freed(gang.places, _held_s(status))
        gang.pulse.set()

    def _status(self, gang: BatchGang, decision: str | None, wish: Mapping[str, str]) -> GangStatus:
        status = state.gang_status(gang.name, gang.ranks, decision, state.reason_of(gang, decision, wish))
        waits = gang.job is None or gang.job.waiting
        if status.ended:
            return replace(status, fault=gang.failure.fault if gang.failure is not None else None)
        if gang.pooled and status.phase is Phase.STARTING and waits and not any(rank.record for rank in gang.ranks):
            ranks = tuple(replace(rank, phase=Phase.QUEUED) for rank in status.ranks)
            told = gang.job.why_waiting() if gang.job is not None else status.reason
            return replace(status, phase=Phase.QUEUED, ranks=ranks, reason=told)
        return status

    def _failure(self, gang: BatchGang, decision: str | None, wish: Mapping[str, str], why: str) -> LaunchFailed | None:
        """Why the gang was never let go, where nothing of ours asked for that."""
        for rank in gang.ranks:
            if rank.ended and "fault" in rank.record and rank.status.exit is not None:
                where = f"{gang.name}: rank {rank.status.rank}"
                return LaunchFailed(rank.status.exit.detail, fault=Fault(rank.record["fault"]), where=where)
        if decision != ABORT or wish:
            return None
        if gang.over:
            if gang.exit_code == NO_SHARED_DIRECTORY and gang.job is not None and gang.job.hosts:
                self._blind(gang.job.hosts, f"does not see the shared directory {self._home}")
            return not_started(gang.exit_code, self._home, gang.name, why)
        if any(not rank.ended for rank in gang.ranks):
            return None  # which rank is to blame may be told in a moment
        what = f"not all ranks were ready within {gang.launched.launch_timeout_s:g} s of the first"
        return LaunchFailed(what, fault=Fault.PLATFORM, where=gang.name)

    def fail(self, gang: BatchGang, failure: LaunchFailed) -> None:
        """It was never let go, and is not to be."""
        gang.failure = failure
        with contextlib.suppress(OSError):  # a full disk: after a restart the launch is simply tried anew
            gang.dir.keep_failure(failure)

    def _judged(self, gang: BatchGang, status: GangStatus, why: str) -> GangStatus:
        """Ranks were stopped, and not by us: that they ended is told together with what the cluster says of it."""
        now = self._clock.now()
        gang.asked_at = now if gang.asked_at is None else gang.asked_at
        if not gang.over and now < gang.asked_at + _WHY_S:
            ranks = tuple(replace(rank, phase=Phase.RUNNING, exit=None, ended_at=None) for rank in status.ranks)
            return replace(gang.status, ranks=ranks) if gang.status.phase is Phase.RUNNING else gang.status
        if gang.over and gang.job is not None:
            for rank in gang.ranks:
                rank.status = gang.job.judged(rank.status, why)
        return replace(status, ranks=tuple(rank.status for rank in gang.ranks))

    def _fence(self, gang: BatchGang, rank: Rank, why: str) -> bool:
        """The job is over, and the rank's supervisor has not said so: it may be cut off. True once it can no longer be
        alive; its end is then on record."""
        at = gang.files.fenced_at()
        now = self._clock.now()
        if at is None:
            gang.files.fence(why, now)
            self.wake(gang)
            return False
        if now < at + self._lease_s + _MARGIN_S:
            return False
        fields: dict[str, object] = {**rank.record, "state": EXITED, "lost": 1, "detail": why, "ended_at": f"{now:.6f}"}
        with contextlib.suppress(OSError):
            gang.dir.overwrite_record(rank.status.rank, fields)
        rank.record = {key: str(value) for key, value in fields.items()}
        return True

    # --- what the ranks are told ---

    def ask_to_stop(self, gang: BatchGang, grace_s: float, *, reason: str, code: str) -> None:
        """Leave the wish where the supervisors look, and wake them. The cluster ends what does not answer."""
        now = self._clock.now()
        gang.cancel_at = now + gang.dir.least_grace(grace_s) + _PATIENCE_S
        with contextlib.suppress(OSError):  # it cannot be written: the cluster will end the job
            gang.dir.ask_to_stop(grace_s, reason=reason, code=code, now=now)
        self.wake(gang)

    def wake(self, gang: BatchGang) -> None:
        for rank in gang.ranks:
            host, _, port = rank.record.get("hints", "").rpartition(":")
            if host and not rank.ended:
                with contextlib.suppress(OSError, ValueError):
                    self._socket.sendto(b"look", (host, int(port)))


def _held_s(status: GangStatus) -> float:
    """For how long it ran."""
    times = [(rank.started_at, rank.ended_at) for rank in status.ranks]
    return max((ended - began for began, ended in times if began is not None and ended is not None), default=0.0)


def _asks_why(gang: BatchGang, wish: Mapping[str, str]) -> bool:
    """Whether a rank was ended from outside, and not by us: a supervisor seldom knows why. One that left with a code
    of its own, or over a limit, ended by itself."""
    if wish and wish.get("code") != "rank-failed":
        return False
    if any(rank.record.get("known") for rank in gang.ranks):
        return False  # the cluster itself may not notice for minutes
    first = state.first_failure(gang)
    if first is None or first.exit is None:
        return not wish and any(rank.status.exit is not None and rank.status.exit.stopped for rank in gang.ranks)
    end = first.exit
    return (end.signal is not None or end.lost) and not (end.oom or end.limit)
