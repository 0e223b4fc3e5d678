"""News as an extension of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import structlog
from pydantic import BaseModel

from shoal.base.loops import BackgroundLoop, RunningLoop, Turns
from shoal.contract.events import EventKinds
from shoal.contract.pages import Page
from shoal.contract.records import Event
from shoal.core import Capability
from shoal.extension import Extension, LiveJob, Section, Server
from shoal.extension.metrics import gauge
from shoal.notify.live.book import Book
from shoal.notify.live.needs import Telling
from shoal.notify.live.outbox import Counts, Outbox
from shoal.notify.live.page import page_of
from shoal.notify.live.reader import Reader
from shoal.notify.live.sender import Sender
from shoal.notify.live.settings import NotifyJob, NotifySection
from shoal.notify.live.tables import TABLES
from shoal.notify.live.watch import Watch
from shoal.notify.records import Delivery, Kind, NotifyEvent
from shoal.store import Tables

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.core import Metric

log = structlog.get_logger("shoal.notify")

_SHOWN = 50
_LOOK_S = 5.0
_CLEAN_S = 600.0


class Notify(Extension, Telling):
    """Tells people and programs what happens to their jobs."""

    name: ClassVar[str] = "notify"
    paths: ClassVar[Sequence[str]] = ("/v1/notify",)
    settings: ClassVar[type[Section]] = NotifySection
    manifest: ClassVar[type[BaseModel] | None] = NotifyJob
    in_planes: ClassVar[bool] = True
    tables: ClassVar[Tables | None] = TABLES
    events: ClassVar[type[EventKinds] | None] = NotifyEvent

    def __init__(self, server: Server, settings: NotifySection) -> None:
        self.server = server
        self._keep_s = settings.keep
        self.book = Book(server)
        self.outbox = Outbox(server.store)
        self.sender = Sender(server, settings, self.book, self.outbox)
        self._reader = Reader(server, self.book, self.outbox, self.sender.wake)
        self._watch = Watch(server, self.book, self.outbox, self._reader, self.sender.wake)
        self._turns = Turns(log, "deliveries could not be looked at", server.on_fatal)
        self._counts: Mapping[str, Counts] = {}
        self._last: Sequence[Delivery] = ()

    @classmethod
    def off(cls) -> Sequence[Capability]:
        return (Capability("news", False, "off: `shoal up --set notify.enabled=on`", "nobody is told how jobs end"),)

    async def open(self) -> None:
        self.book.open()
        waiting = (self.server.job(job_id) for job_id in self.server.snapshot().pending.by_id)
        for job in [*self.server.active_jobs(), *(one for one in waiting if one is not None)]:
            self._reader.moved(job)

    def loops(self) -> Sequence[BackgroundLoop]:
        return (
            RunningLoop("news from events", self._reader.run), RunningLoop("news of waits", self._watch.run),
            RunningLoop("news to receivers", self.sender.run), RunningLoop("deliveries", self._look),
        )  # fmt: skip

    def idle(self) -> bool:
        return self._reader.idle() and self.sender.idle()

    async def close(self) -> None:
        await self.sender.close()

    def committed(self, events: Iterable[Event]) -> None:
        self._reader.committed(events)

    def moved(self, job: LiveJob) -> None:
        self._reader.moved(job)

    async def _look(self) -> None:
        """What pages and metrics show; and what is old is forgotten."""
        cleaned = -_CLEAN_S
        while True:
            with self._turns.turn() as turn:
                self._counts = await asyncio.to_thread(self.outbox.counts)
                self._last = await asyncio.to_thread(self.outbox.deliveries, None, None, _SHOWN * 4)
                if self.server.clock.monotonic() - cleaned >= _CLEAN_S:
                    cleaned = self.server.clock.monotonic()
                    await self._forget()
            if turn.over:
                return
            await asyncio.sleep(_LOOK_S)

    async def _forget(self) -> None:
        """News of a job that is not over stay: it would be told of anew."""
        before = self.server.clock.now() - self._keep_s
        old = await asyncio.to_thread(self.outbox.old, before)
        if over := [id_ for id_, job in old if job is None or self.server.job(job) is None]:
            await self.outbox.forget(over, before)

    # --- shown ---

    def capabilities(self) -> Sequence[Capability]:
        """Mail is told of only where somebody wants it."""
        door = self.sender.door
        if door is not None:
            return (Capability("news by mail", True, f"{door.host}:{door.port}, {door.security}"),)
        if any(one.target.kind is Kind.MAIL for one in self.book):
            detail = "no mail server: `shoal up --set notify.smtp_host=HOST`"
            return (Capability("news by mail", False, detail, "subscriptions by mail reach nobody"),)
        return ()

    def page(self, tenant: str | None) -> Page | None:
        known = self.book.of(tenant)
        seen = [one for one in self._last if tenant in (None, one.owner)][:_SHOWN]
        counts = [one for owner, one in self._counts.items() if tenant in (None, owner)]
        if not known and not seen:
            return None
        total = Counts(
            sum(one.held_back for one in counts), sum(one.waiting for one in counts), sum(one.gave_up for one in counts)
        )
        return page_of(known, seen, total)

    def metrics(self) -> Iterable[Metric]:
        values: dict[tuple[str, ...], float] = {
            (owner, state): float(number)
            for owner, one in self._counts.items()
            for state, number in (("held-back", one.held_back), ("waiting", one.waiting), ("gave-up", one.gave_up))
        }
        return (gauge("shoal_notify_deliveries", "News by tenant and state.", ("tenant", "state"), values),)

    def routers(self) -> Sequence[APIRouter]:
        from shoal.notify.live.api import router_of

        return (router_of(),)
