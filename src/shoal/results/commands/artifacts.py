"""`shoal artifacts`: what is kept of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import CommandContext, TenantOption, command
from shoal.base.console.panels import JOBS
from shoal.core import Invalid, NotFound

if TYPE_CHECKING:
    from shoal.results.models import ArtifactView

_SHOWN = 1000


def register(app: typer.Typer) -> None:
    command(app, "artifacts", rich_help_panel=JOBS, short_help="Files that are kept of jobs: list, pin, delete")(
        artifacts
    )


def artifacts(
    context: CommandContext,
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="Its id, a unique beginning of it, or its name.", show_default="all jobs"),
    ] = None,
    name: Annotated[str, typer.Argument(metavar="NAME", help="This one, or those below it.", show_default="all")] = "",
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Of this attempt.", show_default="of each name the newest")
    ] = None,
    uploads: Annotated[bool, typer.Option("--uploads", help="Only files that `shoal upload` sent alone.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete what would be listed and is not pinned.")] = False,
    pin: Annotated[
        bool | None, typer.Option("--pin/--unpin", help="Keep what is listed however old, or let it go.",
                                  show_default="as they are")
    ] = None,
    tenant: TenantOption = None,
) -> None:  # fmt: skip
    """Files that are kept of jobs, by their content, longer than the jobs' directories.

    A manifest names them by `artifacts:`, a training script by `shoal.train.artifact`, and `shoal upload` sends one.
    `shoal download JOB NAME` fetches them, `shoal deploy job:JOB/NAME` serves a model.
    """
    if delete and pin is not None:
        raise Invalid("one of --delete and --pin is meant", where="--delete")
    if (delete or pin is not None) and not (job and name) and not uploads:
        raise Invalid("which ones is not said", where="NAME", hint="`shoal artifacts JOB NAME`, or --uploads")
    with context.client() as client:
        page = client.artifacts.list(
            job, name=name or None, attempt=attempt, tenant=tenant, uploads=uploads, limit=_SHOWN
        )
        found: list[ArtifactView] = list(page.artifacts)
        if not found and (delete or pin is not None):
            raise NotFound("there is no such artifact", where=name or "--uploads", hint="`shoal artifacts` lists them")
        if delete:
            found = [client.artifacts.remove(one.id) for one in found if not one.pinned]
        elif pin is not None:
            found = [client.artifacts.pin(one.id, pinned=pin) for one in found]

    def human() -> None:
        from shoal.base.console import output

        if delete:
            print(f"{len(found)} deleted")
            return
        if not found:
            print("files are still being taken" if page.taking else "no artifacts")
            return
        rows = [
            [one.name, output.size(one.bytes), one.job_name or "", one.attempt or "", output.moment(one.taken_at),
             "pinned" if one.pinned else "", one.digest[:19]]
            for one in found
        ]  # fmt: skip
        output.put(output.table(["name", "size", "job", "attempt", "taken", "", "digest"], rows))
        if page.next is not None:
            context.note(f"these are the newest {len(found)}; name a job")
        if page.taking:
            context.note("more files are still being taken")
        if page.used_bytes is not None and page.allowed_bytes is not None and job is None:
            context.note(f"{output.size(page.used_bytes)} of {output.size(page.allowed_bytes)} are used")

    shown = page.model_copy(update={"artifacts": tuple(found)})
    context.show(shown, human)
