"""`shoal upload`: a local file becomes an artifact."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import CommandContext, TenantOption, command
from shoal.base.console.panels import JOBS
from shoal.base.console.transfers import progress
from shoal.core import ShoalError

if TYPE_CHECKING:
    from shoal.results.methods import Transfer


def register(app: typer.Typer) -> None:
    command(app, "upload", rich_help_panel=JOBS, short_help="Keep a local file as an artifact")(upload)


def upload(
    context: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A local file.")],
    name: Annotated[str | None, typer.Option(help="What it is called.", show_default="the file's name")] = None,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Add it to this job.", show_default="none")] = None,
    tenant: TenantOption = None,
) -> None:
    """Keep a local file as an artifact, alone or beside those of a job. A cut link costs nothing that arrived: the same
    upload goes on where it was, for a day."""
    last: Transfer | None = None
    with context.client(patience_s=30.0) as client, progress() as tell:
        owner = client.job(job, tenant=tenant) if job is not None else None
        for step in client.artifacts.upload(
            file, name=name, job=owner.id if owner else None, tenant=owner.tenant if owner else tenant
        ):
            tell(step.path, step.size_bytes, step.done_bytes)
            last = step
    if last is None:
        raise ShoalError("nothing was sent", where=str(file))
    done = last

    def human() -> None:
        from shoal.base.console import output

        print(f"{done.target}  {output.size(done.size_bytes)}  sha256:{done.sha256}")

    context.show(asdict(done), human)
