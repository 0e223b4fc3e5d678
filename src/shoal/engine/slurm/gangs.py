"""The gangs that this engine knows: adopted from the shared directory, followed there and in Slurm's queue.

Truth is what the ranks' supervisors record. Slurm tells whether a job can still have processes. Where it says no and a
record is missing, the gang is fenced, and its rank is lost once the lease is over for certain.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.core import Clock
from shoal.engine.local import gangs as state
from shoal.engine.local.changes import Changes
from shoal.engine.local.gangs import LocalGang, Rank
from shoal.engine.local.supervisor import ABORT, ABORTED, EXITED, FAILED, GO
from shoal.engine.protocol import GangStatus, Phase
from shoal.engine.slurm.jobs import SlurmJob, read_jobs, seen_by_slurm, why_over
from shoal.engine.slurm.layout import SlurmDir

_SAID = (EXITED, FAILED, ABORTED)
_MARGIN_S = 1.0
"""What clocks may differ by over a lease."""
_UNSEEN = 2
"""So many lists in a row without a job, and Slurm does not know it."""
_PATIENCE_S = 15.0
"""So long after its grace a stopped gang may still be there before Slurm is asked to end its job."""


@dataclass(slots=True)
class SlurmGang(LocalGang):
    """`job` is as Slurm last listed it. `over`: Slurm has ended it, or does not know it. `cancel_at`: when Slurm is to
    end what did not stop by itself."""

    job: SlurmJob | None = None
    submitted: bool = False
    unseen: int = 0
    over: bool = False
    why: str = ""
    exit_code: int | None = None
    cancel_at: float | None = None

    @property
    def files(self) -> SlurmDir:
        assert isinstance(self.dir, SlurmDir)
        return self.dir


class Gangs:
    """All known gangs by name. Belongs to one event loop."""

    def __init__(self, home: Path, changes: Changes, clock: Clock, *, lease_s: float, cancel: Callable[[str], None]):
        self.known: dict[str, SlurmGang] = {}
        self._home = home
        self._changes = changes
        self._clock = clock
        self._lease_s = lease_s
        self._cancel = cancel
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def close(self) -> None:
        self._socket.close()

    def adopt_all(self) -> None:
        """Find the gangs of earlier lives. Those that Slurm still holds back, or that are about to start, go on by
        themselves: what they need was handed over with their jobs."""
        for path in sorted((self._home / "gangs").iterdir()):
            directory = SlurmDir(path)
            launched = directory.load()
            if launched is not None:
                gang = SlurmGang.of(launched, directory, awaited=False)
                assert isinstance(gang, SlurmGang)
                gang.failure = directory.failure()
                gang.submitted = bool(directory.job)
                self.known[gang.name] = gang

    def add(self, gang: SlurmGang) -> None:
        self.known[gang.name] = gang
        self._changes.put(gang.status)

    # --- what Slurm says ---

    def see(self, jobs: Iterable[SlurmJob], listed: frozenset[str]) -> None:
        """Take in a list of all our jobs. `listed` are the gangs that were submitted before it was asked for."""
        by_name: dict[str, list[SlurmJob]] = {}
        for job in jobs:
            by_name.setdefault(job.name, []).append(job)
        for gang in [gang for gang in self.known.values() if not gang.status.ended]:
            self._see(gang, by_name.get(gang.name, []), gang.name in listed)
            with contextlib.suppress(OSError):  # the shared directory may answer again at the next look
                self.look(gang)

    def _see(self, gang: SlurmGang, jobs: list[SlurmJob], listed: bool) -> None:
        owner = gang.files.job
        mine = next((job for job in jobs if job.id == owner), None)
        if mine is None and jobs:
            mine = max(jobs, key=lambda job: (not job.over, int(job.id) if job.id.isdigit() else 0))
        for job in jobs:
            if job is not mine and not job.over:
                self._cancel(job.id)  # a second one of its name: it may not run the gang
        if mine is None:
            gang.unseen += listed
            gang.over = gang.submitted and gang.unseen >= _UNSEEN
            return
        gang.submitted, gang.unseen, gang.job, gang.over = True, 0, mine, mine.over
        if gang.cancel_at is not None and self._clock.now() >= gang.cancel_at and not mine.over:
            gang.cancel_at = self._clock.now() + _PATIENCE_S
            self._cancel(mine.id)

    # --- what the shared directory says ---

    def look(self, gang: SlurmGang) -> None:
        """Read the records again and tell what is new."""
        decision = gang.dir.decision()
        if gang.over and decision is None:
            decision = gang.dir.decide(ABORT)
        why = gang.why or why_over(gang.job, {})
        for rank in gang.ranks:
            if rank.ended:
                continue
            number = rank.status.rank
            rank.record = gang.dir.record(number) or rank.record
            said = rank.record.get("state") in _SAID
            if not said and gang.over and decision == GO:
                said = self._fence(gang, rank, why)
            no_more = decision == ABORT and (gang.over or not gang.submitted)
            status = state.rank_status(rank.status, rank.record, alive=not (said or no_more), decision=decision)
            rank.status = replace(status, node=rank.record.get("node") or status.node)
        wish = gang.dir.stop_wish()
        failed = state.first_failure(gang)
        if failed is not None and failed.exit is not None and not wish and decision == GO and not gang.over:
            if not all(rank.ended for rank in gang.ranks):
                text = f"rank {failed.rank} {state.describe(failed.exit)}; the others were stopped"
                self.ask_to_stop(gang, gang.launched.grace_s, reason=text, code="rank-failed")
                wish = gang.dir.stop_wish()
        status = state.gang_status(gang.name, gang.ranks, decision, state.reason_of(gang, decision, wish))
        if status.ended and not wish and decision == GO and _asks_why(status):
            status = self._judged(gang, status, why)
        if status != gang.status:
            gang.status = status
            self._changes.put(status)
        gang.pulse.set()

    def _judged(self, gang: SlurmGang, status: GangStatus, why: str) -> GangStatus:
        """Ranks were stopped, and not by us: that they ended is told together with what Slurm says of it."""
        if not gang.over:
            ranks = tuple(replace(rank, phase=Phase.RUNNING, exit=None, ended_at=None) for rank in status.ranks)
            return replace(gang.status, ranks=ranks) if gang.status.phase is Phase.RUNNING else gang.status
        for rank in gang.ranks:
            rank.status = seen_by_slurm(rank.status, gang.job, why)
        return replace(status, ranks=tuple(rank.status for rank in gang.ranks))

    def _fence(self, gang: SlurmGang, rank: Rank, why: str) -> bool:
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

    def ask_to_stop(self, gang: SlurmGang, grace_s: float, *, reason: str, code: str) -> None:
        """Leave the wish where the supervisors look, and wake them. Slurm ends what does not answer."""
        earlier = gang.dir.stop_wish()
        grace_s = min(grace_s, float(earlier.get("grace_s", grace_s)))
        notice = {"reason": reason, "deadline": self._clock.now() + grace_s}
        gang.cancel_at = self._clock.now() + grace_s + _PATIENCE_S
        with contextlib.suppress(OSError):  # it cannot be written: Slurm will end the job
            gang.dir.ask_to_stop(
                grace_s, reason=earlier.get("reason") or reason, code=earlier.get("code", code), notice=notice
            )
        self.wake(gang)

    def wake(self, gang: SlurmGang) -> None:
        for rank in gang.ranks:
            host, _, port = rank.record.get("hints", "").rpartition(":")
            if host and not rank.ended:
                with contextlib.suppress(OSError, ValueError):
                    self._socket.sendto(b"look", (host, int(port)))


def _asks_why(status: GangStatus) -> bool:
    """Whether a rank was ended from outside."""
    return any(rank.exit is not None and not rank.exit.ok and (rank.exit.stopped or rank.exit.lost)
               for rank in status.ranks)  # fmt: skip


__all__ = ["Gangs", "SlurmGang", "read_jobs"]
