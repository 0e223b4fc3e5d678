"""Virtual control planes: create, list, show, suspend, resume, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext, command

if TYPE_CHECKING:
    from shoal.tenancy.models import NewPlaneView, PlaneView

_PANEL = "Tenants"

NameArgument = Annotated[str, typer.Argument(metavar="PLANE", help="The plane's name.")]


def register(app: typer.Typer) -> None:
    plane = typer.Typer(help="Virtual control planes: every team a Shoal of its own.", no_args_is_help=True)
    command(plane, "create")(create)
    command(plane, "list")(list_planes)
    command(plane, "show")(show)
    command(plane, "suspend")(suspend)
    command(plane, "resume")(resume)
    command(plane, "delete")(delete)
    app.add_typer(plane, name="plane", rich_help_panel=_PANEL)


def create(
    context: CommandContext,
    name: NameArgument,
    tenant: Annotated[str, typer.Option(help="Whose quota and share its work counts against in the shared pool.")],
) -> None:
    """Make a control plane with names, tenants, tokens and an event log of its own.

    The token of its first admin is shown once. `SHOAL_URL` and `SHOAL_TOKEN` make any client talk to it.
    """
    with context.client() as client:
        made = client.planes.create(name, tenant=tenant)
    context.show(made, lambda: _made(made))


def _made(made: NewPlaneView) -> None:
    print(f"plane {made.name} is there; its work counts against tenant {made.tenant}")
    print(f"  export SHOAL_URL={made.url}")
    print(f"  export SHOAL_TOKEN={made.token}  (its admin's; it is shown this once)")


def list_planes(context: CommandContext) -> None:
    """All planes of this server."""
    with context.client() as client:
        found = client.planes.list()
    context.show(found, lambda: print("no planes") if not found.planes else _table(list(found.planes)))


def _table(planes: list[PlaneView]) -> None:
    from shoal.base.console import output

    rows = [[one.name, one.tenant, one.state.value, _awake(one), one.running, one.waiting, one.path] for one in planes]
    output.put(output.table(["plane", "tenant", "state", "", "running", "waiting", "path"], rows))


def _awake(plane: PlaneView) -> str:
    return "awake" if plane.awake else "asleep"


def show(context: CommandContext, name: NameArgument) -> None:
    """One plane, and what it has in the shared pool."""
    with context.client() as client:
        found = client.planes.get(name)
    context.show(found, lambda: _table([found]))


def suspend(context: CommandContext, name: NameArgument) -> None:
    """It answers no more and nothing new of it starts; what runs goes on."""
    _changed(context, "suspend", name)


def resume(context: CommandContext, name: NameArgument) -> None:
    """A suspended plane answers again."""
    _changed(context, "resume", name)


def _changed(context: CommandContext, what: str, name: str) -> None:
    with context.client() as client:
        found: Any = getattr(client.planes, what)(name)
    context.show(found, lambda: print(f"plane {name} is {found.state.value}"))


def delete(
    context: CommandContext,
    name: NameArgument,
    force: Annotated[bool, typer.Option("--force", help="Also end what it has in the shared pool.")] = False,
) -> None:
    """Delete a plane with all that it knows: jobs, logs, checkpoints, tokens."""
    with context.client() as client:
        client.planes.delete(name, force=force)
    context.show({"deleted": name}, lambda: print(f"plane {name} is deleted"))
