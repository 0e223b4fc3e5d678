"""Virtual control planes: made, looked at, suspended, copied and deleted."""

from __future__ import annotations

import os
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext, command
from shoal.base.console.panels import TENANTS
from shoal.contract import times
from shoal.core import Invalid

if TYPE_CHECKING:
    from shoal.tenancy.models import AuditEntry, NewPlaneView, PlaneView, UsageView


NameArgument = Annotated[str, typer.Argument(metavar="PLANE", help="The plane's name.")]


def register(app: typer.Typer) -> None:
    plane = typer.Typer(help="Virtual control planes: every team a Shoal of its own.", no_args_is_help=True)
    command(plane, "create")(create)
    command(plane, "list")(list_planes)
    command(plane, "show")(show)
    command(plane, "suspend")(suspend)
    command(plane, "resume")(resume)
    command(plane, "token")(token)
    command(plane, "delete")(delete)
    command(plane, "usage")(usage)
    command(plane, "audit")(audit)
    command(plane, "backup")(backup)
    command(plane, "restore")(restore)
    command(plane, "export")(backup)
    command(plane, "import")(bring)
    app.add_typer(plane, name="plane", rich_help_panel=TENANTS)


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
    _exports(made)


def _exports(made: NewPlaneView) -> None:
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


def token(context: CommandContext, name: NameArgument) -> None:
    """Make a token for another admin of a plane, for one whose token was lost. Earlier tokens go on to count."""
    with context.client() as client:
        made = client.planes.token(name)
    context.show(made, lambda: _exports(made))


def delete(
    context: CommandContext,
    name: NameArgument,
    force: Annotated[bool, typer.Option("--force", help="Also end what it has in the shared pool.")] = False,
) -> None:
    """Delete a plane with all that it knows: jobs, logs, checkpoints, tokens."""
    with context.client() as client:
        client.planes.delete(name, force=force)
    context.show({"deleted": name}, lambda: print(f"plane {name} is deleted"))


SinceOption = Annotated[str | None, typer.Option(metavar="DURATION|TIME", help="Since then: 7d, 2026-11-01.")]


def usage(
    context: CommandContext,
    names: Annotated[list[str] | None, typer.Argument(metavar="PLANE", help="Which; all if none is named.")] = None,
    since: SinceOption = None,
    price: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=DOLLARS", help="What an hour of an accelerator costs: a100=2.48.")
    ] = None,
) -> None:
    """What planes used of the shared pool: hours of accelerators, cores and memory.

    Of jobs submitted since then that the server still keeps. A device that a job shares counts whole.
    """
    prices = _prices(price or [])
    begin = 0.0 if since is None else times.since(since)
    with context.client() as client:
        chosen = names or [one.name for one in client.planes.list().planes]
        found = [client.planes.usage(name, since=begin) for name in chosen]
    rows = [{**one.model_dump(mode="json"), **({"dollars": _cost(one, prices)} if prices else {})} for one in found]
    context.show(rows, lambda: _used(rows) if rows else print("no planes"))


def _prices(given: list[str]) -> dict[str, float]:
    prices = {}
    for one in given:
        kind, _, amount = one.partition("=")
        try:
            prices[kind] = float(amount)
        except ValueError:
            raise Invalid(f"{one!r} is no price", where="--price", hint="such as a100=2.48") from None
    return prices


def _cost(used: UsageView, prices: dict[str, float]) -> float:
    """Of the types that have a price; raises Invalid where one was used that has none."""
    if without := used.accelerator_hours.keys() - prices.keys():
        first = min(without)
        raise Invalid(
            f"plane {used.plane} used {first}, which has no price", where="--price", hint=f"--price {first}=0"
        )
    return sum(hours * prices[kind] for kind, hours in used.accelerator_hours.items())


def _used(used: list[dict[str, Any]]) -> None:
    from shoal.base.console import output

    kinds = sorted({kind for one in used for kind in one["accelerator_hours"]})
    priced = "dollars" in used[0]
    rows = []
    for one in used:
        hours = [one["accelerator_hours"].get(kind, 0.0) for kind in kinds]
        figures = [*hours, one["core_hours"], one["memory_gib_hours"], *([one["dollars"]] if priced else [])]
        rows.append([one["plane"], one["tenant"], one["jobs"], *(f"{figure:.2f}" for figure in figures)])
    heads = [*(f"{kind} h" for kind in kinds), "core h", "GiB h", *(["$"] if priced else [])]
    output.put(output.table(["plane", "tenant", "jobs", *heads], rows))


def audit(
    context: CommandContext,
    name: NameArgument,
    since: SinceOption = None,
) -> None:
    """Who did what in a plane: its admin and its tenants. With --json one line for each, to be kept elsewhere.

    What the plane did by itself is left out, and so is what jobs run and report.
    """
    begin, after = 0.0 if since is None else times.since(since), 0
    with context.client() as client:
        while True:
            page = client.planes.audit(name, after=after)
            for one in page.entries:
                if one.at >= begin:
                    context.line(one, partial(print, _entry(one)))
            if page.next is None:
                return
            after = page.next


def _entry(one: AuditEntry) -> str:
    when = f"{datetime.fromtimestamp(one.at):%Y-%m-%d %H:%M:%S}"
    about = " ".join(part for part in (one.tenant, one.job_id, one.state) if part)
    return f"{when}  {one.actor}  {one.kind}  {about}".rstrip()


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
