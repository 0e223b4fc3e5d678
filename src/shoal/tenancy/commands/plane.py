"""Virtual control planes: create, list, show, suspend, resume, delete, backup, restore, export, import."""

from __future__ import annotations

import os
from pathlib import Path
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
    command(plane, "backup")(backup)
    command(plane, "restore")(restore)
    command(plane, "export")(backup)
    command(plane, "import")(bring)
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


def backup(
    context: CommandContext,
    name: NameArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; it must not exist.", dir_okay=False)],
) -> None:
    """Copy all that a plane knows into one file, while it is in use or not.

    `shoal plane restore` and `shoal plane import` take it, and so does `shoal restore FILE` for a server of its own.
    Keep it private: it holds the key that opens the plane's secrets. Logs and checkpoints are not in it.
    """
    with context.client() as client:
        content = client.planes.backup(name)
    with open(file, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as target:
        target.write(content)
    context.show({"file": str(file), "bytes": len(content)}, lambda: print(f"{file}: {len(content)} bytes"))


FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.", exists=True, dir_okay=False)]


def restore(context: CommandContext, name: NameArgument, file: FileArgument) -> None:
    """Put a backup in the place of what a plane knows, which is moved aside in its folder.

    What the plane has handed over since the backup is ended. What ended since is not run again.
    """
    with context.client() as client:
        found = client.planes.restore(name, file.read_bytes())
    context.show(found, lambda: print(f"plane {name} is as the backup has it"))


def bring(
    context: CommandContext,
    name: NameArgument,
    file: FileArgument,
    tenant: Annotated[str, typer.Option(help="Whose quota and share its work counts against in the shared pool.")],
) -> None:
    """Make a plane that goes on from the backup of a plane, or of a server (`shoal backup`).

    What waited there waits here; what ran there counts as lost, and is tried again as its manifest says.
    """
    with context.client() as client:
        made = client.planes.bring(name, file.read_bytes(), tenant=tenant)
    context.show(made, lambda: _made(made))
