"""Routes for rented instances. Tenants see their own, the admin sees all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Path, Response

from shoal.contract.view import View
from shoal.core import NotFound, Unavailable
from shoal.extension.describe import fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import TenantQuery, Who, answer, filter_of
from shoal.market.models import AccountView, LedgerView, MarketView, RentalView, RentedJobView

if TYPE_CHECKING:
    from shoal.market.live.extension import Market


def router_of(market: Market) -> APIRouter:
    async def opened() -> None:
        if not market.is_open:
            raise Unavailable("the market is not open yet")

    router = Router(tags=["market"], dependencies=[Depends(opened)])

    @router.get(
        "/v1/market", summary="What is rented now, and the money of tenants", response_class=Response,
        responses={**shows(MarketView), **fails(503)},
    )  # fmt: skip
    async def status(who: Who) -> Response:
        rentals = [one for one in market.renter.rentals.values() if who.tenant in (None, one.tenant)]
        return _shown(MarketView(
            provider=market.provider.name, now=market.provider.now(), accounts=_accounts(market, who.tenant),
            rentals=tuple(RentalView(**one.as_json()) for one in sorted(rentals, key=lambda one: one.id)),
        ))  # fmt: skip

    @router.get(
        "/v1/market/ledger", summary="Rentals with what they cost, the newest first", response_class=Response,
        responses={**shows(LedgerView), **fails(404, 503)},
    )  # fmt: skip
    async def ledger(who: Who, tenant: TenantQuery = None) -> Response:
        shown = filter_of(who, tenant)
        rentals = tuple(RentalView(**one.as_json()) for one in market.ledger.of(shown))
        return _shown(LedgerView(accounts=_accounts(market, shown), rentals=rentals))

    @router.get(
        "/v1/market/jobs/{job_id}", summary="What a job holds, why, and what other prices would change",
        response_class=Response, responses={**shows(RentedJobView), **fails(404, 503)},
    )  # fmt: skip
    async def job(
        who: Who, job_id: Annotated[str, Path(description="the job's id", max_length=64)],
        tenant: TenantQuery = None,
    ) -> Response:  # fmt: skip
        client, shown = market.demand.clients.get(job_id), filter_of(who, tenant)
        if client is None or shown not in (None, client.tenant):
            raise NotFound(f"no job {job_id} rents instances now", where=job_id)
        return _shown(RentedJobView.model_validate(await market.demand.told(client)))

    return router


def _accounts(market: Market, tenant: str | None) -> tuple[AccountView, ...]:
    return tuple(
        AccountView(
            tenant=one.tenant, cap_usd=one.cap / 1e6, spent_usd=one.spent / 1e6, held_usd=one.held / 1e6,
            rentals=one.rentals,
        )
        for one in market.ledger.accounts() if tenant in (None, one.tenant)
    )  # fmt: skip


def _shown(found: View) -> Response:
    return answer(found.model_dump(mode="json"))
