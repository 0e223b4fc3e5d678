"""The market as an extension of the server: rents instances for jobs that ask for it, and keeps within the caps."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import structlog
from pydantic import BaseModel

from shoal.admission import Additions, Blocker, Decision, Preemption, Snapshot
from shoal.base.loops import BackgroundLoop, RunningLoop, Turns
from shoal.contract.events import EventKind, EventKinds
from shoal.contract.pages import Page
from shoal.contract.records import Event
from shoal.core import (
    NO_AFFINITY,
    OWN_PREFIX,
    Affinity,
    Budget,
    Budgets,
    Capability,
    Device,
    Invalid,
    Node,
    NodesToCome,
    Reason,
    Resources,
    ShoalError,
    Speeds,
    Taint,
    Toleration,
)
from shoal.engine import Joinable
from shoal.extension import Extension, LiveJob, Section, Server
from shoal.market.live.events import MarketEvent
from shoal.market.live.settings import MarketFile, MarketJob, MarketSection, read_file
from shoal.market.live.tables import TABLES
from shoal.store import Tables

if TYPE_CHECKING:
    from fastapi import APIRouter

    from shoal.market.live.jobs import Client, Demand
    from shoal.market.live.ledger import Ledger
    from shoal.market.live.provider import Listing, Provider
    from shoal.market.live.records import Rental
    from shoal.market.live.renter import Renter

log = structlog.get_logger("shoal.market")

RENTED_FOR = f"{OWN_PREFIX}rented-for"
"""Label and taint of a rented node: the id of the job that it is for."""

_OPENING = Reason("renting", "waits: the market is being opened")


class Market(Extension):
    """Jobs with a section `market` wait until what was rented for them is there, and run nowhere else."""

    name: ClassVar[str] = "market"
    paths: ClassVar[Sequence[str]] = ("/v1/market",)
    settings: ClassVar[type[Section]] = MarketSection
    manifest: ClassVar[type[BaseModel] | None] = MarketJob
    tables: ClassVar[Tables | None] = TABLES
    events: ClassVar[type[EventKinds] | None] = MarketEvent

    provider: Provider
    ledger: Ledger
    renter: Renter
    demand: Demand

    def __init__(self, server: Server, settings: MarketSection) -> None:
        if not settings.file:
            raise Invalid("the market needs its file", where="market.file", hint="shoal up --market market.yaml")
        self._server = server
        self.file: MarketFile = read_file(Path(settings.file))
        self._turns = Turns(log, "a turn of the market failed", server.on_fatal)
        self._unread: set[str] = set()
        self._missed: frozenset[str] = frozenset()
        self._wrong: dict[str, Reason] = {}
        self._joined: set[str] = set()
        self._wake = asyncio.Event()
        self.is_open = False

    @classmethod
    def off(cls) -> Sequence[Capability]:
        return (Capability("market", False, "off: `shoal up --market market.yaml`", "no instances are rented"),)

    # --- life ---

    async def open(self) -> None:
        from shoal.market.live.jobs import Demand
        from shoal.market.live.ledger import Ledger
        from shoal.market.live.providers import make_provider
        from shoal.market.live.renter import Renter

        # By default no two servers have one fleet: what a server finds there and does not know, it ends.
        own = hashlib.sha256(self._server.derive_secret("market-fleet").encode()).hexdigest()[:12]
        self.provider = make_provider(
            self.file, self._server.home, self._server.clock, self.file.fleet or f"shoal-{own}"
        )
        await self.provider.open()
        self.ledger = Ledger(self._server.store, self.file.caps)
        clock = self._server.clock
        self.renter = Renter(self.ledger, self.provider, self.file.listings(), at=clock.now)
        self.renter.load()
        self.demand = Demand(self.renter, self.file, lambda: self._server.ask_all(Speeds))
        self._unread = {*self._server.snapshot().pending.by_id, *(one.job.id for one in self._server.active_jobs())}
        self._read()
        await self._join()  # before anything is decided: what runs there would be lost
        self.is_open = True

    def loops(self) -> Sequence[BackgroundLoop]:
        return (RunningLoop("renting", self._run),)

    async def close(self) -> None:
        await self.provider.close()

    async def _run(self) -> None:
        while True:
            with self._turns.turn() as turn:
                await self._turn()
            if turn.over:
                return
            self._server.wake()
            try:
                async with asyncio.timeout(self.file.every / self.file.time_speed):
                    await self._wake.wait()
            except TimeoutError:
                continue
            finally:
                self._wake.clear()

    async def _turn(self) -> None:
        from shoal.market.live.jobs import done_s

        try:
            await self.renter.look()
        except ShoalError:
            self._warn()
            raise
        self._read()
        self._unread -= self._missed
        self._missed = frozenset(self._unread)  # over before they were looked at, if still not known at the next turn
        at = self._server.clock.now()
        gone = {one.job_id for one in self.renter.rentals.values()} | self.demand.clients.keys()
        for job_id, client in list(self.demand.clients.items()):
            live = self._server.job(job_id)
            if live is None:
                continue
            gone.discard(job_id)
            speed = float(client.market.speed[0]) * self.file.time_speed
            await self.demand.turn(client, done_s(live, client.work_s, speed, at), self._nodes_of(live))
        for job_id in gone:
            if self._server.job(job_id) is None:
                await self.demand.forget(job_id)
        await self._join()
        await self.renter.act()

    def _warn(self) -> None:
        """The provider does not answer, so that nothing is renewed: what will end is left in time all the same."""
        for job_id, client in self.demand.clients.items():
            live = self._server.job(job_id)
            if live is not None:
                client.leave = self.demand.leave(client, self._nodes_of(live), self.provider.now())

    def _nodes_of(self, live: LiveJob) -> frozenset[str]:
        """The rentals that the job runs on. Which machines a cluster picked is not known: its oldest rentals."""
        if not live.job.state.active or live.attempt is None:
            return frozenset()
        if isinstance(self._server.engine, Joinable):
            return frozenset(rank.node for rank in live.attempt.placement)
        rentals = [one for one in self.renter.of_job(live.job.id) if one.ready]
        oldest = min((one.generation for one in rentals), default=0)
        return frozenset(one.id for one in rentals if one.generation == oldest)

    # --- sense ---

    def committed(self, events: Iterable[Event]) -> None:
        new = {event.job_id for event in events if event.kind == EventKind.JOB_SUBMITTED and event.job_id is not None}
        if new:
            self._unread |= new

    def moved(self, job: LiveJob) -> None:
        if self.is_open and job.job.id in self.demand.clients:
            self._wake.set()

    def _read(self) -> None:
        """Take up the jobs that came."""
        for job_id in list(self._unread):
            live = self._server.job(job_id)
            if live is None:
                continue  # not known yet, or over already
            self._unread.discard(job_id)
            section = section_of(live)
            if section is None:
                continue
            try:
                self.demand.take_up(live, section, self.provider.now(), self._server.clock.now())
            except Invalid as error:
                self._wrong[job_id] = Reason("no-offer", str(error))
            self._wake.set()

    def page(self, tenant: str | None) -> Page | None:
        from shoal.market.live.page import page_of

        return page_of(self.ledger, tenant) if self.is_open else None

    def answers(self) -> Mapping[type, object]:
        return {Budgets: self, NodesToCome: self}

    def budgets(self) -> Iterable[Budget]:
        """The caps: what ended at its bill, what runs at the most that it may cost."""
        if not self.is_open:
            return ()
        what = "dollars for instances"
        found = [(one, (one.spent + one.held) / 1e6) for one in self.ledger.accounts() if one.cap > 0]
        return [Budget(one.tenant, what, used, one.cap / 1e6, "dollars") for one, used in found]

    def obstacles(self, sections: Mapping[str, Any], resources: Resources, ranks: int) -> Sequence[Reason] | None:
        if "market" not in sections:
            return None
        from shoal.market.live.deciding import fits, job_of, market_of  # loads numpy

        found = fits(self.file.listings(), resources, ranks)
        if not found:
            return (Reason("no-offer", "no offer of the market has what this job asks for: it would never run"),)
        if self.file.speeds and self._server.ask_all(Speeds):
            return ()  # a forecast may know that it is faster
        try:
            market_of(found, job_of(MarketJob.model_validate(sections["market"])), self.file.tick, self.file.speeds)
        except Invalid as error:
            return (Reason("no-offer", f"{error}: it would never run"),)
        return ()

    # --- decide ---

    def affinity(self, job: LiveJob) -> Affinity:
        """A job that rents runs on what is rented for it and nowhere else, and no other job runs there. Where a cluster
        picks the machines, that is for the cluster to see to."""
        if section_of(job) is None or not isinstance(self._server.engine, Joinable):
            return NO_AFFINITY
        return Affinity(require=((RENTED_FOR, (job.job.id,)),), tolerate=(Toleration(RENTED_FOR, job.job.id),))

    def holds(self, snapshot: Snapshot) -> Mapping[str, Reason]:
        """Jobs that rent, until all that is rented for them is there."""
        waiting = snapshot.pending.by_id
        if not self.is_open:  # not open yet
            return {job_id: _OPENING for job_id in waiting if self._section_of(job_id) is not None}
        self._read()
        found = {job_id: why for job_id, why in self._wrong.items() if job_id in waiting}
        for job_id, client in self.demand.clients.items():
            if job_id in waiting and not self._may_start(client, snapshot):
                found[job_id] = self._wait(client)
        return found

    def _may_start(self, client: Client, snapshot: Snapshot) -> bool:
        """Whether all that was rented for the job is there, and nothing that was rented for it before is any more."""
        ready = {one.id for one in self.demand.ready(client)}
        if client.offer is None or not ready:
            return False
        if not isinstance(self._server.engine, Joinable):
            return True
        there = {one.id for one in self.renter.of_job(client.job_id) if one.id in snapshot.nodes}
        return there == ready

    def adjust(self, snapshot: Snapshot, decision: Decision) -> Additions:  # noqa: ARG002
        """Jobs leave what will end."""
        if not self.is_open:
            return Additions()
        leaves = [
            Preemption(one.job_id, "", one.leave)
            for one in self.demand.clients.values()
            if one.leave is not None and (runs := snapshot.running.get(one.job_id)) is not None and not runs.stopping
        ]
        return Additions(preemptions=leaves)

    def _section_of(self, job_id: str) -> MarketJob | None:
        live = self._server.job(job_id)
        return None if live is None else section_of(live)

    def _wait(self, client: Client) -> Reason:
        if client.offer is None:
            return client.why
        return Reason("renting", f"waits for {client.offer}: {client.why.text}", {"offer": client.offer})

    async def explain(self, snapshot: Snapshot, job: LiveJob) -> Sequence[Blocker]:  # noqa: ARG002
        client = self.demand.clients.get(job.job.id) if self.is_open else None
        if client is None:
            return ()
        waits = not job.job.state.active
        why = self._wait(client) if waits else client.why
        return (Blocker("market", waits, why, "`shoal market why` tells what other prices would change"),)

    # --- act ---

    async def _join(self) -> None:
        """The engine's nodes are those of the rentals that are there, where it lets a server add nodes."""
        engine = self._server.engine
        if not isinstance(engine, Joinable):
            return
        there = {
            one.id: one for one in self.renter.rentals.values()
            if one.ready and one.launched_at is not None and self._of_use(one)
        }  # fmt: skip
        for name, rental in there.items():
            listing = self.renter.listings.get(rental.offer)
            if name not in self._joined and listing is not None:
                await engine.join(node_of(rental, listing), "")
        for name in self._joined - there.keys():
            await engine.leave(name)
        self._joined = set(there)

    def _of_use(self, rental: Rental) -> bool:
        """Whether its job runs there, or may start there: not on what it left, or is about to leave."""
        client, live = self.demand.clients.get(rental.job_id), self._server.job(rental.job_id)
        if client is None or live is None:
            return True
        return rental.id in self._nodes_of(live) or any(one.id == rental.id for one in self.demand.kept(client))

    # --- shown ---

    def status(self) -> Mapping[str, Any]:
        if not self.is_open:
            return {}
        return {
            "provider": self.provider.name, "jobs": len(self.demand.clients), "rented": len(self.renter.rentals),
            "tenants": [
                {"tenant": one.tenant, "cap_usd": one.cap / 1e6, "spent_usd": one.spent / 1e6,
                 "held_usd": one.held / 1e6}
                for one in self.ledger.accounts()
            ],
        }  # fmt: skip

    def routers(self) -> Sequence[APIRouter]:
        from shoal.market.live.api import router_of

        return (router_of(self),)


def section_of(live: LiveJob) -> MarketJob | None:
    """The job's section of its manifest, which was checked when it came."""
    if '"market"' not in live.job.manifest:
        return None  # most jobs: their manifests are not read for this
    given = live.manifest.extensions.get("market")
    return None if given is None else MarketJob.model_validate(given)


def node_of(rental: Rental, listing: Listing) -> Node:
    offer = listing.offer
    devices = tuple(Device(f"{offer.accelerator}-{at}", offer.accelerator, at) for at in range(offer.accelerators))
    labels = {"market/offer": offer.name, "market/tenant": rental.tenant, RENTED_FOR: rental.job_id}
    taints = (Taint(RENTED_FOR, rental.job_id),)
    return Node(rental.id, devices, listing.cpus * 1000, listing.memory_bytes, labels, taints=taints)
