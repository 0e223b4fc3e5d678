"""May these models share this server? What a model of that answers, and the answer of a simulation.

Two models stand behind one protocol: `Queueing` (a proven bound) and `Simulated`. A set that holds keeps holding when a
demand is taken away, exactly so for `Queueing`; packers count on it to skip sets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from shoal.core import Reason
from shoal.measure.planning.profiles import Demand, ServerType
from shoal.measure.planning.simulated import Serve, SimulatedServer
from shoal.measure.search.judge import Effort, Goal, Judge, Verdict
from shoal.measure.statistics import Estimate, quantile_of
from shoal.measure.types import Floats


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
    """`asks` is how many sets it is reasonable to ask about in one search: a few ten seconds' worth."""

    name: str
    asks: int

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
    latency in seconds. A refused request is late, and takes for ever. Neither `holds` nor `broken`: this number
    of requests could not tell."""

    name: str
    requests: int
    late: Estimate
    latency_s: float
    allowed: float
    verdict: Verdict

    @property
    def holds(self) -> bool:
        return self.verdict is Verdict.KEPT

    @property
    def broken(self) -> bool:
        return self.verdict is Verdict.BROKEN

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
    serve: Serve,
    seed: int = 0,
    effort: Effort | None = None,
    most: int = 200_000,
) -> tuple[Check, ...]:
    """Simulate demands that share a server until one surely breaks its objective, or all surely keep it.

    The nearer a demand is to its limit, the more of its requests that takes: `effort.most_requests` of each at most,
    and `most` of all together, in which a rare demand beside frequent ones may remain undecided. One without a rate has
    nothing to be late.
    """
    live = {demand.name: demand for demand in demands if demand.rate_per_s > 0}
    if not live:
        return ()
    effort = effort or Effort()
    # What is said of all of them is as sure as the effort asks (Bonferroni).
    surer = replace(effort, confidence=1 - (1 - effort.confidence) / len(live))
    judges = {name: Judge(Goal(demand.slo_s, demand.quantile), surer) for name, demand in live.items()}

    def enough(samples: Mapping[str, Floats]) -> bool:
        done = [judge(samples[name]) for name, judge in judges.items()]
        broken = any(judge.verdict is Verdict.BROKEN for judge in judges.values())
        return broken or all(done) or sum(judge.requests for judge in judges.values()) >= most

    simulated = SimulatedServer(tuple(live.values()), server, serve, seed)
    simulated.probe()({name: demand.rate_per_s for name, demand in live.items()}, enough)
    return tuple(_check(live[name], judge) for name, judge in judges.items())


def _check(demand: Demand, judge: Judge) -> Check:
    trial, latencies_s = judge.finish(demand.rate_per_s), judge.latencies_s
    latency_s = quantile_of(latencies_s, demand.quantile)
    return Check(demand.name, trial.requests, trial.share, latency_s, 1 - demand.quantile, trial.verdict)


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
