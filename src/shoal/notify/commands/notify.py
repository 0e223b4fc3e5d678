"""`shoal notify`: who is told what, trial messages, and what became of deliveries."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import FAILED, CommandContext, TenantOption, command
from shoal.base.console.files import read_input
from shoal.base.console.panels import JOBS
from shoal.core import Invalid
from shoal.notify.records import ABOUT, State

if TYPE_CHECKING:
    from shoal.notify.models import DeliveryView, SubscriptionView

_WAIT_S = 60.0
_ASK_S = 0.2

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The subscription's name.")]
DeliveryArgument = Annotated[str, typer.Argument(metavar="DELIVERY", help="Its id, as `deliveries` lists it.")]
EveryoneOption = Annotated[bool, typer.Option("--everyone", help="News of all tenants and of the nodes (admin).")]


def register(app: typer.Typer) -> None:
    notify = typer.Typer(
        help="News by mail, webhook or Slack: how jobs end, wait too long, fail, and more.", no_args_is_help=True
    )
    command(notify, "add")(add)
    command(notify, "list")(list_subscriptions)
    command(notify, "remove")(remove)
    command(notify, "test")(trial)
    command(notify, "deliveries")(deliveries)
    command(notify, "retry")(retry)
    app.add_typer(notify, name="notify", rich_help_panel=JOBS, short_help="News by mail, webhook or Slack")


def add(
    context: CommandContext,
    name: NameArgument,
    mail: Annotated[str | None, typer.Option(metavar="ADDRESS", help="To this mail address.")] = None,
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="By signed requests to this URL; - reads it from stdin.")
    ] = None,
    slack: Annotated[
        str | None,
        typer.Option(metavar="URL", help="To an incoming webhook of Slack, or of one like it; - reads it from stdin."),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help=f"Of what; may be repeated: {', '.join(ABOUT)}.", show_default="ended"),
    ] = None,
    jobs: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only of jobs of such names: * and ? as in a shell.")
    ] = "*",
    waits: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Also when a job waits for longer: 30m.")
    ] = None,
    zone: Annotated[
        str, typer.Option(metavar="ZONE", help="The time zone of --quiet and --digest: Europe/Berlin.")
    ] = "UTC",
    quiet: Annotated[
        str | None, typer.Option(metavar="FROM-TO", help="Send nothing then, but all of it after: 22:00-07:00.")
    ] = None,
    digest: Annotated[
        str | None, typer.Option(metavar="DURATION|TIME", help="All news of so long, or of a day, in one: 1h, 08:00.")
    ] = None,
    everyone: EveryoneOption = False,
    tenant: TenantOption = None,
) -> None:
    """Subscribe to news of a tenant's jobs, services and budgets.

    A webhook's secret is shown once: its receiver checks signatures with it, as standardwebhooks.com says.
    """
    given = {kind: one for kind, one in (("mail", mail), ("webhook", webhook), ("slack", slack)) if one is not None}
    if len(given) != 1:
        raise Invalid("news go to one place", where="NAME", hint="give one of --mail, --webhook and --slack")
    ((kind, address),) = given.items()
    if address == "-":
        address = read_input(Path("-"))[0].strip()
    topics = list(dict.fromkeys([*(on or ([] if waits else ["ended"])), *(["waits"] if waits else [])]))
    with context.client() as client:
        made = client.notify.add(
            name, kind=kind, address=address, topics=topics, tenant=tenant, jobs=jobs, waits=waits, zone=zone,
            quiet=quiet, digest=digest, everyone=everyone,
        )  # fmt: skip

    def human() -> None:
        print(f"{made.name}: {', '.join(made.topics)} to {made.address}")
        if made.secret is not None:
            print(f"  secret {made.secret}  (signs its requests; it is shown this once)")
        print(f"  try it: `shoal notify test {made.name}{' --everyone' if everyone else ''}`")

    context.show(made, human)


def list_subscriptions(context: CommandContext, tenant: TenantOption = None) -> None:
    """Who is told what."""
    with context.client() as client:
        found = client.notify.subscriptions(tenant=tenant)
    context.show(found, lambda: _subscriptions(found.subscriptions) if found.subscriptions else print("nobody is told"))


def _subscriptions(found: tuple[SubscriptionView, ...]) -> None:
    from shoal.base.console import output

    rows = [
        [one.name, one.tenant, one.kind.value, one.address, ", ".join(one.topics), one.jobs, _when(one)]
        for one in found
    ]
    output.put(output.table(["name", "tenant", "by", "address", "about", "jobs", "when"], rows))


def _when(one: SubscriptionView) -> str:
    parts = [f"digest {one.digest}" if one.digest else "", f"not {one.quiet}" if one.quiet else ""]
    said = ", ".join(part for part in parts if part)
    return f"{said} {one.zone}" if said else "at once"


def remove(
    context: CommandContext, name: NameArgument, everyone: EveryoneOption = False, tenant: TenantOption = None
) -> None:
    """Remove a subscription. What was held back for it is not sent."""
    with context.client() as client:
        client.notify.remove(name, tenant=tenant, everyone=everyone)
    context.show({"removed": name}, lambda: print(f"{name} is removed"))


def trial(
    context: CommandContext, name: NameArgument, everyone: EveryoneOption = False, tenant: TenantOption = None
) -> None:
    """Send a trial message at once, also in quiet hours, and wait until it is delivered. The exit code is 0 only if
    the receiver took it."""
    with context.client() as client:
        one = client.notify.trial(name, tenant=tenant, everyone=everyone)
        end = time.monotonic() + _WAIT_S
        while one.state is State.WAITING and not one.attempts and time.monotonic() < end:
            time.sleep(_ASK_S)
            one = client.notify.delivery(one.id)
    context.show(one, lambda: print(_said(one)))
    if one.state is not State.SENT:
        raise typer.Exit(FAILED)


def _said(one: DeliveryView) -> str:
    if one.state is State.SENT:
        return f"delivered to {one.to} (key {one.id})"
    again = "; it is tried again" if one.state is State.WAITING else ""
    return f"not delivered to {one.to}: {one.error or 'there is no answer yet'}{again} (key {one.id})"


def deliveries(
    context: CommandContext,
    tenant: TenantOption = None,
    state: Annotated[State | None, typer.Option("--state", "-s", help="Only in this state.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="The most entries to show.")] = 50,
) -> None:
    """What was sent, waits, or was given up, the newest first."""
    with context.client() as client:
        found = client.notify.deliveries(tenant=tenant, state=None if state is None else state.value, limit=limit)
    context.show(found, lambda: _deliveries(found.deliveries) if found.deliveries else print("no deliveries"))


def _deliveries(found: tuple[DeliveryView, ...]) -> None:
    from shoal.base.console import output

    rows: list[list[Any]] = []
    for one in found:
        about = one.news[0].title if len(one.news) == 1 else f"{len(one.news)} news"
        made = f"{datetime.fromtimestamp(one.created_at):%Y-%m-%d %H:%M:%S}"
        rows.append([one.id, made, one.to, one.state.value, one.attempts, about, one.error])
    output.put(output.table(["delivery", "made", "to", "state", "tries", "news", "error"], rows))


def retry(context: CommandContext, delivery: DeliveryArgument) -> None:
    """Send again what was given up, or at once what waits. It keeps its key."""
    with context.client() as client:
        one = client.notify.retry(delivery)
    context.show(one, lambda: print(f"{one.id} is sent again to {one.to}"))
