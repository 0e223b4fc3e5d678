"""API models of rented instances: shared by the server's routes, the client and the commands."""

from __future__ import annotations

from typing import Any

from shoal.contract.view import View


class AccountView(View):
    """A tenant's dollars: `spent_usd` on what ended, `held_usd` for what runs, at the most that it may cost."""

    tenant: str
    cap_usd: float
    spent_usd: float
    held_usd: float
    rentals: int


class RentalView(View):
    """An instance. `usd` is its bill, or while it runs the most that it may cost; `exact` where the provider told."""

    rental: str
    tenant: str
    job: str
    offer: str
    state: str
    instance: str
    wanted_at: float
    launched_at: float | None
    until: float
    ended_at: float | None
    usd_per_hour: float
    usd: float
    exact: bool
    cause: str


class MarketView(View):
    """`now` is the provider's time."""

    provider: str
    now: float
    accounts: tuple[AccountView, ...]
    rentals: tuple[RentalView, ...]


class LedgerView(View):
    """Rentals, the newest first."""

    accounts: tuple[AccountView, ...]
    rentals: tuple[RentalView, ...]


class ChoiceView(View):
    """The decision where the price is this multiple of what it is."""

    price: float
    offer: str | None
    code: str
    text: str
    facts: dict[str, Any]


class RentedJobView(View):
    """What a job holds and why."""

    job: str
    tenant: str
    offer: str | None
    reason: dict[str, Any]
    rentals: tuple[RentalView, ...]
    what_if: tuple[ChoiceView, ...]
