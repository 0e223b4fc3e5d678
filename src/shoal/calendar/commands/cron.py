"""`shoal cron`: jobs that are submitted again and again, at times of the wall clock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import CommandContext, TenantOption, command
from shoal.base.console.files import read_input
from shoal.base.console.panels import JOBS
from shoal.calendar.schedule import Missed, Overlap, shown_at

if TYPE_CHECKING:
    from shoal.calendar.models import CronDetail, CronView, FiredView

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The cron job's name.")]


def register(app: typer.Typer) -> None:
    cron = typer.Typer(help="Jobs that are submitted at times of the wall clock.", no_args_is_help=True)
    command(cron, "add")(add)
    command(cron, "list")(list_crons)
    command(cron, "show")(show)
    command(cron, "suspend")(suspend)
    command(cron, "resume")(resume)
    command(cron, "run-now")(run_now)
    command(cron, "remove")(remove)
    app.add_typer(cron, name="cron", rich_help_panel=JOBS)


def add(
    context: CommandContext,
    name: NameArgument,
    at: Annotated[
        str, typer.Option(metavar="EXPRESSION", help="Minute, hour, day, month, day of the week: '0 3 * * 1-5'.")
    ],
    file: Annotated[
        Path, typer.Option("--file", "-f", metavar="FILE", help="The job's manifest; - reads stdin.", allow_dash=True)
    ],
    zone: Annotated[
        str | None, typer.Option(help="Whose wall clock, such as Europe/Berlin; left out: the setting calendar.zone.")
    ] = None,
    overlap: Annotated[
        Overlap,
        typer.Option(help="While the job before is not over: leave the time out, let its job wait, or cancel it."),
    ] = Overlap.SKIP,
    missed: Annotated[
        Missed, typer.Option(help="After times at which no server ran: one job for all of them, or none.")
    ] = Missed.RUN_ONCE,
    replace: Annotated[bool, typer.Option("--replace", help="Change the cron job of this name.")] = False,
    tenant: TenantOption = None,
) -> None:  # fmt: skip
    """Submit a job again and again. Each is an ordinary job of its tenant, submitted exactly once for its time.

    The same command again changes nothing. A time that the wall clock skips, or shows twice, gets one job.
    """
    text, _ = read_input(file)
    base = None if str(file) == "-" else file.absolute().parent
    with context.client() as client:
        made: CronView = client.crons.add(
            name, text, at=at, zone=zone, overlap=overlap, missed=missed, replace=replace, tenant=tenant, base=base
        )
    context.show(made, lambda: print(f"cron {made.name} ({made.tenant}): {_next(made)}"))


def _next(cron: CronView) -> str:
    if cron.suspended:
        return "suspended"
    return "no time to come" if cron.next_at is None else f"next {shown_at(cron.next_at, cron.zone)}"


def list_crons(context: CommandContext, tenant: TenantOption = None) -> None:
    """Cron jobs, with the next time of each."""
    with context.client() as client:
        found = client.crons.list(tenant=tenant)
    context.show(found, lambda: _table(found.crons) if found.crons else print("no cron jobs"))


def _table(crons: tuple[CronView, ...]) -> None:
    from shoal.base.console import output

    columns = ["cron", "tenant", "at", "zone", "next", "last job", "trouble"]
    rows = [
        [one.name, one.tenant, one.at, one.zone, _next(one).removeprefix("next "), one.last_job or "-", one.trouble]
        for one in crons
    ]
    output.put(output.table(columns, rows))


def show(context: CommandContext, name: NameArgument, tenant: TenantOption = None) -> None:
    """One cron job: its coming times, and what happened lately."""
    with context.client() as client:
        found: CronDetail = client.crons.get(name, tenant=tenant)
    context.show(found, lambda: _detail(found))


def _detail(found: CronDetail) -> None:
    from shoal.base.console import output

    output.facts(
        {
            "cron": found.name,
            "tenant": found.tenant,
            "at": f"{found.at} ({found.zone})",
            "overlap": found.overlap.value,
            "missed": found.missed.value,
            "state": "suspended" if found.suspended else "active",
            "coming": ", ".join(shown_at(at, found.zone) for at in found.coming) or None,
            "last job": found.last_job,
            "trouble": found.trouble or None,
        }
    )
    for one in found.history:
        print(f"  {output.moment(one.at)}  {one.text}")


def suspend(context: CommandContext, name: NameArgument, tenant: TenantOption = None) -> None:
    """Its times get no jobs until it is resumed. Jobs that are there go on."""
    with context.client() as client:
        found: CronView = client.crons.suspend(name, tenant=tenant)
    context.show(found, lambda: print(f"cron {found.name}: {_next(found)}"))


def resume(context: CommandContext, name: NameArgument, tenant: TenantOption = None) -> None:
    """It goes on with its next time. Those that passed meanwhile get no jobs."""
    with context.client() as client:
        found: CronView = client.crons.resume(name, tenant=tenant)
    context.show(found, lambda: print(f"cron {found.name}: {_next(found)}"))


def run_now(
    context: CommandContext,
    name: NameArgument,
    tenant: TenantOption = None,
    key: Annotated[str | None, typer.Option("--key", help="The same key twice is one job.")] = None,
) -> None:
    """Submit its job now, beside those of its times."""
    with context.client() as client:
        made: FiredView = client.crons.run(name, tenant=tenant, key=key)
    context.show(made, lambda: print(made.job))


def remove(context: CommandContext, name: NameArgument, tenant: TenantOption = None) -> None:
    """No more jobs are submitted. Those that are there stay as they are."""
    with context.client() as client:
        client.crons.remove(name, tenant=tenant)
    context.show({"removed": name}, lambda: print(f"cron {name} is removed"))
