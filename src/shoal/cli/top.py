"""`shoal top`: the cluster at a glance: views by mouse and keys on a terminal, a plain picture elsewhere."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import command
from shoal.base.console.panels import SERVER
from shoal.cli.context import CliContext
from shoal.contract.lifecycle import ACTIVE, JobState

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shoal.sdk import Client
    from shoal.sdk.models import JobView, NodeView, TenantView

_SHOWN_JOBS = 200
_REDRAW_S = 0.25
_IDLE_TENANTS = 5


def register(app: typer.Typer) -> None:
    command(app, "top", rich_help_panel=SERVER)(top)


@dataclass(frozen=True, slots=True)
class Picture:
    jobs: list[JobView]
    nodes: list[NodeView]
    tenants: list[TenantView]

    def plain(self) -> dict[str, Any]:
        return {"at": time.time(), "jobs": self.jobs, "nodes": self.nodes, "tenants": self.tenants}


def top(
    context: CliContext,
    once: Annotated[bool, typer.Option("--once", help="One picture, then leave.")] = False,
    every: Annotated[float, typer.Option(min=0.25, help="Redraw at least so often, in seconds.")] = 1.0,
    plain: Annotated[bool, typer.Option("--plain", help="One picture that redraws itself, without keys.")] = False,
) -> None:
    """Live view of jobs, services, nodes, tenants and events. The extra `top` brings it. Keys: 1 to 5 choose the view,
    Enter opens a job, / filters, c, s and r cancel, suspend and resume the job, q leaves.

    In a pipe, with --plain, or without the extra: one picture that redraws itself; Ctrl-C leaves. With --json one line
    per picture.
    """
    if not once and not context.json and not plain and _has_screen():
        from shoal.cli.screen import TopApp

        with context.client(patience_s=0.0) as client:  # it says itself when the server is away
            TopApp(client, every).run()
        return
    with context.client(patience_s=30.0) as client:
        if once:
            picture = _look(client)
            context.show(picture.plain(), lambda: _print(picture))
        elif context.json:
            for picture in _pictures(client, every):
                context.line(picture.plain(), lambda: None)
        else:
            _live(client, every)


def _has_screen() -> bool:
    """Whether this is a terminal with keys, and the library for it is there."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return terminal and find_spec("textual") is not None


def _live(client: Client, every: float) -> None:
    from rich.live import Live

    from shoal.base.console import output

    with Live(console=output.console(), screen=output.console().is_terminal, auto_refresh=False) as live:
        for picture in _pictures(client, every):
            live.update(_drawn(picture), refresh=True)


def _pictures(client: Client, every: float) -> Any:
    """One at once, then one after each burst of events, and at least one every so often."""
    position = client.event_page(limit=0).next
    while True:
        yield _look(client)
        began = time.monotonic()
        position = client.event_page(after=position, limit=1, wait_s=every).next
        position = max(position, client.event_page(limit=0).next)
        time.sleep(max(0.0, _REDRAW_S - (time.monotonic() - began)))


def _look(client: Client) -> Picture:
    live = client.jobs(state=[*ACTIVE, JobState.QUEUED, JobState.SUSPENDED], limit=_SHOWN_JOBS, owned=True).jobs
    return Picture(live, client.nodes(), client.tenants())


def _print(picture: Picture) -> None:
    from shoal.base.console import output

    output.put(_drawn(picture))


def _drawn(picture: Picture) -> RenderableType:
    from rich.console import Group

    from shoal.base.console import output
    from shoal.cli import views

    order = {state: position for position, state in enumerate((*sorted(ACTIVE), JobState.QUEUED, JobState.SUSPENDED))}
    jobs = sorted(picture.jobs, key=lambda job: (order[job.state], job.submitted_at))
    running = sum(job.state.active for job in jobs)
    waiting = sum(job.state is JobState.QUEUED for job in jobs)
    devices = [device for node in picture.nodes for device in node.devices]
    busy = sum(not device.free for device in devices)
    head = output.styled(
        f"{time.strftime('%H:%M:%S')}  {running} running, {waiting} waiting, {busy}/{len(devices)} devices busy", "bold"
    )
    return Group(head, "", views.nodes(picture.nodes), "", _shares(picture.tenants), "", views.jobs(jobs))


def _shares(tenants: list[TenantView]) -> RenderableType:
    """Each tenant's part of what is held now, beside the part that its weight would give it among those present."""
    from shoal.base.console import output

    held = {one.name: sum(one.used.accelerators.values()) or one.used.cpu_milli / 1000 for one in tenants}
    present = [one for one in tenants if held[one.name] or one.jobs.get("QUEUED", 0)]
    total, weights = sum(held.values()), sum(one.weight for one in present)
    rows = []
    for one in present or tenants[:_IDLE_TENANTS]:
        share = held[one.name] / total if total else 0.0
        due = f"{one.weight / weights:.0%}" if one in present and weights else "-"
        bar = output.styled("█" * round(share * 20) + "·" * (20 - round(share * 20)), "cyan")
        rows.append(
            [one.name, bar, f"{share:.0%}", due, one.running_jobs, one.jobs.get("QUEUED", 0), output.needs(one.used)]
        )
    return output.table(["tenant", "share", "now", "due", "running", "queued", "holds"], rows)
