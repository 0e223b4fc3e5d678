"""Makes the provider's instances agree with the records: what is wanted is launched, what no record knows is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import structlog

from shoal.base.loops import Defects
from shoal.contract.records import NewEvent
from shoal.core import LeaseLost, ShoalError
from shoal.market.live.deciding import Fit
from shoal.market.live.events import MarketEvent
from shoal.market.live.ledger import Ledger
from shoal.market.live.provider import Instance, Listing, NotAvailable, Notice, Order, Provider, Quote
from shoal.market.live.reconcile import Action, Extend, Launch, Terminate, Write, reconcile
from shoal.market.live.records import Rental, wanted

log = structlog.get_logger("shoal.market")

_AT_ONCE = 8
"""Calls to the provider at a time."""


class Renter:
    """All that is rented. `at` gives the time of events, which need not be the provider's."""

    def __init__(
        self, ledger: Ledger, provider: Provider, listings: Sequence[Listing], *, at: Callable[[], float],
        unseen_s: float = 120.0,
    ) -> None:  # fmt: skip
        self.ledger = ledger
        self.provider = provider
        self.listings = {listing.offer.name: listing for listing in listings}
        self.rentals: dict[str, Rental] = {}
        self.quotes: Sequence[Quote] = ()
        self.notices: dict[str, Notice] = {}
        """By rental."""
        self.refused: dict[str, float] = {}
        """When the provider last refused an offer, by its name."""
        self._instances: Sequence[Instance] = ()
        self._told: set[tuple[str, str]] = set()
        self._ended: dict[str, Rental] = {}
        self._at = at
        self._unseen_s = unseen_s
        self._defects = Defects(log)
        self._calls = asyncio.Semaphore(_AT_ONCE)

    def load(self) -> None:
        """What the database has."""
        self.rentals = {one.id: one for one in self.ledger.open_rentals()}

    def of_job(self, job_id: str) -> list[Rental]:
        return [one for one in self.rentals.values() if one.job_id == job_id]

    async def want(
        self, job_id: str, tenant: str, fit: Fit, until: float, why: str, generation: int
    ) -> Sequence[Rental] | None:
        """Write down as many instances as the job needs, with the money for them; the next turn launches them. None
        where the tenant's cap does not allow it."""
        offer = fit.listing.offer
        made = wanted(
            job_id, tenant, generation, offer.name, fit.listing.usd_per_hour, fit.instances, self.provider.now(), until
        )
        usd = sum(one.micro_usd for one in made) / 1e6
        event = self._event(
            MarketEvent.WANTED, made[0], why, {"generation": generation, "instances": fit.instances, "usd": usd}
        )
        if not await self.ledger.reserve(made, event):
            return None
        self.rentals |= {one.id: one for one in made}
        return made

    async def refuse(self, job_id: str, tenant: str, fit: Fit) -> None:
        """Tell that the cap does not allow it: once for each job and offer."""
        if (job_id, fit.name) not in self._told:
            self._told.add((job_id, fit.name))
            cause = f"the cap of tenant {tenant} does not allow {fit.name}"
            told = NewEvent(self._at(), MarketEvent.REFUSED, "market", cause, tenant=tenant, job_id=job_id)
            await self.ledger.write_events(told)

    async def renew(self, rentals: Sequence[Rental], until: float) -> bool:
        """All of them until then, or none where the cap does not allow it."""
        longer = [replace(one.extended(until), version=one.version + 1) for one in rentals if one.until < until]
        if not await self.ledger.reserve(longer):
            return False
        self.rentals |= {one.id: one for one in longer}
        return True

    async def release(self, rentals: Iterable[Rental], cause: str) -> None:
        """They are to end; the next turn terminates them."""
        for one in rentals:
            if one.kept:
                self._keep(await self.ledger.write(one.ending(cause)))

    async def look(self) -> None:
        """What the provider has, and what it asks now; then both sides are made to agree. Raises what the provider's
        listing raises."""
        self.load()  # what was written and not acknowledged is found here
        self.quotes, self._instances, notices = await asyncio.gather(
            self.provider.quotes(), self.provider.instances(), self.provider.notices()
        )
        by_instance = {one.instance_id: one for one in self.rentals.values() if one.instance_id}
        for notice in notices:
            rental = by_instance.get(notice.instance_id)
            if rental is not None and rental.id not in self.notices:
                self.notices[rental.id] = notice
                await self.ledger.write_events(
                    self._event(MarketEvent.NOTICE, rental, f"{rental.instance_id} will be taken away",
                                {"ends_at": notice.ends_at})
                )  # fmt: skip
        await self.act()

    async def act(self) -> None:
        """Act on every difference between the records and what the provider listed last."""
        listed = {one.token for one in self._instances}
        unknown = listed - self.rentals.keys() - self._ended.keys()
        if unknown:
            self._ended |= {one.id: one for one in self.ledger.some(unknown)}
        self._ended = {token: one for token, one in self._ended.items() if token in listed}
        known = {**self._ended, **self.rentals}
        actions = reconcile(known, self._instances, self.provider.now(), unseen_s=self._unseen_s)
        results = await asyncio.gather(*map(self._guarded, actions), return_exceptions=True)
        for result in results:
            if isinstance(result, LeaseLost) or (
                isinstance(result, BaseException) and not isinstance(result, Exception)
            ):
                raise result

    async def _guarded(self, action: Action) -> None:
        """What fails is tried again at the next turn: the difference is still there."""
        async with self._calls:
            try:
                await self._act(action)
            except LeaseLost:
                raise
            except ShoalError as error:
                log.warning("the provider did not do it", action=type(action).__name__, error=str(error))
            except Exception as error:
                self._defects.note("the market failed", error, action=type(action).__name__)

    async def _act(self, action: Action) -> None:
        match action:
            case Launch(rental):
                await self._launch(rental)
            case Write(rental):
                await self._write(rental)
            case Extend(instance, until):
                await self.provider.extend(instance.id, until)
            case Terminate(instance, why, orphan):
                if orphan:
                    data = {"instance": instance.id, "token": instance.token}
                    await self.ledger.write_events(
                        NewEvent(self._at(), MarketEvent.ORPHAN, "market", f"{instance.id}: {why}", data=data)
                    )
                await self.provider.terminate(instance.id)

    async def _launch(self, rental: Rental) -> None:
        listing = self.listings.get(rental.offer)
        if listing is None:
            await self._write(rental.ended("its offer is listed no more", None, self.provider.now()))
            return
        usd_per_hour = rental.micro_usd_per_hour / 1e6
        order = Order(rental.id, rental.tenant, rental.id, listing.offer, usd_per_hour, rental.until)
        try:
            instance = await self.provider.launch(order)
        except NotAvailable as error:
            self.refused[rental.offer] = self.provider.now()
            await self._write(rental.ended(error.what, None, self.provider.now()))
            return
        await self._write(self.rentals.get(rental.id, rental).launched(instance))

    async def _write(self, rental: Rental) -> None:
        before = self.rentals.get(rental.id)
        events = []
        if rental.instance_id and (before is None or not before.instance_id):
            events.append(self._event(MarketEvent.LAUNCHED, rental, f"{rental.instance_id} is there"))
        if before is not None and not rental.open:
            kind = MarketEvent.ENDED if rental.instance_id else MarketEvent.REFUSED
            events.append(self._event(kind, rental, rental.cause, {"usd": rental.micro_usd / 1e6}))
        self._keep(await self.ledger.write(rental, *events))

    def _keep(self, rental: Rental) -> None:
        if rental.open:
            self.rentals[rental.id] = rental
            return
        self.rentals.pop(rental.id, None)
        self.notices.pop(rental.id, None)
        self._ended[rental.id] = rental

    def _event(self, kind: MarketEvent, rental: Rental, cause: str, more: dict[str, object] | None = None) -> NewEvent:
        data = {"rental": rental.id, "offer": rental.offer, "instance": rental.instance_id, **(more or {})}
        return NewEvent(self._at(), kind, "market", cause, tenant=rental.tenant, job_id=rental.job_id, data=data)
