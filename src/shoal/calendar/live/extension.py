"""The calendar as an extension of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from shoal.admission import Additions, Blocker, Decision, Snapshot
from shoal.base.loops import BackgroundLoop, RunningLoop
from shoal.calendar.live.crons import Crons
from shoal.calendar.live.enforcement import WindowEnforcer
from shoal.calendar.live.events import CalendarEvent
from shoal.calendar.live.needs import Planning
from shoal.calendar.live.page import page_of
from shoal.calendar.live.plans import HORIZON_S, Plans
from shoal.calendar.live.tables import TABLES
from shoal.calendar.schedule import zone_of
from shoal.contract.events import EventKinds
from shoal.contract.pages import Page
from shoal.core import Capability, NeededBundles, Reason
from shoal.extension import Extension, LiveJob, Section, Server
from shoal.store import Tables

if TYPE_CHECKING:
    from fastapi import APIRouter


class CalendarSection(Section):
    """Cron jobs, reservations and maintenance windows."""

    enabled: bool = True
    zone: str = Field("UTC", max_length=100, description="whose wall clock a plan means that names no time zone")
    late_s: float = Field(60.0, gt=0, description="a time of a cron job that is longer ago was missed")
    most_crons: int = Field(100, ge=0, le=100_000, description="cron jobs that a tenant may have")
    notice_s: float = Field(
        120.0, ge=0, le=86_400, description="so long before a window, what is in its way is asked to leave"
    )
    without_limit: Literal["preempt", "keep-off"] = Field(
        "preempt",
        description="jobs without `max_runtime`, where something is planned: they run until the notice, or start there "
        "no more for `keep_off_s` before",
    )
    keep_off_s: float = Field(86_400.0, ge=0, le=HORIZON_S, description="see `without_limit: keep-off`")


class Calendar(Extension, Planning):
    """Submits jobs when they are due, and keeps devices free for what is planned."""

    name: ClassVar[str] = "calendar"
    paths: ClassVar[Sequence[str]] = ("/v1/crons", "/v1/plans")
    in_planes: ClassVar[bool] = True
    settings: ClassVar[type[Section]] = CalendarSection
    tables: ClassVar[Tables | None] = TABLES
    events: ClassVar[type[EventKinds] | None] = CalendarEvent

    def __init__(self, server: Server, settings: CalendarSection) -> None:
        zone_of(settings.zone)
        self.zone = settings.zone
        self.server = server
        self.crons = Crons(server, late_s=settings.late_s, most=settings.most_crons)
        self._changed = asyncio.Event()
        self.plans = Plans(server, self._changed.set)
        lead_s = settings.keep_off_s if settings.without_limit == "keep-off" else 0.0
        self._enforcer = WindowEnforcer(server, self.plans, notice_s=settings.notice_s, lead_s=lead_s)

    @classmethod
    def off(cls) -> Sequence[Capability]:
        return (
            Capability(
                "calendar",
                False,
                "off: `shoal up --set calendar.enabled=on`",
                "no cron job runs, and no reservation holds",
            ),
        )

    async def open(self) -> None:
        self.crons.load()
        self.plans.load()

    def loops(self) -> Sequence[BackgroundLoop]:
        return (
            RunningLoop("crons", self.crons.watch),
            RunningLoop("windows", lambda: self._enforcer.watch(self._changed)),
        )

    def idle(self) -> bool:
        """A plane that will have something to submit stays awake."""
        return not self.crons.due()

    # --- decisions ---

    def moved(self, job: LiveJob) -> None:
        self._enforcer.moved(job)

    def holds(self, snapshot: Snapshot) -> Mapping[str, Reason]:
        return self._enforcer.holds(snapshot)

    def keeps_off(self, snapshot: Snapshot) -> Mapping[str, frozenset[str]]:
        return self._enforcer.keeps_off(snapshot)

    def adjust(self, snapshot: Snapshot, decision: Decision) -> Additions:  # noqa: ARG002
        return self._enforcer.adjust(snapshot)

    def counts_waiting(self) -> bool:
        """Only while something is planned."""
        return bool(self.plans.all())

    def decided(self) -> None:
        self._enforcer.decided()

    async def explain(self, snapshot: Snapshot, job: LiveJob) -> Sequence[Blocker]:
        return tuple(self._enforcer.explain(snapshot, job))

    def answers(self) -> Mapping[type, object]:
        return {NeededBundles: self}

    def needed_bundles(self) -> Iterable[tuple[str, str]]:
        """What cron jobs will submit."""
        return self.crons.bundles()

    def page(self, tenant: str | None) -> Page | None:
        return page_of(self.crons, self.plans, self.server.clock.now(), tenant)

    def routers(self) -> Sequence[APIRouter]:
        from shoal.calendar.live.api import router_of
        from shoal.calendar.live.plans_api import plans_router

        return (router_of(), plans_router())
