"""`shoal market status`, `ledger` and `why`: what a server rents, what it costs, and the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext, command
from shoal.market.commands.output import moment, table

if TYPE_CHECKING:
    from shoal.market.models import AccountView, RentalView

TenantOption = Annotated[str | None, typer.Option(help="Only of this tenant (admin).")]
_PANEL = "A server's rented instances"


def register(app: typer.Typer) -> None:
    for name, function in (("status", status), ("ledger", ledger), ("why", why)):
        command(app, name, rich_help_panel=_PANEL)(function)


def status(context: CommandContext) -> None:
    """What is rented now, and what is left of each tenant's cap."""
    with context.client() as client:
        found = client.market.status()

    def shown() -> None:
        print(f"provider {found.provider}, {moment(found.now)}")
        _accounts(found.accounts)
        _rentals(found.rentals)

    context.show(found, shown)


def ledger(context: CommandContext, tenant: TenantOption = None) -> None:
    """All rentals with what they cost, the newest first."""
    with context.client() as client:
        found = client.market.ledger(tenant=tenant)

    def shown() -> None:
        _accounts(found.accounts)
        _rentals(found.rentals)

    context.show(found, shown)


def why(
    context: CommandContext,
    job: Annotated[str, typer.Argument(help="The job's id or name.", metavar="JOB")],
    tenant: TenantOption = None,
) -> None:
    """Why a job holds what it holds, why now, and what would be decided if the price rose by a fifth, a half, or
    doubled."""
    with context.client() as client:
        found = client.market.job(client.job(job, tenant=tenant).id, tenant=tenant)

    def shown() -> None:
        print(f"{found.job}: {found.offer or 'nothing is rented'}")
        print(f"  {found.reason['text']}")
        rows = [{"price": one.price, "offer": one.offer, "text": one.text} for one in found.what_if]
        table(rows, {"price": "PRICE X", "offer": "RENT", "text": "WHY"})
        _rentals(found.rentals)

    context.show(found, shown)


def _accounts(accounts: tuple[AccountView, ...]) -> None:
    rows: list[dict[str, Any]] = [
        {"tenant": one.tenant, "cap": one.cap_usd, "spent": one.spent_usd, "held": one.held_usd,
         "left": one.cap_usd - one.spent_usd - one.held_usd, "rentals": one.rentals}
        for one in accounts
    ]  # fmt: skip
    table(rows, {"tenant": "TENANT", "cap": "CAP $", "spent": "SPENT $", "held": "HELD $", "left": "LEFT $",
                 "rentals": "RENTALS"})  # fmt: skip


def _rentals(rentals: tuple[RentalView, ...]) -> None:
    rows: list[dict[str, Any]] = [
        {"rental": one.rental, "tenant": one.tenant, "offer": one.offer, "state": one.state.lower(), "usd": one.usd,
         "until": moment(one.until if one.ended_at is None else one.ended_at), "cause": one.cause}
        for one in rentals
    ]  # fmt: skip
    if rows:
        table(rows, {"rental": "RENTAL", "tenant": "TENANT", "offer": "OFFER", "state": "STATE", "usd": "$ AT MOST",
                     "until": "UNTIL", "cause": "WHY IT ENDED"})  # fmt: skip
