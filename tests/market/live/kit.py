"""A renter on a simulated provider in time that a test moves, which may be killed between any two effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shoal.core import ManualClock
from shoal.market.history import Availability, History, Offer, Prices, Track
from shoal.market.live.deciding import Fit
from shoal.market.live.ledger import Ledger
from shoal.market.live.provider import Listing
from shoal.market.live.records import Rental
from shoal.market.live.renter import Renter
from shoal.market.live.settings import SimulatedSection
from shoal.market.live.simulated import SimulatedProvider
from shoal.market.live.tables import TABLES
from shoal.store import Store, open_store

START = 1_700_000_000.0
HOUR = 3600.0
SPOT = Offer("aws", "us-east-1", "us-east-1a", "p3.2xlarge", "v100", 1, True)
DEMAND = Offer("aws", "us-east-1", "", "p3.2xlarge", "v100", 1, False)
LISTINGS = (Listing(SPOT, 1.5, 8, 61 << 30), Listing(DEMAND, 3.0, 8, 61 << 30))


class Killed(BaseException):
    """What `kill -9` is to the code that it hits."""


def history(counts: list[int] | None = None, prices: Mapping[float, float] | None = None) -> History:
    """Of the spot offer: instances to be had by minute, and prices from some second on."""
    told = prices or {0.0: 1.0}
    track = Track(
        Prices(np.array([START + at for at in told]), np.array(list(told.values()))),
        None if counts is None else Availability(START, 60.0, np.array(counts)),
    )
    return History({SPOT: track})


@dataclass
class World:
    """`killed_at` counts effects (rows and calls): the server dies just before that one."""

    folder: Path
    caps: Mapping[str, float]
    history: History = field(default_factory=history)
    clock: ManualClock = field(default_factory=lambda: ManualClock(START))
    killed_at: int | None = None
    effects: int = 0
    options: SimulatedSection = field(default_factory=lambda: SimulatedSection.model_validate({}))

    def __post_init__(self) -> None:
        self.truth = SimulatedProvider(self.folder / "truth.db", LISTINGS, self.history, self.options, self.clock)
        self.start()

    def start(self) -> None:
        self.store: Store = open_store(
            f"sqlite:///{self.folder / 'shoal.db'}", clock=self.clock, inline=True, sync=False, tables=[TABLES]
        )
        self.store.acquire("test")
        self.ledger = Ledger(self.store, self.caps)
        provider = SimulatedProvider(self.folder / "truth.db", LISTINGS, self.history, self.options, self.clock)
        for owner, names in ((provider, ("launch", "extend", "terminate")), (self.ledger, ("reserve", "write"))):
            for name in names:
                setattr(owner, name, self._counted(getattr(owner, name)))
        self.renter = Renter(self.ledger, provider, LISTINGS, at=self.clock.now)
        self.renter.load()

    def restart(self) -> None:
        self.store.release()
        self.store.close()
        self.start()

    def _counted(self, call: Callable[..., object]) -> Callable[..., object]:
        async def counted(*given: object, **named: object) -> object:
            self._effect()
            found = await call(*given, **named)  # type: ignore[misc]
            self._effect()
            return found

        return counted

    def _effect(self) -> None:
        self.effects += 1
        if self.effects == self.killed_at:
            raise Killed

    # --- what a test does and asks ---

    async def want(
        self, job: str, offer: Offer = SPOT, hours: float = 1.0, count: int = 1, generation: int = 1
    ) -> bool:
        listing = next(one for one in LISTINGS if one.offer == offer)
        until = self.clock.now() + hours * HOUR
        fit = Fit(listing, count, 1)
        return await self.renter.want(job, "team", fit, until, "a test wants it", generation) is not None

    async def later(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.renter.look()

    def rental(self, name: str) -> Rental:
        return self.ledger.some([name])[0]

    async def running(self) -> list[str]:
        """The tokens of the instances that run in truth."""
        return sorted(one.token for one in await self.truth.instances() if one.ended_at is None)

    def bill(self) -> float:
        return self.truth.bills().get("team", 0.0)

    def committed(self) -> float:
        return sum(one.spent + one.held for one in self.ledger.accounts()) / 1e6
