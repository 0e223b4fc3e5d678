"""An example extension: jobs with the label `curfew` start only at set hours, so that they do not wake the building.

It brings a section of the settings, a loop, a wrapper around the decision, a cause for `shoal explain`, a line in
`shoal status` and a command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Any, ClassVar

import typer
from pydantic import Field

from shoal.admission import Blocker, Decision, Explanation, Snapshot, without
from shoal.base.console.command import CommandContext, command
from shoal.core import Reason
from shoal.extension import Decide, Explain, Extension, LiveJob, Section, Server

LABEL = "curfew"


class CurfewSettings(Section):
    """In the settings file: `curfew: {opens: "20:00", closes: "06:00"}`."""

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

    def __init__(self, server: Server, settings: CurfewSettings) -> None:
        self._server, self._settings = server, settings

    async def open(self) -> None:
        self._task = asyncio.create_task(self._wake_at_opening())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _wake_at_opening(self) -> None:
        """The loop: decisions are made when something changes, and an opening is no such change."""
        while True:
            opening = next_opening(self._server.clock.now(), self._settings)
            await asyncio.sleep(60.0 if opening is None else max(0.1, opening - self._server.clock.now()))
            self._server.wake()

    def _kept(self, job: LiveJob | None) -> bool:
        return job is not None and LABEL in job.manifest.labels

    def decide(self, snapshot: Snapshot, admit: Decide) -> Decision:
        opening = next_opening(snapshot.now, self._settings)
        kept = [job_id for job_id in snapshot.pending.by_id if self._kept(self._server.job(job_id))]
        if opening is None or not kept:
            return admit(snapshot)
        decision = admit(without(snapshot, kept))
        return replace(decision, waits={**decision.waits, **dict.fromkeys(kept, self._reason(opening))})

    async def explain(self, snapshot: Snapshot, job: LiveJob, usual: Explain) -> Explanation:
        told, opening = await usual(), next_opening(snapshot.now, self._settings)
        if opening is None or not self._kept(job) or job.job.id not in snapshot.pending.by_id:
            return told
        reason = self._reason(opening)
        cause = Blocker("curfew", True, reason, f"remove the label `{LABEL}`")
        return replace(told, causes=(cause, *told.causes), summary=reason.text, estimated_start=opening)

    def _reason(self, opening: float) -> Reason:
        text = f"waits for {self._settings.opens:%H:%M} UTC: it has the label `{LABEL}`"
        return Reason("curfew", text, {"opens_at": opening})

    def status(self) -> Mapping[str, Any]:
        return {"open": next_opening(self._server.clock.now(), self._settings) is None}


def register(app: typer.Typer) -> None:
    command(app, "curfew")(curfew)


def curfew(context: CommandContext) -> None:
    """Whether jobs with the label `curfew` may start now (admin)."""
    with context.client() as client:
        found = (client.status().model_extra or {}).get("curfew", {"open": True})
    context.show(found, lambda: print("open" if found["open"] else "closed"))
