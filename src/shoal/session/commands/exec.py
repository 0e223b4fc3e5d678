"""`shoal exec`."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from shoal.base.console.command import CommandContext, JobArgument, TenantOption, command
from shoal.base.console.panels import JOBS
from shoal.core import Invalid
from shoal.session.commands import common
from shoal.session.commands.line import WithLine


def register(app: typer.Typer) -> None:
    command(
        app, "exec", rich_help_panel=JOBS, short_help="Run a command in a running job", cls=WithLine
    )(execute)  # fmt: skip


def execute(
    context: CommandContext,
    job: JobArgument,
    rank: Annotated[int, typer.Option(min=0, help="Beside which process of the gang.")] = 0,
    pty: Annotated[bool, typer.Option("--pty", "-t", help="At a terminal, as for a shell.")] = False,
    tenant: TenantOption = None,
    line: Annotated[list[str] | None, typer.Option(hidden=True, help="The command line.")] = None,
) -> None:
    """Run a command beside a running job's own, with its rights, limits, sandbox, directory and environment.

    Standard input, output and errors are this command's, and so is the exit code. It ends with the job at the latest.
    With --pty it has a terminal, and ~d at the beginning of a line leaves it running there.
    """
    if not line:
        raise Invalid("there is no command", where="COMMAND", hint="`shoal exec JOB -- COMMAND...`")
    with context.client(patience_s=30.0) as client:
        found = common.find_running(client, job, tenant)
        common.leave(run(context, client, found.id, rank, line, terminal=pty))


def run(
    context: CommandContext, client: Any, job_id: str, rank: int, line: list[str], *, terminal: bool
) -> int:  # fmt: skip
    env = {"TERM": os.environ.get("TERM", "xterm-256color")} if terminal else {}
    session = client.session.execute(job_id, line, rank=rank, terminal=terminal, env=env)
    return common.follow(context, client, job_id, rank, session.id, terminal=terminal)
