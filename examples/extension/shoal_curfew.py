"""An example extension: jobs with the label `curfew` start only at set hours, so that they do not wake the building.

It brings settings, a table, a loop, jobs that it holds, a cause for `shoal explain`, a status and a command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import ClassVar

import typer
from pydantic import Field
from sqlalchemy import Column, Connection, Table, insert, select

from shoal.admission import Blocker, Snapshot
from shoal.base.console.command import CommandContext, command
from shoal.base.loops import BackgroundLoop, RunningLoop
from shoal.contract import pages
from shoal.core import Reason
from shoal.extension import Extension, LiveJob, Section, Server
from shoal.store import Key, Tables, new_metadata

metadata = new_metadata()
night = Table("night", metadata, Column("day", Key, primary_key=True))  # days on which jobs could start


class CurfewSettings(Section):
    opens: time = Field(time(20), description="from when jobs with the label `curfew` may start, UTC")
    closes: time = Field(time(6), description="until when")


def next_opening(now: float, settings: CurfewSettings) -> float | None:
    """When jobs may start again, in Unix seconds; None: they may now. Pure."""
    moment = datetime.fromtimestamp(now, UTC)
    at, opens, closes = moment.time(), settings.opens, settings.closes
    if opens <= at < closes if opens < closes else at >= opens or at < closes:
        return None
    opening = datetime.combine(moment.date(), opens, UTC)
    return (opening if opening > moment else opening + timedelta(days=1)).timestamp()


class Curfew(Extension):
    name: ClassVar[str] = "curfew"
    settings: ClassVar[type[Section]] = CurfewSettings
    tables: ClassVar[Tables | None] = Tables("curfew", metadata)

    def __init__(self, server: Server, settings: CurfewSettings) -> None:
        self._server, self._settings = server, settings
        self._reason = Reason("curfew", f"waits for {settings.opens:%H:%M} UTC: it has the label `curfew`")

    def loops(self) -> Sequence[BackgroundLoop]:
        return (RunningLoop("hours", self._follow_the_hours),)

    async def _follow_the_hours(self) -> None:
        while True:  # decisions are made when something changes, and an opening is no such change
            opening = next_opening(self._server.clock.now(), self._settings)
            if opening is None:
                await self._server.store.transact(self._note)
            await asyncio.sleep(60.0 if opening is None else max(0.1, opening - self._server.clock.now()))
            self._server.wake()

    def _note(self, connection: Connection) -> bool:
        today = f"{datetime.fromtimestamp(self._server.clock.now(), UTC):%F}"
        known = connection.scalar(select(night.c.day).where(night.c.day == today))
        return known is None and bool(connection.execute(insert(night).values(day=today)).rowcount)

    def _kept(self, job: LiveJob | None) -> bool:
        return job is not None and "curfew" in job.manifest.labels

    def holds(self, snapshot: Snapshot) -> Mapping[str, Reason]:
        opening = next_opening(snapshot.now, self._settings)
        if opening is None:
            return {}
        reason = replace(self._reason, facts={"starts_at": opening})
        return {job_id: reason for job_id in snapshot.pending.by_id if self._kept(self._server.job(job_id))}

    async def explain(self, snapshot: Snapshot, job: LiveJob) -> Sequence[Blocker]:
        reason = self.holds(snapshot).get(job.job.id)
        return () if reason is None else (Blocker("curfew", True, reason, "remove the label `curfew`"),)

    def page(self, tenant: str | None) -> pages.Page:  # noqa: ARG002
        nights: list[list[pages.Value]] = [[row.day] for row in self._server.store.rows(select(night))]
        is_open = next_opening(self._server.clock.now(), self._settings) is None
        table = pages.Table(title="Nights", columns=[pages.Column(name="day")], rows=nights)
        return pages.Page(title="Curfew", figures=[pages.Figure(name="open", value=is_open)], parts=[table])


def register(app: typer.Typer) -> None:
    @command(app, "curfew")
    def curfew(context: CommandContext) -> None:
        """Whether jobs with the label `curfew` may start now (admin)."""
        with context.client() as client:
            found = client.page("curfew")
        context.show(found, lambda: print("open" if found.figures[0].value else "closed"))
