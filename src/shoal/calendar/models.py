"""API models of cron jobs: shared by the routes, the client and the commands."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from shoal.calendar.schedule import MOST_TEXT, Missed, Overlap
from shoal.calendar.windows import Repeat
from shoal.contract.view import Given, View

NAME = r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"

Name = Annotated[str, StringConstraints(pattern=NAME)]
Text = Annotated[str, StringConstraints(max_length=MOST_TEXT)]


class CronRequest(Given):
    """A cron job to make, or with `replace` to change. `manifest` is that of a job."""

    name: Name = Field(description="lower-case letters, digits and dashes, at most 63")
    at: Text = Field(description="minute, hour, day of the month, month, day of the week: `0 3 * * 1-5`")
    zone: Text | None = Field(None, description="whose wall clock; left out: the setting calendar.zone")
    overlap: Overlap = Field(Overlap.SKIP, description="when the job of the time before is not over")
    missed: Missed = Field(Missed.RUN_ONCE, description="of times at which no server ran")
    manifest: dict[str, Any] = Field(description="a job's manifest")
    replace: bool = Field(False, description="change the one of this name")


class CronView(View):
    """A cron job. `next_at` is its next time, None while it is suspended. `last_job` is the newest job, or job array,
    that it submitted, at `last_at`. `trouble` says why its last time got no job."""

    id: str
    name: str
    tenant: str
    at: str
    zone: str
    overlap: Overlap
    missed: Missed
    suspended: bool
    next_at: float | None
    last_at: float | None
    last_job: str | None
    trouble: str
    created_by: str
    created_at: float
    updated_at: float


class CronEntry(View):
    """Something that happened to a cron job. `due_at` is the time that it was for."""

    at: float
    kind: str
    text: str
    job: str | None = None
    due_at: float | None = None


class CronDetail(CronView):
    """A cron job with its manifest, its coming times, and what happened lately, the newest last."""

    manifest: dict[str, Any]
    coming: tuple[float, ...]
    history: tuple[CronEntry, ...]


class CronList(View):
    """Cron jobs by name."""

    crons: tuple[CronView, ...]


class PlanRequest(Given):
    """A reservation for a tenant, or maintenance where it names none. Times are on the wall clock of the zone."""

    name: Name = Field(description="lower-case letters, digits and dashes, at most 63")
    tenant: Text | None = Field(None, description="for whom devices are kept; null: maintenance, for nobody")
    begin: Text = Field(description="2026-12-03T14:00")
    end: Text = Field(description="2026-12-03T16:00, or +2h")
    nodes: tuple[Text, ...] = Field((), max_length=1000, description="on these nodes; empty: on any, or on all")
    accelerators: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="how many of their devices; null: the nodes whole"
    )
    kind: Text = Field("any", description="the devices' type")
    repeat: Repeat = Field(Repeat.NEVER, description="daily, or weekly, at the same time of the wall clock")
    last: Text | None = Field(None, description="it begins no more after that")
    zone: Text | None = Field(None, description="whose wall clock; left out: the setting calendar.zone")
    because: Text = Field("", description="why, for people")


class PlanView(View):
    """A reservation or maintenance; what another tenant has reserved has no name. `next_begin` and `next_end` are its
    present or next window, None when it is over."""

    id: str
    name: str
    tenant: str | None
    maintenance: bool
    begin: float
    end: float
    nodes: tuple[str, ...]
    accelerators: int | None
    kind: str
    repeat: Repeat
    last: float | None
    zone: str
    because: str
    next_begin: float | None
    next_end: float | None


class PlanList(View):
    """By the time of the next window."""

    plans: tuple[PlanView, ...]


class FiredView(View):
    """The job, or job array, that was submitted; `created` is false where the same request came before."""

    job: str
    created: bool
