"""Planes as an extension of the shared server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from shoal.base.loops import BackgroundLoop, RunningLoop
from shoal.contract.events import EventKinds
from shoal.contract.lifecycle import JobState
from shoal.contract.pages import Action, Column, Figure, Page, Table, Unit, Value
from shoal.contract.records import Event
from shoal.core import Capability, Fault, Unavailable
from shoal.engine import Gang, LaunchFailed
from shoal.extension import Extension, LiveJob, Section, Server
from shoal.store import Tables
from shoal.tenancy.live.entrance import PlaneLimits
from shoal.tenancy.live.needs import Serving
from shoal.tenancy.live.planes import Planes
from shoal.tenancy.live.repository import TABLES
from shoal.tenancy.records import PlaneEvent, PlaneRecord, PlaneState

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.routing import Host

_DOMAIN = r"^([a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*)?$"
_OF_THE_POOL = ("node.", "tenant.")


class TenancySection(Section):
    """Virtual control planes."""

    enabled: bool = True
    sleep_after_s: float = Field(300.0, ge=0, description="a plane without work and requests for so long sleeps")
    domain: Annotated[str, Field(pattern=_DOMAIN)] = Field(
        "", description="planes answer at NAME.DOMAIN too, where its names lead to this server"
    )
    requests_per_s: float = Field(500.0, gt=0, description="requests to one plane per second, on average")
    burst: int = Field(2000, ge=1, le=1 << 20, description="requests to one plane at once, after a pause")
    requests_at_once: int = Field(512, ge=1, le=1 << 20, description="requests that one plane answers at a time")

    unknown_per_s: float = Field(
        10.0, gt=0, description="requests of one address without a valid token of a plane per second, on average"
    )
    unknown_burst: int = Field(100, ge=1, le=1 << 20, description="such requests of one address at once")

    def limits(self) -> PlaneLimits:
        return PlaneLimits(
            self.sleep_after_s, self.requests_per_s, self.burst, self.requests_at_once, self.unknown_per_s,
            self.unknown_burst,
        )  # fmt: skip


def _turn(plane: PlaneRecord) -> Action:
    """An active plane may be suspended, a suspended one resumed."""
    verb = "suspend" if plane.state is PlaneState.ACTIVE else "resume"
    warning = "It answers no more, and nothing new of it starts. What runs goes on." if verb == "suspend" else ""
    return Action(
        name=f"{verb.capitalize()} {plane.name}", command=["shoal", "plane", verb, plane.name], method="POST",
        path=f"/v1/planes/{plane.name}/{verb}", warning=warning,
    )  # fmt: skip


class Tenancy(Extension, Serving):
    """Gives teams control planes of their own over this server's pool."""

    name: ClassVar[str] = "tenancy"
    paths: ClassVar[Sequence[str]] = ("/v1/planes",)
    not_in_planes: ClassVar[str] = "a plane has no planes"
    settings: ClassVar[type[Section]] = TenancySection
    tables: ClassVar[Tables | None] = TABLES
    events: ClassVar[type[EventKinds] | None] = PlaneEvent

    def __init__(self, server: Server, settings: TenancySection) -> None:
        self.planes = Planes(server, settings.limits())
        self.domain = settings.domain

    @classmethod
    def off(cls) -> Sequence[Capability]:
        return (
            Capability("planes", False, "off: `shoal up --set tenancy.enabled=on`", "no team has a plane of its own"),
        )

    async def open(self) -> None:
        await self.planes.open()

    def loops(self) -> Sequence[BackgroundLoop]:
        return (RunningLoop("planes", self.planes.watch),)

    async def close(self) -> None:
        await self.planes.close()

    def committed(self, events: Iterable[Event]) -> None:
        if any(event.job_id is None and event.kind.startswith(_OF_THE_POOL) for event in events):
            # This is told before those who wrote it go on, and what they wrote is in the server's memory.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._pool_changed)

    def _pool_changed(self) -> None:
        for one in self.planes.awake():
            one.engine.pool_changed()

    def moved(self, job: LiveJob) -> None:
        if (owner := self.planes.owner(job.job.owner_id)) is not None:
            engine = self.planes.engine_of(owner.name)
            if engine is not None:
                engine.moved(job)

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        record = self.planes.owner(job.job.owner_id)
        if record is None or job.job.state is not JobState.STARTING:
            return gang  # no plane's, or launched already: it is found by its name
        if record.state is PlaneState.SUSPENDED:
            raise LaunchFailed(f"plane {record.name} is suspended", fault=Fault.PLATFORM, where=gang.name)
        engine = self.planes.engine_of(record.name)
        if engine is None:
            raise Unavailable(f"plane {record.name} is not awake yet")
        return engine.to_run(job.job, gang)

    def mount_roots(self) -> Sequence[Path]:
        """Those of the planes' own extensions: each plane has checked what its jobs are shown."""
        on = [(awake.plane.home, one) for awake in self.planes.awake() for one in awake.plane.extensions]
        return [root for home, one in on for root in (home / one.name, *one.mount_roots())]

    def delegated(self, job: LiveJob) -> bool:
        return self.planes.owner(job.job.owner_id) is not None

    def page(self, tenant: str | None) -> Page | None:
        """A plane is shown to the people of the tenant that it belongs to."""
        planes = [one for one in self.planes.all() if tenant in (None, one.tenant)]
        if not planes:
            return None
        awake = {plane.name: self.planes.is_awake(plane.name) for plane in planes}
        figures = [Figure(name="planes", value=len(planes)), Figure(name="awake", value=sum(awake.values()))]
        columns = [
            Column(name="plane"), Column(name="tenant"), Column(name="state"), Column(name="awake"),
            Column(name="made", unit=Unit.TIME),
        ]  # fmt: skip
        rows: list[list[Value]] = [
            [one.name, one.tenant, one.state.value.lower(), awake[one.name], one.created_at] for one in planes
        ]
        table = Table(title="Planes", columns=columns, rows=rows)
        actions = [_turn(one) for one in planes] if tenant is None else []
        return Page(title="Virtual control planes", figures=figures, parts=[table], actions=actions)

    def routers(self) -> Sequence[APIRouter]:
        from shoal.tenancy.live.api import router_of

        return (router_of(),)

    def hosts(self) -> Sequence[Host]:
        if not self.domain:
            return ()
        from starlette.routing import Host

        from shoal.tenancy.live.api import PlaneDoor

        return (Host(f"{{name}}.{self.domain}", PlaneDoor()),)
