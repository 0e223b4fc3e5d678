"""The market as an extension of the server: rents instances for jobs that ask for it, and keeps within the caps."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import structlog
from fastapi import APIRouter
from pydantic import BaseModel

from shoal.admission import Blocker, Decision, Explanation, Preemption, Snapshot, Start, without
from shoal.base.loops import Turns
from shoal.contract.events import EventKind, EventKinds
from shoal.contract.records import Event, RankPlacement
from shoal.core import Capability, Device, Invalid, Node, Reason, ShoalError
from shoal.engine import Joinable
from shoal.extension import Decide, Explain, Extension, LiveJob, Section, Server
from shoal.market.live.api import Renting, router_of
from shoal.market.live.events import MarketEvent
from shoal.market.live.settings import MarketFile, MarketJob, MarketSection, read_file
from shoal.market.live.tables import TABLES
from shoal.store import Tables

if TYPE_CHECKING:
    from shoal.market.live.jobs import Client
    from shoal.market.live.provider import Listing
    from shoal.market.live.records import Rental

log = structlog.get_logger("shoal.market")


class Market(Extension, Renting):
    """Jobs with a section `market` wait until what was rented for them is there, and run nowhere else."""

    name: ClassVar[str] = "market"
    paths: ClassVar[Sequence[str]] = ("/v1/market",)
    settings: ClassVar[type[Section]] = MarketSection
    manifest: ClassVar[type[BaseModel] | None] = MarketJob
    tables: ClassVar[Tables | None] = TABLES
    events: ClassVar[type[EventKinds] | None] = MarketEvent

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
        self._task: asyncio.Task[None] | None = None

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
        self.demand = Demand(self.renter, self.file)
        self._unread = {*self._server.snapshot().pending.by_id, *(one.job.id for one in self._server.active_jobs())}
        self._read()
        await self._join()  # before anything is decided: what runs there would be lost
        self._task = asyncio.create_task(self._run(), name="market")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self.provider.close()

    async def _run(self) -> None:
        while True:
            with self._turns.turn() as turn:
                await self._turn()
            if turn.over:
                return
            self._server.wake()
            speed = self.file.simulated.speed if self.file.provider == "simulated" else 1.0
            try:
                async with asyncio.timeout(self.file.every / speed):
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
            speed = float(client.market.speed[0]) * self._clock_speed
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

    @property
    def _clock_speed(self) -> float:
        return self.file.simulated.speed if self.file.provider == "simulated" else 1.0

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
        if self._task is not None and job.job.id in self.demand.clients:
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

    # --- decide ---

    def decide(self, snapshot: Snapshot, admit: Decide) -> Decision:
        if self._task is None:
            return self._hold_back(snapshot, admit)
        self._read()
        clients, pending = self.demand.clients, snapshot.pending.by_id
        delegated = not isinstance(self._server.engine, Joinable)
        waiting = [client for job_id, client in clients.items() if job_id in pending]
        let = {one.job_id for one in waiting if delegated and one.offer is not None and self.demand.ready(one)}
        mine = [one for one in waiting if one.job_id not in let]
        wrong = {job_id: why for job_id, why in self._wrong.items() if job_id in pending}
        decision = admit(without(snapshot, {*(one.job_id for one in mine), *wrong}))
        starts, waits = list(decision.starts), {**decision.waits, **wrong}
        for client in mine:
            placed = None if client.offer is None else self._places(snapshot, client)
            if placed is None or pending[client.job_id].not_before > snapshot.now:
                waits[client.job_id] = self._wait(client)
            else:
                starts.append(Start(client.job_id, placed, Reason("rented", f"on {client.offer}: {client.why.text}")))
        leaves = [
            Preemption(one.job_id, "", one.leave)
            for one in clients.values()
            if one.leave is not None and (runs := snapshot.running.get(one.job_id)) is not None and not runs.stopping
        ]
        return replace(decision, starts=tuple(starts), waits=waits, preemptions=(*decision.preemptions, *leaves))

    def _hold_back(self, snapshot: Snapshot, admit: Decide) -> Decision:
        """Before the market is open, its jobs start nowhere."""
        found = {
            job_id for job_id in snapshot.pending.by_id
            if (live := self._server.job(job_id)) is not None and section_of(live) is not None
        }  # fmt: skip
        return admit(without(snapshot, found))

    def _wait(self, client: Client) -> Reason:
        if client.offer is None:
            return client.why
        return Reason("renting", f"waits for {client.offer}: {client.why.text}", {"offer": client.offer})

    def _places(self, snapshot: Snapshot, client: Client) -> tuple[RankPlacement, ...] | None:
        """The ranks on the rented nodes; None while one of these is not there, or not free."""
        from itertools import islice

        job, rentals = snapshot.pending.by_id[client.job_id], self.demand.ready(client)
        if not rentals:
            return None
        fit = client.fit(rentals[0].offer)
        each, kind = job.resources.accelerator_count, fit.listing.offer.accelerator
        placed: list[RankPlacement] = []
        for number, rental in enumerate(rentals):
            state = snapshot.nodes.get(rental.id)
            ranks = range(number * fit.ranks_each, min(job.ranks, (number + 1) * fit.ranks_each))
            free = iter(state.free_devices.get(kind, ()) if state is not None else ())
            for rank in ranks:
                devices = tuple(islice(free, each))
                if len(devices) < each:
                    return None
                placed.append(RankPlacement(rank, rental.id, devices))
        return tuple(placed)

    async def explain(self, snapshot: Snapshot, job: LiveJob, usual: Explain) -> Explanation:
        del snapshot
        client = self.demand.clients.get(job.job.id)
        if client is None:
            return await usual()
        why = self._wait(client) if not job.job.state.active else client.why
        cause = Blocker(
            "market", not job.job.state.active, why, "`shoal market why` tells what other prices would change"
        )
        return Explanation(job.job.id, (cause,), 0, None, why.text, "")

    # --- act ---

    async def _join(self) -> None:
        """The engine's nodes are those of the rentals that are there, where it lets a server add nodes."""
        engine = self._server.engine
        if not isinstance(engine, Joinable):
            return
        there = {one.id: one for one in self.renter.rentals.values() if one.ready and one.launched_at is not None}
        for name, rental in there.items():
            listing = self.renter.listings.get(rental.offer)
            if name not in self._joined and listing is not None:
                await engine.join(node_of(rental, listing), f"rented for {rental.job_id}")
        for name in self._joined - there.keys():
            await engine.leave(name)
        self._joined = set(there)

    # --- shown ---

    def status(self) -> Mapping[str, Any]:
        if self._task is None:
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
        return (router_of(),)


def section_of(live: LiveJob) -> MarketJob | None:
    """The job's section of its manifest, which was checked when it came."""
    if '"market"' not in live.job.manifest:
        return None  # most jobs: their manifests are not read for this
    given = live.manifest.extensions.get("market")
    return None if given is None else MarketJob.model_validate(given)


def node_of(rental: Rental, listing: Listing) -> Node:
    offer = listing.offer
    devices = tuple(Device(f"{offer.accelerator}-{at}", offer.accelerator, at) for at in range(offer.accelerators))
    labels = {"market/offer": offer.name, "market/tenant": rental.tenant}
    return Node(rental.id, devices, listing.cpus * 1000, listing.memory_bytes, labels)
