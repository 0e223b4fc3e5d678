"""May these models share this server? What a model of that answers, and the answer of a simulation.

Three models stand behind one protocol: `Queueing` (a proven bound), `DutyCycle` (Nexus') and `Simulated`. A set that
holds keeps holding when a demand is taken away, exactly so for `Queueing`; packers count on it to skip sets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shoal.core import Reason
from shoal.measure.profiles import Demand, ServerType
from shoal.measure.simulated import Order, SimulatedServer
from shoal.measure.statistics import Estimate, design_effect, lower_bound, upper_bound

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """`occupancy` is the mean share of the server's slots in use. `reason` is the constraint that is broken, or the
    tightest one if all hold. `batches` is each demand's largest batch under this model; `latency_s` what the model
    promises for each demand's quantile (empty unless it holds)."""

    holds: bool
    occupancy: float
    reason: Reason
    batches: tuple[int, ...] = ()
    latency_s: tuple[float, ...] = ()


class Feasibility(Protocol):
    """`asks` is how many sets it is reasonable to ask about in one search: a few ten seconds' worth. What a `trusted`
    model says of one demand alone needs no simulation."""

    name: str
    asks: int
    trusted: bool

    def judge(self, demands: Sequence[Demand], server: ServerType) -> Fit: ...

    def least_share(self, demand: Demand, server: ServerType) -> float:
        """A lower bound of the share of the server's slots that this demand takes in any set that holds."""
        ...


def static_limits(demands: Sequence[Demand], server: ServerType) -> Reason | None:
    """What no model of time can mend: memory, slots of one execution, and an execution longer than its objective."""
    need = sum(demand.profile.memory_bytes for demand in demands)
    if need > server.memory_bytes:
        return Reason(
            "memory",
            f"needs {need / 2**30:.2f} GiB of memory, {server.name} has {server.memory_bytes / 2**30:.2f} GiB",
            {"needed_bytes": need, "memory_bytes": server.memory_bytes},
        )
    for demand in demands:
        if demand.profile.slots > server.slots:
            return Reason(
                "slots",
                f"one execution of {demand.name} takes {demand.profile.slots} slots, {server.name} has {server.slots}",
                {"model": demand.name, "needed": demand.profile.slots, "slots": server.slots},
            )
        took_s = demand.profile.times[0].quantile(demand.quantile) / server.speed
        if took_s > demand.slo_s:
            return Reason(
                "execution",
                f"one execution of {demand.name} takes {milliseconds(took_s)} at its {demand.quantile:.2%} quantile, "
                f"its objective is {milliseconds(demand.slo_s)}",
                {"model": demand.name, "execution_s": took_s, "slo_s": demand.slo_s},
            )
    return None


def milliseconds(seconds: float) -> str:
    """For people: three digits, or all of a whole number."""
    value = seconds * 1e3
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"


@dataclass(frozen=True, slots=True)
class Check:
    """What a simulation says of one demand: the share of late requests, of which `allowed` may be, and its quantile's
    latency in seconds. The interval of the share counts the requests for as many as they are worth, because those that
    wait together are late together. `holds`: even the share's upper end (one-sided) is allowed."""

    name: str
    requests: int
    late: Estimate
    latency_s: float
    allowed: float
    holds: bool

    @property
    def broken(self) -> bool:
        """Not even the lower end is allowed. Neither this nor `holds`: so many requests could not tell."""
        return self.late.low > self.allowed

    def as_json(self) -> dict[str, Any]:
        return {
            "demand": self.name,
            "requests": self.requests,
            "late": self.late.as_json(),
            "allowed": self.allowed,
            "latency_s": self.latency_s if math.isfinite(self.latency_s) else None,
            "holds": self.holds,
            "broken": self.broken,
            "simulated": True,
        }


def simulate(
    demands: Sequence[Demand],
    server: ServerType,
    *,
    order: Order = Order.FIFO,
    seed: int = 0,
    requests: int = 20_000,
    most: int = 200_000,
    confidence: float = 0.95,
) -> tuple[Check, ...]:
    """Simulate demands that share a server until the rarest has had so many `requests`, or all together `most`.

    A demand holds if even the upper end of its late share is allowed. One without a rate has nothing to be late.
    """
    live = [demand for demand in demands if demand.rate_per_s > 0]
    if not live:
        return ()
    total = sum(demand.rate_per_s for demand in live)
    duration_s = min(requests / min(demand.rate_per_s for demand in live), most / total)
    # A simulated server starts empty, which no server in use is.
    found = SimulatedServer(tuple(live), server, order, seed).run(duration_s=duration_s, warmup_s=duration_s / 10)
    return tuple(_check(demand, found[demand.name].latencies_s(), confidence) for demand in live)


def _check(demand: Demand, latencies_s: Floats, confidence: float) -> Check:
    late = latencies_s > demand.slo_s
    count, worth = len(late), max(1, int(len(late) / design_effect(late)))
    share = float(late.mean()) if count else 0.0
    misses = round(share * worth)
    tail = (1 - confidence) / 2
    limit = upper_bound(misses, worth, alpha=1 - confidence)
    return Check(
        demand.name,
        count,
        Estimate(share, lower_bound(misses, worth, alpha=tail), upper_bound(misses, worth, alpha=tail), confidence),
        float(np.quantile(latencies_s, demand.quantile)) if count else math.nan,
        1 - demand.quantile,
        count > 0 and limit <= 1 - demand.quantile,
    )


def contradiction(checks: Sequence[Check]) -> Reason | None:
    """Why a set does not hold after all, of the demand that is worst off."""
    broken = [check for check in checks if check.broken]
    if not broken:
        return None
    worst = max(broken, key=lambda check: check.late.value / check.allowed)
    return Reason(
        "simulation",
        f"{worst.late.value:.2%} of {worst.requests} simulated requests of {worst.name} were late, "
        f"{worst.allowed:.2%} may",
        {"model": worst.name, "late": worst.late.value, "allowed": worst.allowed, "requests": worst.requests},
    )


def limited(demands: Sequence[Demand], batches: Sequence[int]) -> list[Demand]:
    """The demands with batches up to these sizes only."""
    return [
        replace(demand, profile=demand.profile.up_to(batch)) for demand, batch in zip(demands, batches, strict=True)
    ]
