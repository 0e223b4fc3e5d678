"""From a job, quotes and what is rented for it to what it should hold. Pure: with the policies of the simulator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shoal.core import ANY, Invalid, Reason, Resources, Speeds
from shoal.market.history import Offer
from shoal.market.live.provider import Listing, Quote
from shoal.market.policy.view import Decision, Policy, View, safe
from shoal.market.tables import egress_usd_per_gb
from shoal.market.ticks import Bools, Job, Ticks, of_shape

if TYPE_CHECKING:
    from shoal.market.live.settings import MarketJob


def job_of(section: MarketJob) -> Job:
    return Job(
        section.work, section.deadline, section.launch, section.lost, state_gb=section.state_gb,
        data_gb=section.data_gb, home=section.home,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fit:
    """A listing that a job can use: the number of its instances, and of the ranks on each."""

    listing: Listing
    instances: int
    ranks_each: int

    @property
    def name(self) -> str:
        return self.listing.offer.name

    @property
    def usd_per_hour(self) -> float:
        """The most that all of them cost."""
        return self.listing.usd_per_hour * self.instances


def fits(listings: Sequence[Listing], resources: Resources, ranks: int) -> list[Fit]:
    """The listings whose accelerators, cores and memory hold such ranks."""
    found = []
    for listing in listings:
        offer = listing.offer
        if len(resources.accelerators) != 1:
            continue
        (kind, each), = resources.accelerators.items()  # fmt: skip
        if kind not in (ANY, offer.accelerator):
            continue
        rooms = [offer.accelerators // each]
        if resources.cpu_milli:
            rooms.append(listing.cpus * 1000 // resources.cpu_milli)
        if resources.memory_bytes:
            rooms.append(listing.memory_bytes // resources.memory_bytes)
        room = min(min(rooms), ranks)
        if room > 0:
            found.append(Fit(listing, math.ceil(ranks / room), room))
    return found


def market_of(fitting: Sequence[Fit], job: Job, tick_s: float, speeds: dict[str, float]) -> Ticks:
    """What does not change while the job runs. Raises Invalid where no offer on demand stands behind the deadline."""
    if not fitting:
        raise Invalid("no offer has what this job asks for", hint="list one under `offers` of the market's file")
    offers = tuple(fit.listing.offer for fit in fitting)
    launch, speed = math.ceil(job.launch_s / tick_s - 1e-9), [of_shape(speeds, one, 1.0) for one in offers]
    least_s = launch * tick_s + job.work_s / max(speed)
    if least_s > job.deadline_s:
        raise Invalid(
            f"{job.work_s / 3600:g} h of work cannot end within {job.deadline_s / 3600:g} h",
            hint=f"with its launch, the fastest offer needs {least_s / 3600:.1f} h: nothing is rented",
        )
    usd = np.array([[fit.usd_per_hour * tick_s / 3600 for fit in fitting]])
    home = job.home or offers[0].region
    gigabytes = job.state_gb + job.data_gb
    return Ticks(
        offers=offers, usd=usd, up=np.ones((1, len(offers)), bool),
        speed=np.array(speed),
        launch_usd=np.array([_egress(gigabytes, home, offer) for offer in offers]),
        tick_s=tick_s, work=job.work_s / tick_s, deadline=max(1, int(job.deadline_s // tick_s)),
        launch=launch, lost=job.lost_s / tick_s,
    )  # fmt: skip


def speeds_by_kind(speeds: Speeds, job: str, kinds: Iterable[str], reference: str) -> dict[str, float]:
    """How fast a kind of job is on each kind of accelerator, relative to `reference`, on which its work was counted;
    kinds of unknown speed are left out, all of them where the reference is one. The lower end of each interval counts,
    so that the safety net does not rely on luck."""
    base = speeds.steps_per_s(job, reference)
    if base is None:
        return {}
    found = {kind: speeds.steps_per_s(job, kind) for kind in kinds}
    return {kind: one.low / base.median for kind, one in found.items() if one is not None and one.low > 0}


def _egress(gigabytes: float, home: str, offer: Offer) -> float:
    return gigabytes * egress_usd_per_gb(offer.provider, home, offer) if gigabytes else 0.0


@dataclass(frozen=True)
class Held:
    """The offer that a job holds, and since when; `ready`: it works there."""

    offer: str
    since: float
    ready: bool


def up_of(market: Ticks, quotes: Sequence[Quote], avoided: Sequence[str] = ()) -> Bools:
    """Which offers seem to be there: on demand always, of spot those that are quoted and were not refused lately."""
    there = {quote.offer.name for quote in quotes if quote.available}
    return np.array([not one.spot or (one.name in there and one.name not in avoided) for one in market.offers])


def view_of(
    market: Ticks, fitting: Sequence[Fit], quotes: Sequence[Quote], seen: Sequence[Bools], held: Held | None, *,
    work_s: float, elapsed_s: float, now: float,
) -> View:  # fmt: skip
    """The job as its policy sees it now: `work_s` is left, `elapsed_s` passed since it was submitted."""
    tick_s, names = market.tick_s, [offer.name for offer in market.offers]
    price = {quote.offer.name: quote.usd_per_hour for quote in quotes}
    usd = np.array([
        min(price.get(fit.name, fit.listing.usd_per_hour), fit.listing.usd_per_hour) * fit.instances * tick_s / 3600
        for fit in fitting
    ])  # fmt: skip
    running = names.index(held.offer) if held is not None and held.offer in names else None
    age = int((now - held.since) // tick_s) if held is not None else 0
    launching = 0 if held is None or held.ready else max(0, market.launch - age)
    tick = min(int(elapsed_s // tick_s), market.deadline)
    return View(
        market, tick, max(work_s / tick_s, 1e-6), running, launching, age, usd, seen[-1], np.array(list(seen), bool)
    )


def decide(view: View, policy: Policy) -> Decision:
    """The policy's choice behind the safety net; after the deadline the fallback, until the work is done."""
    if view.left <= 0:
        text = "the deadline has passed: on demand until the work is done"
        return Decision(view.market.fallback, Reason("late", text))
    return safe(view, policy.decide(view))
