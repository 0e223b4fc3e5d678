"""`shoal environments`: what was made for jobs to run with, and its removal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import CommandContext, TenantOption, command
from shoal.base.console.panels import JOBS

if TYPE_CHECKING:
    from shoal.environment.models import EnvironmentView


def register(app: typer.Typer) -> None:
    command(app, "environments", rich_help_panel=JOBS, short_help="What was made for jobs to run with")(environments)


def environments(
    context: CommandContext,
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Remove this one: its key, or a beginning. No job may run with it."),
    ] = None,
    tenant: TenantOption = None,
) -> None:
    """Environments of lock files, and images, that were made for jobs: each once, and kept for the next job that names
    the same. What was not used for the longest time makes room for others by itself.
    """
    with context.client() as client:
        if not remove:
            found = list(client.environments.list(tenant=tenant).environments)
        else:
            found = [
                one for key in remove for one in client.environments.remove(key, tenant=tenant).environments
            ]  # fmt: skip
    context.show(found, lambda: _told(found, removed=bool(remove)))


def _told(found: list[EnvironmentView], *, removed: bool) -> None:
    from shoal.base.console import output

    if removed:
        for one in found:
            print(f"removed {one.kind} {one.key} of {one.tenant} ({output.size(one.bytes)})")
        return
    if not found:
        print("nothing was made for jobs yet")
        return
    rows = [
        [one.key[:12], one.kind, one.tenant, output.size(one.bytes), one.files, output.moment(one.used_at),
         "yes" if one.used else "", one.source]
        for one in found
    ]  # fmt: skip
    output.put(output.table(["key", "kind", "tenant", "size", "files", "last used", "in use", "made from"], rows))
