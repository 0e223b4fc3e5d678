"""`shoal attach`."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.base.console.command import CommandContext, JobArgument, TenantOption, command
from shoal.base.console.panels import JOBS
from shoal.session.commands import common


def register(app: typer.Typer) -> None:
    command(app, "attach", rich_help_panel=JOBS, short_help="Be at a running job's terminal")(attach)


def attach(
    context: CommandContext,
    job: JobArgument,
    rank: Annotated[int, typer.Option(min=0, help="Which process of the gang.")] = 0,
    session: Annotated[
        str,
        typer.Option(metavar="SESSION", help="One of `shoal exec --pty` that goes on.", show_default="the job's own"),
    ] = common.MAIN,
    tenant: TenantOption = None,
) -> None:
    """Come back to the terminal of a job of `shoal run --pty`. It shows what was written last, at most 1 MiB.

    ~d at the beginning of a line detaches: the job goes on. Several may attach at once; all see the same, and all may
    type. The exit code is that of the job's command.
    """
    with context.client(patience_s=30.0) as client:
        found = client.job(job, tenant=tenant)
        if found.terminal:
            common.leave(common.finish(context, client, found.id, rank, 0, None))
            return
        if session == common.MAIN:
            common.leave(common.follow_main(context, client, found.id, rank, shared=True))
        else:
            common.leave(common.follow(context, client, found.id, rank, session, terminal=True, shared=True))
