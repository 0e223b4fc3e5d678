"""What every engine whose gangs stand in directories (`layout`) does alike: it checks, tells, reads and steers them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from shoal.core import Fault, Invalid, NotFound, Unavailable
from shoal.engine.local import streams
from shoal.engine.local.changes import Changes
from shoal.engine.local.gangs import LocalGang
from shoal.engine.local.layout import GangDir, Launched
from shoal.engine.local.supervisor import disk_bytes
from shoal.engine.protocol import Gang, GangStatus, LaunchFailed, LogChunk, LogTimes

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")

AnyGang = TypeVar("AnyGang", bound=LocalGang)


class RecordedGangs(Generic[AnyGang]):
    """A part of the engine protocol, for an engine to inherit: `_home` holds `gangs/NAME`, `_known` gives the gangs
    that it knows by name, and each change of a status goes to `_changes`."""

    _home: Path
    _changes: Changes

    @property
    def _known(self) -> Mapping[str, AnyGang]:
        raise NotImplementedError

    async def gangs(self) -> Mapping[str, GangStatus]:
        return {name: gang.status for name, gang in self._known.items()}

    async def status(self, name: str) -> GangStatus | None:
        gang = self._known.get(name)
        return gang.status if gang else None

    def changes(self) -> AsyncIterator[GangStatus]:
        return self._changes.watch([gang.status for gang in self._known.values()])

    async def read(self, name: str, rank: int, stream: str, offset: int, limit: int = 65536) -> LogChunk:
        directory, launched = self._find(name, rank)
        gang = self._known.get(name)
        ended = gang is None or gang.ranks[rank].ended
        where = f"{name}: rank {rank}"
        run_dir = Path(launched.run_dir)
        return streams.read_stream(directory.rank_dir(rank), run_dir, stream, offset, limit, ended=ended, where=where)

    async def log_times(self, name: str, rank: int) -> LogTimes:
        directory, _ = self._find(name, rank)
        return await asyncio.to_thread(streams.read_log_times, directory.rank_dir(rank))

    def _find(self, name: str, rank: int) -> tuple[GangDir, Launched]:
        """What is kept of a gang that has this rank. Raises NotFound."""
        gang = self._known.get(name)
        directory = GangDir(self._home / "gangs" / name)
        launched = gang.launched if gang else directory.load_past() if _NAME.fullmatch(name) else None
        if launched is None:
            raise NotFound("no such gang", where=name)
        if not 0 <= rank < len(launched.nodes):
            raise NotFound(f"the gang has no rank {rank}", where=name, hint=f"ranks are 0 to {len(launched.nodes) - 1}")
        return directory, launched

    async def notify(self, name: str, notice: Mapping[str, object]) -> None:
        gang = self._known.get(name)
        for rank in gang.ranks if gang else ():
            if gang is not None and not rank.ended:
                try:
                    gang.dir.leave_notice(rank.status.rank, notice)
                except OSError as problem:
                    raise Unavailable(f"the notice cannot be written: {problem.strerror}", where=name) from problem

    async def erase(self, name: str, *, dry_run: bool = False) -> int:
        if name in self._known or not _NAME.fullmatch(name):
            return 0
        directory = GangDir(self._home / "gangs" / name)
        size = await asyncio.to_thread(disk_bytes, str(directory.path))
        if not dry_run:
            await asyncio.to_thread(directory.discard)
        return size


def check_gang(gang: Gang) -> None:
    """Raise Invalid for a gang that no engine could start."""
    if not _NAME.fullmatch(gang.name):
        hint = "letters, digits, dot, dash and underscore, at most 200"
        raise Invalid(f"{gang.name!r} cannot name a gang", where="name", hint=hint)
    if not gang.argv or not gang.argv[0]:
        raise Invalid("a gang needs a command", where=f"{gang.name}: argv")
    if not gang.ranks or [spec.rank for spec in gang.ranks] != list(range(len(gang.ranks))):
        raise Invalid("ranks must be numbered from 0 without gaps", where=f"{gang.name}: ranks")
    environments = (gang.env, gang.secrets, *(spec.env for spec in gang.ranks))
    for text in (*gang.argv, *(part for env in environments for item in env.items() for part in item)):
        if "\0" in text:
            raise Invalid("arguments and environment cannot hold a NUL character", where=gang.name)
    for name in (name for env in environments for name in env):
        if not name or "=" in name:
            raise Invalid(f"{name!r} cannot name an environment variable", where=f"{gang.name}: env")


def again(failure: LaunchFailed) -> LaunchFailed:
    """A copy to raise, without the first one's traceback."""
    return LaunchFailed(failure.what, fault=failure.fault, where=failure.where, hint=failure.hint)


def given_up(local: LocalGang) -> LaunchFailed:
    wish = local.dir.stop_wish()
    why = f": {wish['reason']}" if wish else ""
    what = f"the launch was given up before all ranks were ready{why}"
    return LaunchFailed(what, fault=Fault.PLATFORM, where=local.name)


def platform_failure(problem: OSError) -> LaunchFailed:
    where = str(problem.filename) if problem.filename else None
    return LaunchFailed(f"the ranks cannot be set up: {problem.strerror}", fault=Fault.PLATFORM, where=where)
