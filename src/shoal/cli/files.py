"""Files of jobs: ls, download."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import JobArgument, TenantOption, command
from shoal.base.console.panels import JOBS
from shoal.cli.context import CliContext
from shoal.core import NotFound

if TYPE_CHECKING:
    from shoal.sdk.models import Download, FileView

_PAGE = 10_000

PathArgument = Annotated[
    str, typer.Argument(metavar="PATH", help="In the job's run directory.", show_default="all of it")
]
AttemptOption = Annotated[
    int | None,
    typer.Option(min=1, help="Of this attempt's run directory.", show_default="the newest, and the outputs kept"),
]


def register(app: typer.Typer) -> None:
    command(app, "ls", rich_help_panel=JOBS)(ls)
    command(app, "download", rich_help_panel=JOBS)(download)


def ls(
    context: CliContext,
    job: JobArgument,
    path: PathArgument = "",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="What lies in directories as well.")] = False,
    attempt: AttemptOption = None,
    tenant: TenantOption = None,
) -> None:
    """List a job's files: its run directory, and the outputs that the server kept."""
    found: list[FileView] = []
    after = None
    with context.client() as client:
        while True:
            page = client.files(
                job, path, tenant=tenant, attempt=attempt, recursive=recursive, after=after, limit=_PAGE
            )
            found += page.files
            after = page.next
            if after is None:
                break

    def human() -> None:
        from shoal.base.console import output
        from shoal.cli.terminal import harmless

        if not found:
            print("no files")
            return
        rows = [
            [
                output.size(one.size_bytes) if one.kind == "file" else one.kind,
                output.moment(one.modified_at),
                "kept" if one.kept else "-",
                harmless(one.path),
            ]
            for one in found
        ]
        output.put(output.table(["size", "modified", "output", "path"], rows))

    context.show({"files": found}, human)


def download(
    context: CliContext,
    job: JobArgument,
    path: PathArgument = "",
    to: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Into this directory.", show_default="a new one of the job's name"),
    ] = None,
    attempt: AttemptOption = None,
    tenant: TenantOption = None,
) -> None:
    """Bring a job's files here: all of them, a directory, or one file, which goes into this directory. What is there by
    the same name is replaced, once the new file is whole. An interrupted download goes on where it was. Links are left
    out."""
    done: list[Download] = []
    with context.client(patience_s=30.0) as client, _progress() as tell:
        for step in client.download(job, path, to=to, tenant=tenant, attempt=attempt):
            tell(step)
            if step.sha256 is not None:
                done.append(step)
    if not done:
        raise NotFound("there is no file to download", where=path or job, hint=f"`shoal ls {job}`")

    def human() -> None:
        from shoal.base.console import output
        from shoal.cli.terminal import harmless

        where = harmless(done[0].target) if len(done) == 1 else f"{len(done)} files"
        print(f"{where}  {output.size(sum(one.size_bytes for one in done))}")

    context.show({"files": [asdict(one) for one in done]}, human)


@contextmanager
def _progress() -> Iterator[Callable[[Download], None]]:
    """A bar for the present file on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from shoal.cli.terminal import harmless

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda step: bar.update(
            task, description=harmless(step.path), total=step.size_bytes, completed=step.done_bytes
        )
