"""The market's page: each tenant's money, and what is rented since when."""

from __future__ import annotations

from shoal.contract.pages import Column, Figure, Mood, Page, Span, Table, Timeline, Unit, Value
from shoal.market.live.ledger import Ledger
from shoal.market.live.records import Rental, RentalState

_MOODS = {RentalState.RUNNING: Mood.GOOD, RentalState.WANTED: Mood.WARNING, RentalState.ENDING: Mood.WARNING}
_NEWEST = 200
"""The number of rentals that are drawn."""


def page_of(ledger: Ledger, tenant: str | None) -> Page:
    """`tenant` sees its own; None: all."""
    accounts = [one for one in ledger.accounts() if tenant in (None, one.tenant)]
    rentals = ledger.of(tenant, limit=_NEWEST)
    spent, held = sum(one.spent for one in accounts), sum(one.held for one in accounts)
    figures = [
        Figure(name="rented now", value=sum(one.open for one in rentals)),
        Figure(name="spent", value=spent / 1e6, unit=Unit.DOLLARS),
        Figure(name="set aside", value=held / 1e6, unit=Unit.DOLLARS),
    ]
    columns = [Column(name="tenant"), *(Column(name=one, unit=Unit.DOLLARS) for one in ("cap", "spent", "set aside"))]
    rows: list[list[Value]] = [[one.tenant, one.cap / 1e6, one.spent / 1e6, one.held / 1e6] for one in accounts]
    money = Table(title="Money", columns=columns, rows=rows, empty="no tenant has a cap")
    return Page(
        title="Rented capacity", figures=figures,
        parts=[money, Timeline(title="Rentals", spans=[_span(one) for one in reversed(rentals)])],
    )  # fmt: skip


def _span(one: Rental) -> Span:
    return Span(
        lane=one.offer, name=one.id, start=one.launched_at or one.wanted_at, end=one.ended_at,
        mood=_MOODS.get(one.state, Mood.PLAIN),
    )  # fmt: skip
