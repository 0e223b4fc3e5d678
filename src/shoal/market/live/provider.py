"""The protocol of a provider that rents instances out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from shoal.core import ShoalError
from shoal.market.history import Offer


@dataclass(frozen=True, slots=True)
class Listing:
    """An offer that may be rented. `usd_per_hour` is the price on demand, and of a spot offer the most that is paid. An
    instance has `cpus` cores and `memory_bytes`."""

    offer: Offer
    usd_per_hour: float
    cpus: int = 1
    memory_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Quote:
    """What an offer costs now, for a whole instance, and whether it seems to be there."""

    offer: Offer
    usd_per_hour: float
    available: bool


@dataclass(frozen=True, slots=True)
class Order:
    """One instance to launch. `token` is its own for ever: two orders of one token are one instance. Past `until`
    (Unix seconds) the instance ends by itself, whether or not a server is there to end it."""

    token: str
    tenant: str
    node: str
    offer: Offer
    usd_per_hour: float
    until: float


@dataclass(frozen=True, slots=True)
class Instance:
    """What the provider says of an instance with our tag. `ready` once it runs; `usd` is the bill so far, where the
    provider knows it. One that ended is listed for a while."""

    id: str
    token: str
    launched_at: float
    until: float
    ready: bool = True
    ended_at: float | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """The provider will take this instance away."""

    instance_id: str
    ends_at: float


class NotAvailable(ShoalError):
    """The provider refused an order for want of capacity or rights: it is sure that nothing was launched."""

    code = "not-available"


class Provider(Protocol):
    """All calls may be repeated. An error other than `NotAvailable` leaves open whether the call took effect."""

    name: str

    def now(self) -> float:
        """Unix seconds by the clock that prices and bills go by."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def quotes(self) -> Sequence[Quote]:
        """Of all listings."""
        ...

    async def launch(self, order: Order) -> Instance:
        """The instance of this token, launched if there is none yet. Raises NotAvailable."""
        ...

    async def extend(self, instance_id: str, until: float) -> None:
        """Move the time at which the instance ends by itself."""
        ...

    async def terminate(self, instance_id: str) -> None:
        """Nothing where it is gone already."""
        ...

    async def instances(self) -> Sequence[Instance]:
        """All with our tag: those that run, and those that ended not long ago."""
        ...

    async def notices(self) -> Sequence[Notice]: ...
