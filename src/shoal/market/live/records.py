"""A rental as the server keeps it, and what it costs at most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from shoal.market.live.provider import Instance

LEAST_S = 60.0
"""The shortest time that is charged for."""
SKEW_S = 5.0
"""An instance may have been launched this much earlier than it was requested, by the provider's clock."""


class RentalState(StrEnum):
    """WANTED: written down before it is launched. RUNNING: the provider has it. ENDING: it is to be terminated. ENDED:
    it is gone, or never was."""

    WANTED = "WANTED"
    RUNNING = "RUNNING"
    ENDING = "ENDING"
    ENDED = "ENDED"


@dataclass(frozen=True, slots=True)
class Rental:
    """`id` is also the token at the provider and the name of the node. The `generation` counts what was rented for a
    job: those of one generation are used together. `micro_usd` is what it costs at most, and once it ended, what it
    did cost; `exact` once the provider has told. `ready` once the provider says that it runs."""

    id: str
    tenant: str
    job_id: str
    generation: int
    offer: str
    micro_usd_per_hour: int
    state: RentalState
    wanted_at: float
    until: float
    micro_usd: int
    instance_id: str = ""
    launched_at: float | None = None
    ended_at: float | None = None
    ready: bool = False
    exact: bool = False
    cause: str = ""
    version: int = 1

    @property
    def open(self) -> bool:
        return self.state is not RentalState.ENDED

    @property
    def kept(self) -> bool:
        return self.state in (RentalState.WANTED, RentalState.RUNNING)

    def extended(self, until: float) -> Rental:
        """The same until later, with the money for it."""
        began = self.wanted_at - SKEW_S if self.launched_at is None else self.launched_at
        return replace(self, until=until, micro_usd=charge(self.micro_usd_per_hour, until - began))

    def launched(self, instance: Instance) -> Rental:
        state = RentalState.RUNNING if self.state is RentalState.WANTED else self.state
        found = replace(
            self, state=state, instance_id=instance.id, launched_at=instance.launched_at, ready=instance.ready
        )
        return found.extended(self.until)

    def ending(self, cause: str) -> Rental:
        return replace(self, state=RentalState.ENDING, cause=cause)

    def ended(self, cause: str, instance: Instance | None, now: float) -> Rental:
        """With the provider's bill, or where it has none the time at the agreed price. `instance` is None where nothing
        was launched."""
        cause = self.cause or cause
        if instance is None:
            return replace(self, state=RentalState.ENDED, ended_at=now, micro_usd=0, exact=True, cause=cause)
        end = min(self.until, now if instance.ended_at is None else instance.ended_at)
        micro = charge(self.micro_usd_per_hour, end - instance.launched_at)
        if instance.usd is not None:
            micro = math.ceil(instance.usd * 1e6 - 1e-6)
        return replace(
            self, state=RentalState.ENDED, instance_id=instance.id, launched_at=instance.launched_at, ended_at=end,
            micro_usd=micro, exact=instance.usd is not None, cause=cause,
        )  # fmt: skip

    def as_json(self) -> Mapping[str, Any]:
        return {
            "rental": self.id, "tenant": self.tenant, "job": self.job_id, "offer": self.offer,
            "state": self.state.value, "instance": self.instance_id, "wanted_at": self.wanted_at,
            "launched_at": self.launched_at, "until": self.until, "ended_at": self.ended_at,
            "usd_per_hour": self.micro_usd_per_hour / 1e6, "usd": self.micro_usd / 1e6, "exact": self.exact,
            "cause": self.cause,
        }  # fmt: skip


def charge(micro_usd_per_hour: int, seconds: float) -> int:
    """By the second, rounded up, and never for less than `LEAST_S`."""
    return math.ceil(micro_usd_per_hour * math.ceil(max(LEAST_S, seconds) - 1e-6) / 3600)


def wanted(
    job_id: str, tenant: str, generation: int, offer: str, usd_per_hour: float, count: int, now: float, until: float
) -> Sequence[Rental]:
    """Ids are the same for the same want, so that a replay finds what it made."""
    micro = math.ceil(usd_per_hour * 1e6 - 1e-6)
    return [
        Rental(
            f"{job_id}-{generation}-{member}", tenant, job_id, generation, offer, micro, RentalState.WANTED,
            now, until, charge(micro, until - now + SKEW_S),
        )
        for member in range(count)
    ]  # fmt: skip
