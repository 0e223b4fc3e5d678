"""Instances of each job: those that it should hold, and those that it does hold."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.core import Reason, Speeds
from shoal.extension import LiveJob, kind_of
from shoal.market.history import Offer
from shoal.market.live.deciding import (
    Fit,
    Held,
    decide,
    fits,
    job_of,
    market_of,
    speeds_by_kind,
    up_of,
    view_of,
)
from shoal.market.live.records import Rental, RentalState
from shoal.market.live.renter import Renter
from shoal.market.live.settings import MarketFile, MarketJob
from shoal.market.policy.names import policy_named
from shoal.market.policy.view import Policy, View, dearer
from shoal.market.ticks import Bools, Ticks

_SEEN = 2016
"""Ticks of availability that are remembered for a job: two weeks of ten minutes."""

_LOOKING = Reason("looking", "waits for the first look at the market")


@dataclass
class Client:
    """A job and the decision that holds for it. `why` is the decision's reason; `generation` the newest that was rented
    for it."""

    job_id: str
    tenant: str
    fits: Sequence[Fit]
    market: Ticks
    policy: Policy
    submitted_at: float
    work_s: float
    generation: int
    seen: deque[Bools] = field(default_factory=lambda: deque(maxlen=_SEEN))
    view: View | None = None
    offer: str | None = None
    why: Reason = _LOOKING
    decided_tick: int = -1
    leave: Reason | None = None

    def fit(self, name: str) -> Fit:
        return next(fit for fit in self.fits if fit.name == name)


class Demand:
    """The jobs that rent. `predicted` says how fast kinds of jobs are where the market's file does not."""

    def __init__(self, renter: Renter, file: MarketFile, predicted: Callable[[], Sequence[Speeds]] = tuple) -> None:
        self._renter = renter
        self._file = file
        self._predicted = predicted
        self.clients: dict[str, Client] = {}

    def take_up(self, live: LiveJob, section: MarketJob, now: float, at: float) -> Client:
        """A job that is not over. `now` is the provider's time and `at` the server's. Raises Invalid where no offer
        fits."""
        job = live.job
        fitting = fits(list(self._renter.listings.values()), job.resources, job.min_ranks)
        market = market_of(fitting, job_of(section), self._file.tick, self._speeds(live, fitting))
        submitted_at = now - (at - job.submitted_at) * self._file.time_speed
        client = Client(
            job.id, job.tenant, fitting, market, policy_named(self._file.policy), submitted_at, section.work,
            self._renter.ledger.last_generation(job.id),
        )  # fmt: skip
        self.clients[job.id] = client
        return client

    def _speeds(self, live: LiveJob, fitting: Sequence[Fit]) -> dict[str, float]:
        """Those of the file; of kinds that it leaves out those predicted, in terms of the file's kind of speed 1."""
        told = dict(self._file.speeds)
        kinds = {fit.listing.offer.accelerator for fit in fitting} - told.keys()
        reference = next((kind for kind, speed in told.items() if speed == 1 and ":" not in kind), None)
        if not kinds or reference is None:
            return told
        for speeds in self._predicted():
            found = speeds_by_kind(speeds, kind_of(live), kinds, reference)
            if found:
                return found | told
        return told

    # --- what is there ---

    def kept(self, client: Client) -> list[Rental]:
        """The newest generation, if all of it is wanted or runs and none of it was given notice."""
        found = [one for one in self._renter.of_job(client.job_id) if one.generation == client.generation]
        whole = found and all(one.kept and one.id not in self._renter.notices for one in found)
        return sorted(found, key=lambda one: one.id) if whole and len(found) == self._size(client, found) else []

    def ready(self, client: Client) -> list[Rental]:
        """The newest generation that the job can run on, if its time is not all but over."""
        found, least = self.kept(client), self._renter.provider.now() + self._file.notice
        return (
            found if all(one.state is RentalState.RUNNING and one.ready and one.until > least for one in found) else []
        )

    def _size(self, client: Client, found: Sequence[Rental]) -> int:
        return next((fit.instances for fit in client.fits if fit.name == found[0].offer), len(found))

    # --- one turn ---

    async def turn(self, client: Client, done_s: float, on: frozenset[str]) -> None:
        """Decide if it is time to, and order, renew or release. `done_s` of the work are done; `on` are the nodes that
        the job runs on."""
        now, renter = self._renter.provider.now(), self._renter
        held = self.kept(client)
        tick = int((now - client.submitted_at) // self._file.tick)
        if tick > client.decided_tick or (client.offer is not None and not held):
            await self._decide(client, held, max(0.0, client.work_s - done_s), now, again=tick == client.decided_tick)
            client.decided_tick = tick
        held = self.kept(client)
        if held:
            await self._renew(client, held, now)
        useless = [
            one for one in renter.of_job(client.job_id)
            if one.kept and one.id not in on and (one not in held or client.offer is None)
        ]  # fmt: skip
        await renter.release(useless, "the job has no use for it any more")
        client.leave = self.leave(client, on, now)

    async def _decide(self, client: Client, held: Sequence[Rental], left_s: float, now: float, *, again: bool) -> None:
        renter, market = self._renter, client.market
        avoided = [name for name, at in renter.refused.items() if now < at + self._file.retry]
        noticed = [renter.rentals[one].offer for one in renter.notices if one in renter.rentals]
        if again:
            client.seen.pop()
        client.seen.append(up_of(market, renter.quotes, [*avoided, *noticed]))
        holding = None
        if held:
            holding = Held(held[0].offer, held[0].wanted_at, all(one.ready for one in held))
        client.view = view = view_of(
            market, client.fits, renter.quotes, list(client.seen), holding, work_s=left_s,
            elapsed_s=now - client.submitted_at, now=now,
        )  # fmt: skip
        # A plan over weeks takes a second; nothing else changes the client meanwhile.
        decision = await asyncio.to_thread(decide, view, client.policy)
        client.why = decision.reason
        chosen = None if decision.offer is None else market.offers[decision.offer]
        client.offer = None if chosen is None else chosen.name
        if chosen is not None and (not held or held[0].offer != chosen.name):
            await self._order(client, chosen, now)

    async def _order(self, client: Client, chosen: Offer, now: float) -> None:
        fit = client.fit(chosen.name)
        until = now + self._file.lease
        generation = max(client.generation, self._renter.ledger.last_generation(client.job_id)) + 1
        made = await self._renter.want(client.job_id, client.tenant, fit, until, client.why.text, generation)
        if made is not None:
            client.generation = generation
            return
        await self._renter.refuse(client.job_id, client.tenant, fit)
        client.why = Reason(
            "cap", f"an hour of {fit.name} could pass the cap of tenant {client.tenant}: nothing is rented",
            {"wanted": client.why.as_json(), "lease_s": self._file.lease},
        )  # fmt: skip
        client.offer = None if not self.kept(client) else self.kept(client)[0].offer

    async def _renew(self, client: Client, held: Sequence[Rental], now: float) -> None:
        """Paid ahead for half a lease at least, as far as the money goes."""
        if min(one.until for one in held) - now > self._file.lease / 2:
            return
        if not await self._renter.renew(held, now + self._file.lease):
            client.why = Reason("cap", f"the cap of tenant {client.tenant} allows no longer time of {held[0].offer}")

    def leave(self, client: Client, on: frozenset[str], now: float) -> Reason | None:
        """Why the job should checkpoint and leave what it runs on."""
        ready = self.ready(client)
        for name in sorted(on & self._renter.rentals.keys()):
            rental = self._renter.rentals[name]
            if name in self._renter.notices:
                left = self._renter.notices[name].ends_at - now
                return Reason("notice", f"{rental.offer} is taken away in {left:.0f} s")
            if rental.until - now <= self._file.notice:
                return Reason("cap", f"the time of {rental.offer} is over and the cap allows no more")
            if client.offer is None:
                return Reason("released", client.why.text)
            if ready and rental.generation < client.generation:
                return Reason("moves", f"moves to {client.offer}: {client.why.text}")
        return None

    async def forget(self, job_id: str) -> None:
        """The job is over: what was rented for it is released."""
        self.clients.pop(job_id, None)
        await self._renter.release(self._renter.of_job(job_id), "the job is over")

    # --- shown ---

    async def told(self, client: Client) -> Mapping[str, Any]:
        """Why here, why now, and what would be decided at other prices."""
        others = []
        if client.view is not None:
            for factor in (1.2, 1.5, 2.0):
                view = dearer(client.view, factor)
                found = await asyncio.to_thread(decide, view, policy_named(self._file.policy))
                name = None if found.offer is None else client.market.offers[found.offer].name
                others.append({"price": factor, "offer": name, **found.reason.as_json()})
        return {
            "job": client.job_id, "tenant": client.tenant, "offer": client.offer, "reason": client.why.as_json(),
            "rentals": [one.as_json() for one in self._renter.of_job(client.job_id)], "what_if": others,
        }  # fmt: skip


def done_s(live: LiveJob, work_s: float, speed: float, at: float) -> float:
    """Seconds of work that are done: by the steps that it reported, of one that runs, or saved, of one that waits; else
    by the time that it ran."""
    job = live.job
    total = job.progress.get("total")
    running = job.state.active and live.attempt is not None and live.attempt.running_at is not None
    step = job.progress.get("step" if running else "checkpoint_step")
    if total and step is not None:
        return min(1.0, float(step) / float(total)) * work_s
    ran = job.ran_s
    if running and live.attempt is not None and live.attempt.running_at is not None:
        ran += at - live.attempt.running_at
    return ran * speed
