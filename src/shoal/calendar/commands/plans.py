"""`shoal calendar`: what is planned, and maintenance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import CommandContext, command
from shoal.base.console.panels import SERVER
from shoal.calendar.commands.words import (
    FromOption,
    LastOption,
    NameArgument,
    NodesOption,
    RepeatOption,
    UntilOption,
    ZoneOption,
    put,
    what,
    when,
)
from shoal.calendar.windows import Repeat
from shoal.core import Invalid

if TYPE_CHECKING:
    from shoal.calendar.models import PlanView


def register(app: typer.Typer) -> None:
    calendar = typer.Typer(help="What nodes are planned for: reservations, maintenance.", no_args_is_help=True)
    command(calendar, "list")(list_plans)
    command(calendar, "maintenance")(maintenance)
    command(calendar, "remove")(remove)
    app.add_typer(calendar, name="calendar", rich_help_panel=SERVER)


def list_plans(context: CommandContext) -> None:
    """Reservations and maintenance, by the time of the next one. Those of other tenants have no name."""
    with context.client() as client:
        found = client.calendar.list()
    context.show(found, lambda: _table(found.plans) if found.plans else print("nothing is planned"))


def _table(plans: tuple[PlanView, ...]) -> None:
    from shoal.base.console import output

    rows = [
        [one.name or "-", one.tenant or "-", what(one), when(one), one.because] for one in plans
    ]  # fmt: skip
    output.put(output.table(["plan", "tenant", "what", "when", "because"], rows))


def maintenance(
    context: CommandContext,
    name: NameArgument,
    begin: FromOption,
    end: UntilOption,
    nodes: NodesOption = "",
    all_nodes: Annotated[bool, typer.Option("--all", help="All nodes.")] = False,
    repeat: RepeatOption = Repeat.NEVER,
    last: LastOption = None,
    zone: ZoneOption = None,
    because: Annotated[str, typer.Option(help="Why, for people.")] = "",
) -> None:
    """Plan a time at which nothing runs on a node, or on all (admin).

    No job starts there that would still run then. What is there is asked to leave in time, and waits.
    """
    if all_nodes == bool(nodes):
        raise Invalid("it must be said which nodes", where="--nodes", hint="--nodes n1,n2, or --all")
    put(
        context, name, begin=begin, end=end, tenant=None, accelerators=None, nodes=nodes, repeat=repeat, last=last,
        zone=zone, because=because,
    )  # fmt: skip


def remove(context: CommandContext, name: NameArgument) -> None:
    """A reservation or maintenance is no more (admin)."""
    with context.client() as client:
        client.calendar.remove(name)
    context.show({"removed": name}, lambda: print(f"{name} is removed"))
