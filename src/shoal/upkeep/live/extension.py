"""Backups by the clock, as an extension of the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import structlog

from shoal.base import trees
from shoal.base.home import Home
from shoal.base.loops import BackgroundLoop, RunningLoop
from shoal.contract.events import EventKinds
from shoal.contract.pages import Column, Figure, Mood, Page, Table, Unit, Value
from shoal.contract.records import NewEvent
from shoal.core import Capability, Clock, ShoalError
from shoal.extension import Extension, Section, Server
from shoal.upkeep import record, rotation
from shoal.upkeep.live.events import UpkeepEvent
from shoal.upkeep.live.settings import UpkeepSection

log = structlog.get_logger("shoal.upkeep")

_LONGEST_SLEEP_S = 60.0
"""The clock may be set: it is looked at again."""
_AGAIN_S = 300.0
_SHOWN = 20


class Upkeep(Extension):
    """Makes backups by the clock."""

    name: ClassVar[str] = "upkeep"
    settings: ClassVar[type[Section]] = UpkeepSection
    events: ClassVar[type[EventKinds] | None] = UpkeepEvent

    def __init__(self, server: Server, settings: UpkeepSection) -> None:
        self._server = server
        self._every_s, self._keep = settings.backup_every, settings.backup_keep
        self._folder = Path(settings.backup_to) if settings.backup_to else server.home.resolve() / "backups"
        self._kept = record.BackupRecord()

    @classmethod
    def probe(cls, home: Path) -> Sequence[Capability]:
        return (record.read(home).capability(time.time()),)

    async def open(self) -> None:
        before = await asyncio.to_thread(record.read, self._server.home)
        known = before if before.folder == str(self._folder) else record.BackupRecord()
        self._kept = replace(known, every_s=self._every_s, folder=str(self._folder))
        if before != self._kept:
            await self._remember()

    def loops(self) -> Sequence[BackgroundLoop]:
        return (RunningLoop("backups", self._run),) if self._every_s else ()

    async def _run(self) -> None:
        clock = self._server.clock
        while True:
            names = await asyncio.to_thread(_names, self._folder)
            left = rotation.due_in(names, self._every_s, clock.now())
            if left <= 0 and not await self._back_up(clock):
                left = min(_AGAIN_S, self._every_s)
            await asyncio.sleep(min(left, _LONGEST_SLEEP_S) if left > 0 else 0.0)

    async def _back_up(self, clock: Clock) -> bool:
        """Whether there is one more good backup."""
        at, begun = clock.now(), clock.monotonic()
        target = self._folder / rotation.name_at(at)
        try:
            size, seq = await asyncio.to_thread(self._make, target)
        except (ShoalError, OSError) as problem:
            text = problem.what if isinstance(problem, ShoalError) else f"{problem.strerror}: {problem.filename}"
            await self._failed(f"no backup could be made: {text}")
            return False
        self._kept = replace(
            self._kept, file=str(target), at=at, bytes=size, seq=seq, seconds=round(clock.monotonic() - begun, 3),
            trouble="",
        )  # fmt: skip
        await self._remember()
        data = {"file": str(target), "bytes": size, "seq": seq, "seconds": self._kept.seconds}
        log.info("made a backup", **data)
        await self._server.store.record([NewEvent(at, UpkeepEvent.BACKED_UP, self.name, str(target), data=data)])
        return True

    async def _failed(self, what: str) -> None:
        log.warning("a backup failed", problem=what)
        news, self._kept = what != self._kept.trouble, replace(self._kept, trouble=what)
        await self._remember()
        if news:
            now = self._server.clock.now()
            await self._server.store.record([NewEvent(now, UpkeepEvent.BACKUP_FAILED, self.name, what)])

    async def _remember(self) -> None:
        try:
            await asyncio.to_thread(record.write, self._server.home, self._kept)
        except OSError as problem:
            log.warning("what was backed up cannot be written down", problem=str(problem))

    def _make(self, target: Path) -> tuple[int, int]:
        """Write it, check it, and remove the oldest: its size and sequence. Blocks. Raises ShoalError and OSError."""
        from shoal.control.home.backup import make_backup, read_backup

        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in rotation.drafts(record.names_in(self._folder)):  # of a server that was killed meanwhile
            trees.remove(str(self._folder / name))
        make_backup(Home(self._server.home), self._server.store.url, target, force=True)
        try:
            about = read_backup(target)
        except ShoalError:
            target.unlink(missing_ok=True)
            raise
        for name in rotation.to_remove(record.names_in(self._folder), self._keep):
            (self._folder / name).unlink(missing_ok=True)
        return target.stat().st_size, about.seq

    # --- shown ---

    def capabilities(self) -> Sequence[Capability]:
        return (self._kept.capability(self._server.clock.now()),)

    def page(self, tenant: str | None) -> Page | None:
        """For an admin."""
        if tenant is not None or not self._every_s:
            return None
        kept, mood = self._kept, Mood.BAD if self._kept.trouble else Mood.PLAIN
        rows: list[list[Value]] = [
            [rotation.name_at(at), at] for at in reversed(rotation.times(_names(self._folder))[-_SHOWN:])
        ]
        columns = [Column(name="file"), Column(name="made", unit=Unit.TIME)]
        return Page(
            title="Backups",
            figures=[
                Figure(name="every", value=self._every_s, unit=Unit.SECONDS),
                Figure(name="last", value=kept.at or None, unit=Unit.TIME, mood=mood),
                Figure(name="size", value=kept.bytes, unit=Unit.BYTES),
                Figure(name="took", value=kept.seconds, unit=Unit.SECONDS),
                *([Figure(name="trouble", value=kept.trouble, mood=Mood.BAD)] if kept.trouble else []),
            ],
            parts=[Table(title=f"In {self._folder}", columns=columns, rows=rows)],
        )


def _names(folder: Path) -> list[str]:
    try:
        return record.names_in(folder)
    except OSError:
        return []
