"""The shared part of engines whose gangs stand in directories (`layout`): it checks, tells, reads and steers them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from shoal.base import trees
from shoal.base.locks import lock_file
from shoal.core import Clock, Conflict, Fault, Invalid, NotFound, SystemClock, Unavailable
from shoal.engine.changes import Changes
from shoal.engine.local import streams
from shoal.engine.local.gangs import LocalGang
from shoal.engine.local.layout import GangDir, Launched
from shoal.engine.protocol import Gang, GangStatus, LaunchFailed, LogChunk, LogTimes

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")

AnyGang = TypeVar("AnyGang", bound=LocalGang)


class RecordedGangs(ABC, Generic[AnyGang]):
    """A part of the engine protocol, for an engine to inherit: `_home` holds `gangs/NAME`, `_known` gives the gangs
    that it knows by name, and each change of a status goes to `_changes`."""

    _lock_wait_s = 0.0

    def __init__(self, home: Path, clock: Clock | None) -> None:
        self._home = home.resolve()
        self._clock = clock or SystemClock()
        self._changes = Changes()
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._lock_fd: int | None = None

    async def open(self) -> None:
        """Raises Unavailable or Invalid, and Conflict while another engine has the home. Nothing stays open then."""
        try:
            await self._hold_home()
            await self._open()
        except BaseException:
            await self.close()
            raise

    async def _hold_home(self) -> None:
        try:
            (self._home / "gangs").mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_fd = await asyncio.to_thread(lock_file, self._home / "engine.lock", wait_s=self._lock_wait_s)
            if self._lock_fd is not None:
                self._fill_home()
                return
        except OSError as problem:
            raise Unavailable(
                f"the engine's home cannot be used: {problem.strerror}", where=str(self._home)
            ) from problem
        hint = "stop it first, or give this one another home"
        raise Conflict("another engine has this home open", where=str(self._home), hint=hint)

    def _close_home(self) -> None:
        self._changes.close()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _fill_home(self) -> None:
        """Put into the home, once it is held, what has to be there. May raise OSError."""
        return

    @abstractmethod
    async def _open(self) -> None:
        """The rest of `open`, with the home held."""

    @abstractmethod
    async def close(self) -> None: ...

    @property
    @abstractmethod
    def _known(self) -> Mapping[str, AnyGang]: ...

    @abstractmethod
    async def _launch_anew(self, gang: Gang) -> GangStatus: ...

    @abstractmethod
    async def _goes_on(self, known: AnyGang, gang: Gang) -> GangStatus | None:
        """Its status once it was let go; None for a launch of an earlier life that was cut short."""

    @abstractmethod
    async def _end_now(self, known: AnyGang) -> None:
        """End all of the gang, by its supervisors if they still do their work, else without them."""

    @abstractmethod
    def _drop(self, gang: AnyGang) -> None:
        """Forget one that has ended."""

    @abstractmethod
    async def stop(self, name: str, *, grace_s: float | None = None, reason: str = "") -> None: ...

    async def launch(self, gang: Gang) -> GangStatus:
        check_gang(gang)
        lock = self._locks.setdefault(gang.name, asyncio.Lock())
        async with lock:
            known = self._known.get(gang.name)
            if known is not None:
                if known.failure is not None:
                    raise again(known.failure)
                status = await self._goes_on(known, gang)
                if status is not None:
                    return status
                await self._end_now(known)  # nothing of it ever ran
                self._drop(known)
            return await self._launch_anew(gang)

    async def forget(self, name: str) -> None:
        gang = self._known.get(name)
        if gang is None:
            return
        if not gang.status.ended:
            await self.stop(name, grace_s=0, reason="forgotten")
            await self._end_now(gang)
        self._drop(gang)

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
        size, _ = await asyncio.to_thread(trees.measure, str(directory.path))
        if not dry_run:
            await asyncio.to_thread(directory.discard)
        return size


@contextlib.contextmanager
def prepared(directory: GangDir) -> Iterator[None]:
    """Within it the gang's directory is made and filled. Raises LaunchFailed where that fails: it counts as none."""
    try:
        yield
    except OSError as problem:
        with contextlib.suppress(OSError):
            (directory.path / "gang.json").unlink(missing_ok=True)
        raise platform_failure(problem) from problem


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
