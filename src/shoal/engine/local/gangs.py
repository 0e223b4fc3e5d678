"""State of one gang in the engine's memory, and how its status follows from the records on disk. No effects."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from shoal.base.processes import Process
from shoal.core import Reason
from shoal.engine.local.layout import GangDir, Launched
from shoal.engine.local.supervisor import ABORT, ABORTED, EXITED, FAILED, GO
from shoal.engine.protocol import Exit, GangStatus, LaunchFailed, Phase, RankStatus

LOST = "the supervisor died without recording an exit"
MUTE = "the supervisor did not stop the rank within its grace, so both were killed"


@dataclass(slots=True)
class Rank:
    """A rank's last status and record, and its supervisor while that lives. `awaited`: it has no supervisor yet.
    `cleaning`: the supervisor died without a word, or does not answer, and what it left is being killed. `found_dead`:
    it had no supervisor when this engine found it, so the time of its end is not known."""

    status: RankStatus
    record: Mapping[str, str] = field(default_factory=dict)
    awaited: bool = False
    supervisor: Process | None = None
    pidfd: int | None = None
    cleaning: bool = False
    found_dead: bool = False

    @property
    def ended(self) -> bool:
        return self.status.phase is Phase.ENDED


@dataclass(slots=True)
class LocalGang:
    """One gang. `pulse` is set at each look at the disk that found something new."""

    launched: Launched
    dir: GangDir
    ranks: list[Rank]
    status: GangStatus
    failure: LaunchFailed | None = None
    pulse: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def of(cls, launched: Launched, directory: GangDir, *, awaited: bool) -> LocalGang:
        ranks = [
            Rank(RankStatus(number, Phase.STARTING, node), awaited=awaited)
            for number, node in enumerate(launched.nodes)
        ]
        return cls(launched, directory, ranks, gang_status(launched.name, ranks, None, None))

    @property
    def name(self) -> str:
        return self.launched.name

    async def until_ended(self) -> None:
        while not self.status.ended:
            await self.next_pulse()

    async def until_let_go(self) -> None:
        while self.status.phase is Phase.STARTING:
            await self.next_pulse()

    async def next_pulse(self) -> None:
        self.pulse.clear()
        await self.pulse.wait()


def rank_status(before: RankStatus, record: Mapping[str, str], *, alive: bool, decision: str | None) -> RankStatus:
    """A rank's status by its record. While the supervisor lives the rank has not ended, whatever is recorded; one that
    died with no end on record leaves a status that is still STARTING or RUNNING: the caller cleans up after it."""
    state = record.get("state")
    started_at = float(record["started_at"]) if "started_at" in record else before.started_at
    pid = int(record["pid"]) if "pid" in record else before.pid
    phase = Phase.RUNNING if pid is not None else Phase.STARTING
    if alive or (state not in (EXITED, FAILED, ABORTED) and decision != ABORT):
        return RankStatus(before.rank, phase, before.node, pid, started_at)
    ended_at = float(record["ended_at"]) if "ended_at" in record else None
    return RankStatus(before.rank, Phase.ENDED, before.node, pid, started_at, ended_at, _exit(state, record))


def _exit(state: str | None, record: Mapping[str, str]) -> Exit:
    if state not in (EXITED, FAILED):
        return Exit(stopped=True, detail="not started: the launch was rolled back")
    return Exit(
        code=int(record["code"]) if "code" in record else None,
        signal=int(record["signal"]) if "signal" in record else None,
        lost=record.get("lost") == "1",
        oom=record.get("oom") == "1",
        stopped=record.get("stopped") == "1",
        detail=record.get("detail", ""),
        limit=record.get("limit", ""),
        memory_bytes=int(record.get("memory", 0)),
    )


def gang_status(name: str, ranks: list[Rank], decision: str | None, reason: Reason | None) -> GangStatus:
    phases = {rank.status.phase for rank in ranks}
    if phases == {Phase.ENDED}:
        phase = Phase.ENDED
    elif decision == GO and Phase.STARTING not in phases:
        phase = Phase.RUNNING
    else:
        phase = Phase.STARTING
    return GangStatus(name, phase, tuple(rank.status for rank in ranks), reason)


def reason_of(gang: LocalGang, decision: str | None, wish: Mapping[str, str]) -> Reason | None:
    """Why a gang was rolled back or stopped, if it was."""
    if gang.failure is not None:
        return Reason("rolled-back", str(gang.failure), {"fault": str(gang.failure.fault)})
    if decision == ABORT:
        return Reason("rolled-back", "the launch was given up before all ranks were ready")
    if wish:
        return Reason(wish["code"], wish["reason"])
    return None


def first_failure(gang: LocalGang) -> RankStatus | None:
    """The rank that ended badly by itself, if one did; the others are stopped because of it."""
    for rank in gang.ranks:
        end = rank.status.exit
        if end is not None and not end.ok and not end.stopped:
            return rank.status
    return None


def why_all_stop(gang: LocalGang, decision: str | None, wish: Mapping[str, str]) -> str:
    """Why the ranks that are left have to stop: one ended badly by itself. Empty where they need not, or were asked."""
    failed = first_failure(gang)
    if failed is None or failed.exit is None or wish or decision != GO or all(rank.ended for rank in gang.ranks):
        return ""
    return f"rank {failed.rank} {describe(failed.exit)}; the others were stopped"


def describe(exit_: Exit) -> str:
    """An end in words, to follow `rank 3`."""
    if exit_.lost:
        return f"was lost: {exit_.detail}"
    if exit_.oom:
        return "was killed at its memory limit"
    if exit_.limit:
        return f"was killed: {exit_.detail}"
    if exit_.signal is not None:
        return f"was killed by signal {exit_.signal}"
    return f"ended with code {exit_.code}" + (f": {exit_.detail}" if exit_.detail else "")
