"""`shoal sessions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import CommandContext, TenantOption, command
from shoal.base.console.panels import JOBS
from shoal.core import NotFound

if TYPE_CHECKING:
    from shoal.session.models import OpenSession


def register(app: typer.Typer) -> None:
    command(app, "sessions", rich_help_panel=JOBS, short_help="Who is in which job")(sessions)


def sessions(
    context: CommandContext,
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Of this job only: its id or its name.")] = None,
    end: Annotated[
        list[str] | None, typer.Option(metavar="SESSION", help="End this one, by its id: SIGHUP, then SIGKILL.")
    ] = None,
    tenant: TenantOption = None,
) -> None:
    """Sessions that are open in running jobs: who started each, since when, how long it is idle, and its bytes.

    You see those of jobs that you may enter, an admin all. A job's own terminal ends with its job: `shoal cancel JOB`.
    """
    with context.client() as client:
        job_id = None if job is None else client.job(job, tenant=tenant).id
        found = list(client.session.list(job=job_id, tenant=tenant).sessions)
        if end:
            found = [_the(found, one) for one in end]
            for one in found:
                client.session.end(one.job_id, one.id, rank=one.rank)
    context.show(found, lambda: _told(found, ended=bool(end)))


def _the(found: list[OpenSession], wanted: str) -> OpenSession:
    for one in found:
        if one.id == wanted and one.kind != "job":
            return one
    raise NotFound(f"there is no open session {wanted}", where="--end", hint="`shoal sessions` lists them")


def _told(found: list[OpenSession], *, ended: bool) -> None:
    from shoal.base.console import output

    if ended:
        for one in found:
            print(f"session {one.id} of {one.job_id} is asked to end")
        return
    if not found:
        print("no session is open")
        return
    rows = [
        [one.id, one.job_id, one.job, one.rank, one.who, one.kind, output.moment(one.since),
         output.duration(one.idle_s), one.clients, output.size(one.sent_bytes), output.size(one.received_bytes)]
        for one in found
    ]  # fmt: skip
    heads = ["session", "job", "name", "rank", "who", "kind", "since", "idle", "attached", "written", "typed"]
    output.put(output.table(heads, rows))
