"""The calendar as an extension of the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from fastapi import APIRouter
from pydantic import Field

from shoal.base.loops import BackgroundLoop, RunningLoop
from shoal.calendar.live.api import Planning, router_of
from shoal.calendar.live.crons import Crons
from shoal.calendar.live.events import CalendarEvent
from shoal.calendar.live.tables import TABLES
from shoal.calendar.schedule import zone_of
from shoal.contract.events import EventKinds
from shoal.core import Capability, NeededBundles
from shoal.extension import Extension, Section, Server
from shoal.store import Tables


class CalendarSection(Section):
    """Cron jobs, reservations and maintenance windows."""

    enabled: bool = True
    zone: str = Field("UTC", max_length=100, description="whose wall clock a plan means that names no time zone")
    late_s: float = Field(60.0, gt=0, description="a time of a cron job that is longer ago was missed")
    most_crons: int = Field(100, ge=0, le=100_000, description="cron jobs that a tenant may have")


class Calendar(Extension, Planning):
    """Submits jobs when they are due."""

    name: ClassVar[str] = "calendar"
    paths: ClassVar[Sequence[str]] = ("/v1/crons",)
    settings: ClassVar[type[Section]] = CalendarSection
    tables: ClassVar[Tables | None] = TABLES
    events: ClassVar[type[EventKinds] | None] = CalendarEvent

    def __init__(self, server: Server, settings: CalendarSection) -> None:
        zone_of(settings.zone)
        self.zone = settings.zone
        self.crons = Crons(server, late_s=settings.late_s, most=settings.most_crons)

    @classmethod
    def off(cls) -> Sequence[Capability]:
        return (Capability("calendar", False, "off: `shoal up --set calendar.enabled=on`", "no cron job runs"),)

    async def open(self) -> None:
        self.crons.load()

    def loops(self) -> Sequence[BackgroundLoop]:
        return (RunningLoop("crons", self.crons.watch),)

    def answers(self) -> Mapping[type, object]:
        return {NeededBundles: self}

    def needed_bundles(self) -> Iterable[tuple[str, str]]:
        """What cron jobs will submit."""
        return self.crons.bundles()

    def routers(self) -> Sequence[APIRouter]:
        return (router_of(),)
