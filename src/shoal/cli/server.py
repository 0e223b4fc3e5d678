"""The server once it is there: status, gc, settings, doctor, nodes, version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal import __version__
from shoal.base.console.command import FAILED, NO_SERVER, command
from shoal.base.console.panels import SERVER
from shoal.cli.context import CliContext
from shoal.core import Invalid, ShoalError

if TYPE_CHECKING:
    from shoal.contract.models import NodeView, SettingView
    from shoal.control.settings import Described


def register(app: typer.Typer) -> None:
    command(app, "status", rich_help_panel=SERVER, short_help="How the server is")(status)
    command(app, "gc", rich_help_panel=SERVER, short_help="Remove what is over and old")(collect_garbage)
    command(app, "settings", rich_help_panel=SERVER)(settings)
    command(app, "doctor", rich_help_panel=SERVER, short_help="What this machine offers to jobs, and what is missing")(
        doctor
    )
    command(app, "nodes", rich_help_panel=SERVER)(nodes)
    node = typer.Typer(help="Drain a node: no new work goes there, what runs goes on.", no_args_is_help=True)
    command(node, "drain")(drain)
    command(node, "undrain")(undrain)
    app.add_typer(node, name="node", rich_help_panel=SERVER)
    command(app, "version", rich_help_panel=SERVER)(version)


def settings(
    context: CliContext,
    config: Annotated[Path | None, typer.Option(help="Settings file.", show_default="HOME/config.yaml")] = None,
    server: Annotated[bool, typer.Option("--server", help="Those that the running server was started with.")] = False,
) -> None:
    """Every setting of a server: its name, its value here, and what it means. Needs no server without --server.

    A name is a key of the settings file, `--set NAME=VALUE` of `shoal up`, or SHOAL_NAME in the environment, with `__`
    for a dot: guard.enabled is SHOAL_GUARD__ENABLED.
    """
    from shoal.contract.view import View
    from shoal.control.settings import describe, load_settings

    rows: list[Described] | list[SettingView]
    if server:
        with context.client() as client:
            rows = client.settings().settings
    else:
        rows = describe(load_settings({"home": context.home}, config=config))

    def human() -> None:
        from shoal.base.console import output

        lines = [[row.name, _shown(row.value), row.text] for row in rows]
        output.put(output.table(["setting", "value", "what it means"], lines, drop=(), cut_middle=("value",)))

    context.show([one.model_dump() if isinstance(one, View) else asdict(one) for one in rows], human)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def status(
    context: CliContext,
    component: Annotated[str | None, typer.Argument(help="Show what this component has to tell.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the component's page to this file.")] = None,
) -> None:
    """How the server is. Exit code 4 when there is none.

    With the name of a component (`schedule`, `serve`, `market` ...): its figures and tables, and what may be done.
    """
    if component is not None:
        _component(context, component, html)
        return
    if html is not None:
        raise Invalid("a report is of one component", where="--html", hint="shoal status COMPONENT --html FILE")
    with context.client() as client:
        found = client.status()
    extra = found.model_extra or {}

    def human() -> None:
        from shoal.base.console import output

        counts = ", ".join(f"{count} {state}" for state, count in sorted(found.jobs.items())) or "none"
        simple = {key.replace("_", " "): value for key, value in extra.items() if not isinstance(value, list | dict)}
        if "uptime s" in simple:
            simple = {"uptime": output.duration(simple.pop("uptime s")), **simple}
        why = "no" if found.last_write_failed is None else f"no: {found.last_write_failed}"
        ready = output.styled("yes" if found.ready else why, "green" if found.ready else "red")
        output.facts({"version": found.version, "ready": ready, "jobs": counts, **simple})
        if found.components:
            from shoal.cli import pages

            print("\nComponents (more: shoal status NAME)")
            output.facts({name: pages.figures(told) for name, told in found.components.items()})
        _capabilities(extra.get("capabilities", ()))

    context.show(found, human)
    if not found.ready:
        raise typer.Exit(NO_SERVER)


def _component(context: CliContext, component: str, html: Path | None) -> None:
    from shoal.cli import pages

    with context.client() as client:
        page = client.page(component)
    if html is not None:
        from shoal.base.report import write_html

        write_html(pages.report_of(component, page), html)
        context.show({"written": str(html)}, lambda: print(f"written: {html}"))
        return
    context.show(page, lambda: pages.show(page))


def collect_garbage(
    context: CliContext,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be removed.")] = False,
) -> None:
    """Remove what is over and old, as the server does by itself every ten minutes (settings `keep.*`)."""
    with context.client() as client:
        found = client.collect_garbage(dry_run=dry_run)

    def human() -> None:
        from shoal.base.console import output

        output.facts(
            {
                "jobs": f"{len(found.jobs)}, with their logs, events and checkpoints",
                "run directories": f"{len(found.runs)} of jobs that stay",
                "kept outputs": f"of {len(found.artifacts)} jobs that stay",
                "bundles": len(found.bundles),
                "other events": found.events,
                "would be freed" if dry_run else "freed": output.size(found.freed_bytes),
                **({"cannot be removed": "; ".join(found.left)} if found.left else {}),
            }
        )

    context.show(found, human)


def _capabilities(found: Any) -> None:
    from shoal.base.console import output

    if not found:
        return
    print()
    for one in found:
        mark = output.styled("ok    " if one["available"] else "absent", "green" if one["available"] else "yellow")
        mark.append(f"  {one['name']}: {one['detail']}", style="default")
        if not one["available"] and one.get("consequence"):
            mark.append(f"\n        {one['consequence']}", style="dim")
        output.console().print(mark, soft_wrap=True)


def doctor(
    context: CliContext,
    engine: Annotated[str, typer.Option(help="Look at what this engine would use instead of this machine.")] = "local",
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting, as for `shoal up`.")
    ] = None,
    server: Annotated[bool, typer.Option("--server", help="Ask the running server for its own machine.")] = False,
) -> None:
    """What this machine, or an engine's cluster, offers to jobs, what is missing, and what that costs. The exit code is
    1 if no job can start. Needs no server without --server."""
    from shoal.control.doctor import examine

    if server:
        with context.client() as client:
            told = client.doctor()
        context.show(told, lambda: _capabilities([one.model_dump() for one in told.capabilities]))
        if not told.jobs_can_start:
            raise typer.Exit(FAILED)
        return
    home = context.folder().absolute()
    answer: dict[str, Any] = {"home": str(home)}
    slots = section = None
    if engine != "local":
        from shoal.control.settings import load_settings

        values = load_settings({"home": home, "engine": engine}, sets=sets or ()).values
        slots, section = values.slots, getattr(values, engine, None)
        answer["engine"] = engine
    found = examine(home, engine=engine, slots=slots, settings=section)
    stopped = any(one.stops_everything for one in found)
    answer |= {"jobs_can_start": not stopped, "capabilities": [asdict(one) for one in found]}
    context.show(answer, lambda: _capabilities(answer["capabilities"]))
    if stopped:
        raise typer.Exit(FAILED)


def nodes(context: CliContext) -> None:
    """Nodes, their devices, and which jobs hold them."""
    with context.client() as client:
        found = client.nodes()
    _show_nodes(context, found)


def drain(
    context: CliContext,
    name: Annotated[str, typer.Argument(help="As `shoal nodes` shows it.", metavar="NODE")],
    because: Annotated[str, typer.Option(help="Why, for those whose jobs wait.")] = "",
) -> None:
    """Give a node no new work until `shoal node undrain`. What runs there goes on (admin)."""
    with context.client() as client:
        found = client.drain_node(name, because=because)
    _show_nodes(context, found)


def undrain(
    context: CliContext, name: Annotated[str, typer.Argument(help="As `shoal nodes` shows it.", metavar="NODE")]
) -> None:
    """Give a drained node work again (admin)."""
    with context.client() as client:
        found = client.undrain_node(name)
    _show_nodes(context, found)


def _show_nodes(context: CliContext, found: Sequence[NodeView]) -> None:
    def human() -> None:
        from shoal.base.console import output
        from shoal.cli import views

        output.put(views.nodes(found))

    context.show({"nodes": found}, human)


def version(context: CliContext) -> None:
    """This program's version, and the server's where one answers."""
    answer: dict[str, str | None] = {"version": __version__, "server": None}
    try:
        with context.client(patience_s=0.0) as client:
            answer["server"] = client.status().version
    except ShoalError:
        pass
    server = f"server {answer['server']}" if answer["server"] else "no server answers"
    context.show(answer, lambda: print(f"shoal {__version__} ({server})"))
