"""Files of jobs: ls, download."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import JobArgument, TenantOption, command
from shoal.base.console.panels import JOBS
from shoal.base.console.transfers import progress
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
    """Bring a job's files here: all of them, a directory, or one file, which goes into this directory.

    A path that is the name of an artifact means the artifact. What is there by the same name is replaced, once the new
    file is whole. An interrupted download goes on where it was. Links are left out."""
    from shoal.cli.terminal import harmless

    done: list[Download] = []
    with context.client(patience_s=30.0) as client, progress() as tell:
        for step in _steps(client, job, path, to, tenant, attempt):
            tell(harmless(step.path), step.size_bytes, step.done_bytes)
            if step.sha256 is not None:
                done.append(step)
    if not done:
        raise NotFound("there is no file to download", where=path or job, hint=f"`shoal ls {job}`")

    def human() -> None:
        from shoal.base.console import output

        where = harmless(done[0].target) if len(done) == 1 else f"{len(done)} files"
        print(f"{where}  {output.size(sum(one.size_bytes for one in done))}")

    context.show({"files": [asdict(one) for one in done]}, human)


def _steps(
    client: Any, job: str, path: str, to: Path | None, tenant: str | None, attempt: int | None
) -> Iterator[Download]:
    """An artifact of this name, else a file of the job's directory: an artifact is whole, and stays what it is."""
    artifacts = getattr(client, "artifacts", None)
    with suppress(NotFound):  # artifacts are off there
        if path and artifacts is not None and artifacts.find(job, path, attempt=attempt, tenant=tenant):
            yield from artifacts.download(job, path, to=to, tenant=tenant, attempt=attempt)
            return
    yield from client.download(job, path, to=to, tenant=tenant, attempt=attempt)
