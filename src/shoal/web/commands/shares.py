"""`shoal shares`: what tenants were due and received."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import CommandContext, command
from shoal.base.console.panels import TENANTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.web.models import ShareSample


def register(app: typer.Typer) -> None:
    command(app, "shares", rich_help_panel=TENANTS, short_help="Share due and received of each tenant, over time")(
        shares
    )


def shares(
    context: CommandContext,
    tenant: Annotated[
        str | None, typer.Argument(metavar="TENANT", help="Only this one.", show_default="those with the greatest")
    ] = None,
) -> None:
    """What tenants were due of the accelerators by their weights, and what they held: now, in the last hour, in the
    last day. A tenant that neither holds any nor waits is due nothing."""
    with context.client() as client:
        found = client.web.shares(tenant=tenant)

    def human() -> None:
        from shoal.base.console import output

        rows = []
        for name, samples in found.tenants.items():
            last = samples[-1].at
            spans = [[samples[-1]], [one for one in samples if one.at > last - 3600.0], samples]
            rows.append([name, *(_told(one) for one in spans)])
        output.put(output.table(["tenant", "now: due, has", "hour", "day"], rows) if rows else "no samples yet")

    context.show(found, human)


def _told(samples: Sequence[ShareSample]) -> str:
    due = sum(one.due for one in samples) / len(samples)
    received = sum(one.received for one in samples) / len(samples)
    return f"{due:.0%}, {received:.0%}"
