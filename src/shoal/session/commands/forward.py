"""`shoal forward`."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.base.console.command import CommandContext, JobArgument, TenantOption, command
from shoal.base.console.panels import JOBS
from shoal.core import Invalid
from shoal.session.client import ports
from shoal.session.commands import common


def register(app: typer.Typer) -> None:
    command(app, "forward", rich_help_panel=JOBS, short_help="Reach a port of a running job from here")(forward)


def forward(
    context: CommandContext,
    job: JobArgument,
    ports_given: Annotated[
        list[str], typer.Argument(metavar="PORT[:LOCAL]", help="The job's port, and this machine's: 8888 or 8888:9000.")
    ],
    rank: Annotated[int, typer.Option(min=0, help="Which process of the gang.")] = 0,
    bind: Annotated[str, typer.Option(help="The address of this machine to listen at.")] = "127.0.0.1",
    tenant: TenantOption = None,
) -> None:
    """Listen here, and pass each connection on to the port that the job listens on. Ctrl-C ends it.

    Only what a process of the job listens on is reached: no port of the server's, of another job, or of the machine.
    LOCAL 0 takes any free port.
    """
    wanted = [_read(text) for text in ports_given]
    with context.client(patience_s=30.0) as client:
        found = common.find_running(client, job, tenant)

        def show(remote: int, local: int) -> None:
            told = {"job": found.id, "port": remote, "address": bind, "local": local}
            context.line(told, lambda: print(f"{bind}:{local} is port {remote} of {found.id}", flush=True))

        ports.forward(client.locate, found.id, rank, bind, wanted, show=show, note=context.note)


def _read(text: str) -> tuple[int, int]:
    remote, colon, local = text.partition(":")
    numbers = [remote, local if colon else remote]
    if not all(one.isascii() and one.isdigit() and len(one) <= 5 and int(one) <= 65535 for one in numbers):
        raise Invalid(f"{text!r} is no port", where="PORT", hint="8888, or 8888:9000 for port 9000 here")
    if not int(remote):
        raise Invalid("the job's port is 1 to 65535", where="PORT")
    return int(remote), int(numbers[1])
