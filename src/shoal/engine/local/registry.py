"""The gangs an engine knows: adopted from disk, looked at when something hints, cleaned up after when lost."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

from shoal.base.processes import Process, kill_until_none, send, start_ticks
from shoal.core import Clock
from shoal.engine.changes import Changes
from shoal.engine.local import cgroups
from shoal.engine.local import gangs as state
from shoal.engine.local.gangs import LocalGang, Rank
from shoal.engine.local.layout import GangDir
from shoal.engine.local.processes import Marked, marked
from shoal.engine.local.supervisor import ABORT, EXITED, descendants_by_parent
from shoal.engine.local.watch import RECHECK_S, Fifo, check_supervisor, unwatch, watch_supervisor

KILL_TIMEOUT_S = 10.0
"""How long killed processes may take to vanish before the engine tries again at its next look."""

_MUTE_S = 5.0
"""So long after the grace of a stop a supervisor that has not ended counts as one that does not answer."""


class Registry:
    """All known gangs by name. Not thread-safe: belongs to one event loop."""

    def __init__(self, home: Path, changes: Changes, clock: Clock) -> None:
        self.gangs: dict[str, LocalGang] = {}
        self._home = home
        self._changes = changes
        self._clock = clock
        self._fifo = Fifo(home / "engine.fifo", self._hear)
        self._cleaning: set[asyncio.Task[None]] = set()
        self._recheck: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._fifo.open()
        # A rank's process bears its supervisor's marks for the moment between fork and exec: the older one it is.
        found = sorted(marked(self._home), key=lambda each: (each.process.start, each.process.pid), reverse=True)
        supervisors = {(each.gang, each.rank): each.process for each in found if each.supervisor}
        for path in sorted((self._home / "gangs").iterdir()):
            launched = GangDir(path).load()
            if launched is not None:
                self._adopt(LocalGang.of(launched, GangDir(path), awaited=False), supervisors)
        if self._cleaning:  # so that what is seen right after opening is already true
            await asyncio.wait(self._cleaning, timeout=KILL_TIMEOUT_S)
        self._recheck = asyncio.create_task(self._look_now_and_then())

    async def close(self) -> None:
        if self._recheck is not None:
            self._recheck.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._recheck
        if self._cleaning:
            await asyncio.wait(self._cleaning)
        self._fifo.close()
        for gang in self.gangs.values():
            for rank in gang.ranks:
                unwatch(rank)

    def _adopt(self, gang: LocalGang, supervisors: dict[tuple[str, int], Process]) -> None:
        """Take over a gang of an earlier engine process. One that was not past its barrier is rolled back. It cannot be
        completed, since the secrets were never written to disk; launching it again starts it anew."""
        self.gangs[gang.name] = gang
        gang.failure = gang.dir.failure()
        with contextlib.suppress(OSError):  # a full disk: the supervisors give up by themselves when their time is over
            gang.dir.decide(ABORT)
        for rank in gang.ranks:
            rank.supervisor = supervisors.get((gang.name, rank.status.rank))
            rank.found_dead = rank.supervisor is None
            self.watch(gang, rank)
        self.look(gang)
        self.wake(gang)  # it may have to hear of the rollback, or of a stop whose wake was never sent

    def watch(self, gang: LocalGang, rank: Rank) -> None:
        """Follow the rank's supervisor, which was just found or started."""
        watch_supervisor(rank, lambda: self.look(gang))

    def add(self, gang: LocalGang) -> None:
        self.gangs[gang.name] = gang
        self._changes.put(gang.status)

    def look(self, gang: LocalGang) -> None:
        """Read the disk again and tell what is new."""
        decision = gang.dir.decision()
        for rank in gang.ranks:
            if rank.ended or rank.cleaning or (rank.awaited and decision != ABORT):
                continue
            # Alive is asked before the record is read: a supervisor that dies in between has written all it ever will.
            alive = rank.supervisor is not None
            rank.record = gang.dir.record(rank.status.rank) or rank.record
            rank.status = state.rank_status(rank.status, rank.record, alive=alive, decision=decision)
            if not alive and not rank.ended:
                self._begin_cleaning(gang, rank, state.LOST)
        wish = gang.dir.stop_wish()
        if why := state.why_all_stop(gang, decision, wish):
            self.ask_to_stop(gang, gang.launched.grace_s, reason=why, code="rank-failed")
            wish = gang.dir.stop_wish()
        status = state.gang_status(gang.name, gang.ranks, decision, state.reason_of(gang, decision, wish))
        if status != gang.status:
            gang.status = status
            self._changes.put(status)
        gang.pulse.set()

    def ask_to_stop(self, gang: LocalGang, grace_s: float, *, reason: str, code: str) -> None:
        """Leave the wish where the supervisors look, and wake them; they do the rest without us."""
        try:
            gang.dir.ask_to_stop(grace_s, reason=reason, code=code, now=self._clock.now())
        except OSError:  # the wish cannot be written: say it by the signals that mean nearly the same
            self.wake(gang, signal.SIGTERM if grace_s > 0 else signal.SIGUSR2)
        else:
            self.wake(gang)

    def wake(self, gang: LocalGang, signum: int = signal.SIGUSR1) -> None:
        for rank in gang.ranks:
            if rank.supervisor is not None:
                send(rank.supervisor, signum)

    def processes_of(self, gang: LocalGang, rank: int) -> set[Process]:
        """What carries the rank's marks, supervisor included. Blocks for a scan of /proc."""
        found = {each.process for each in marked(self._home) if (each.gang, each.rank) == (gang.name, rank)}
        for pid in cgroups.pids(gang.launched.cgroup_roots, gang.name, rank):
            start = start_ticks(pid)
            if start is not None:
                found.add(Process(pid, start))
        return found

    def strays(self, known: frozenset[str]) -> list[Marked]:
        """What carries the marks of a gang that is not in `known`."""
        return [each for each in marked(self._home) if each.gang not in known]

    def _begin_cleaning(self, gang: LocalGang, rank: Rank, why: str) -> None:
        rank.cleaning = True
        task = asyncio.create_task(self._clean_up(gang, rank, why))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)

    async def _clean_up(self, gang: LocalGang, rank: Rank, why: str) -> None:
        """The supervisor died without a word, or does not answer: kill what is left of the rank, and only then call it
        lost."""
        number = rank.status.rank
        await asyncio.to_thread(cgroups.kill, gang.launched.cgroup_roots, gang.name, number)
        if (mute := rank.supervisor) is not None:  # first those below it: without it they could no longer be told
            await asyncio.to_thread(kill_until_none, lambda: _below(mute), timeout_s=KILL_TIMEOUT_S)
            send(mute, signal.SIGKILL)
        gone = await asyncio.to_thread(
            kill_until_none, lambda: self.processes_of(gang, number), timeout_s=KILL_TIMEOUT_S
        )
        rank.cleaning = False
        if not gone:
            return  # something unkillable: the next look tries again, and until then the rank has not ended
        fields: dict[str, object] = {**(gang.dir.record(number) or rank.record)}
        if fields.get("state") != EXITED:
            stopped = int(bool(gang.dir.stop_wish()))
            fields |= {"state": EXITED, "lost": 1, "detail": why, "stopped": stopped}
            ended_at = gang.dir.last_write(number) if rank.found_dead else self._clock.now()
            fields["ended_at"] = f"{ended_at:.6f}"
            with contextlib.suppress(OSError):  # the directory was removed; what we hold in memory is told at least
                gang.dir.overwrite_record(number, fields)
        rank.record = {key: str(value) for key, value in fields.items()}
        rank.status = state.rank_status(rank.status, rank.record, alive=False, decision=None)
        self.look(gang)

    def _hear(self, name: str) -> None:
        if name in self.gangs:
            self.look(self.gangs[name])

    async def _look_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            for gang in [gang for gang in self.gangs.values() if not gang.status.ended]:
                for rank in gang.ranks:
                    check_supervisor(rank)
                with contextlib.suppress(OSError):  # a disk that fails now may read again later
                    self.look(gang)
                    self._end_mute(gang)

    def _end_mute(self, gang: LocalGang) -> None:
        """End the ranks whose supervisors were to stop them and have not."""
        if self._clock.now() < gang.dir.stop_over_at() + _MUTE_S:
            return
        for rank in gang.ranks:
            if rank.supervisor is not None and not rank.ended and not rank.cleaning:
                self._begin_cleaning(gang, rank, state.MUTE)


def _below(supervisor: Process) -> list[Process]:
    """The living processes below a supervisor, which is the subreaper of all that its rank started."""
    if start_ticks(supervisor.pid) != supervisor.start:
        return []
    found = ((pid, start_ticks(pid)) for pid in descendants_by_parent(supervisor.pid))
    return [Process(pid, start) for pid, start in found if start is not None]
