"""`client.market`: what is rented, what it costs, and why."""

from __future__ import annotations

from shoal.contract.calls import Call, path_piece, reads
from shoal.contract.methods import Namespace, single
from shoal.market.models import LedgerView, MarketView, RentedJobView


def status() -> Call[MarketView]:
    """What is rented now, and the money of the tenants."""
    return Call("GET", "/v1/market", reads(MarketView))


def ledger(*, tenant: str | None = None) -> Call[LedgerView]:
    """All rentals with their cost, the newest first."""
    return Call("GET", "/v1/market/ledger", reads(LedgerView), {"tenant": tenant})


def job(job_id: str, *, tenant: str | None = None) -> Call[RentedJobView]:
    """What a job holds, why, and what would be decided at other prices."""
    return Call("GET", f"/v1/market/jobs/{path_piece('job', job_id)}", reads(RentedJobView), {"tenant": tenant})


class MarketMethods(Namespace):
    """The methods of `client.market`."""

    status = single(status)
    ledger = single(ledger)
    job = single(job)
