"""What the API says of cron jobs, as typed values: shared by the routes, the client and the commands."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from shoal.calendar.schedule import MOST_TEXT, Missed, Overlap
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


class FiredView(View):
    """The job, or job array, that was submitted; `created` is false where the same request came before."""

    job: str
    created: bool
