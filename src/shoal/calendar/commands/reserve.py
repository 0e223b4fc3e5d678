"""`shoal reserve`: devices for a tenant at a time."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.base.console.command import CommandContext, command
from shoal.base.console.panels import TENANTS
from shoal.calendar.commands.words import (
    FromOption,
    LastOption,
    NameArgument,
    NodesOption,
    RepeatOption,
    UntilOption,
    ZoneOption,
    put,
)
from shoal.calendar.windows import Repeat


def register(app: typer.Typer) -> None:
    command(app, "reserve", rich_help_panel=TENANTS, short_help="Keep devices free for a tenant at a time")(reserve)


def reserve(
    context: CommandContext,
    name: NameArgument,
    begin: FromOption,
    end: UntilOption,
    tenant: Annotated[str, typer.Option("--tenant", "-t", help="For whom.")],
    accelerators: Annotated[
        str | None, typer.Option(metavar="[TYPE:]N", help="How many devices: 2, or a100:2; left out: whole nodes.")
    ] = None,
    nodes: NodesOption = "",
    repeat: RepeatOption = Repeat.NEVER,
    last: LastOption = None,
    zone: ZoneOption = None,
    because: Annotated[str, typer.Option(help="Why, for people.")] = "",
) -> None:
    """Keep devices free for a tenant at a time (admin).

    A job of others that would still run then starts elsewhere, or waits. One without a time limit is asked to leave
    in time. `shoal calendar list` shows what is planned, `shoal calendar remove NAME` ends it.
    """
    put(
        context, name, begin=begin, end=end, tenant=tenant, accelerators=accelerators, nodes=nodes, repeat=repeat,
        last=last, zone=zone, because=because,
    )  # fmt: skip
