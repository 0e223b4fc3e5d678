"""What serving costs: alone or shared, per hour, and per thousand requests that kept their objective.

Perseus' model (LeMay et al., IC2E '20): a server has a price per hour and takes so many requests per second within the
objective, so a request costs price / rate. Tenants that share take a sum S of normalised throughputs of one server,
where they alone would need S servers: sharing saves 1 - 1/S.

Money that somebody is billed is `Money`, and the tenants' parts add up to the bill exactly; what is estimated from
samples is an `Estimate` in dollars.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.core import Invalid, Money
from shoal.measure.judge import Goal
from shoal.measure.statistics import Estimate
from shoal.measure.types import LoadResult

Floats = NDArray[np.float64]

_RESAMPLES = 2_000
_GRAIN = 1_000_000
"""Shares of a bill are rounded to millionths before it is split."""


@dataclass(frozen=True, slots=True)
class Consolidation:
    """Perseus' figures for one mix. `total` is the sum of normalised throughputs, `saving` is 1 - 1/total."""

    total: Estimate
    saving: Estimate

    def as_json(self) -> dict[str, Any]:
        return {"total": self.total.as_json(), "saving": self.saving.as_json()}


def consolidation(
    dedicated_per_s: Mapping[str, Sequence[float]],
    shared_per_s: Mapping[str, Sequence[float]],
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> Consolidation:
    """From repeated measurements by tenant: capacities alone, and throughputs sustained together (all within the
    objectives). The interval is a percentile bootstrap over the repeats; where somebody has but one, it is open.

    Raises Invalid for tenants without measurements, or with rates that are not positive.
    """
    if not shared_per_s or set(shared_per_s) - set(dedicated_per_s):
        raise Invalid("every tenant needs its dedicated capacity", where="dedicated", hint=", ".join(shared_per_s))
    pairs = []
    for name, rates in shared_per_s.items():
        alone, shared = np.asarray(dedicated_per_s[name], float), np.asarray(rates, float)
        if not alone.size or not shared.size or not (alone > 0).all() or not (shared >= 0).all():
            raise Invalid("rates must be given, and positive alone", where=name)
        pairs.append((alone, shared))
    rng = np.random.default_rng(seed)

    def drawn(values: Floats) -> Floats:
        return np.asarray(values[rng.integers(0, len(values), size=(_RESAMPLES, len(values)))].mean(axis=1))

    value = float(sum(shared.mean() / alone.mean() for alone, shared in pairs))
    if not value:
        raise Invalid("nobody's throughput is above 0", where="shared")
    if min(values.size for pair in pairs for values in pair) < 2:
        unknown = np.array([-math.inf, math.inf])
        return Consolidation(_percentiles(value, unknown, confidence), _percentiles(1 - 1 / value, unknown, confidence))
    samples = np.sum([drawn(shared) / drawn(alone) for alone, shared in pairs], axis=0)
    total = _percentiles(value, samples, confidence)
    with np.errstate(divide="ignore"):
        return Consolidation(total, _percentiles(1 - 1 / value, 1 - 1 / samples, confidence))


@dataclass(frozen=True, slots=True)
class MixCost:
    """What a wanted mix costs. `dedicated` and `shared` are servers as if they could be cut, the `whole_` ones as they
    must be rented; prices per hour follow from them."""

    dedicated: Estimate
    shared: Estimate
    whole_dedicated: int
    whole_shared: int
    per_server_hour: Money

    @property
    def saving(self) -> Estimate:
        """Of servers that could be cut: 1 - 1/total."""
        return Estimate(
            1 - self.shared.value / self.dedicated.value,
            1 - self.shared.high / self.dedicated.value,
            1 - self.shared.low / self.dedicated.value,
            self.shared.confidence,
        )

    @property
    def dedicated_per_hour(self) -> Money:
        return self.per_server_hour * self.whole_dedicated

    @property
    def shared_per_hour(self) -> Money:
        return self.per_server_hour * self.whole_shared

    def as_json(self) -> dict[str, Any]:
        return {
            "servers": {"dedicated": self.dedicated.as_json(), "shared": self.shared.as_json()},
            "whole_servers": {"dedicated": self.whole_dedicated, "shared": self.whole_shared},
            "per_hour_micro_usd": {
                "server": self.per_server_hour.micro_usd,
                "dedicated": self.dedicated_per_hour.micro_usd,
                "shared": self.shared_per_hour.micro_usd,
            },
            "saving": self.saving.as_json(),
        }


def mix_cost(
    rates_per_s: Mapping[str, float], dedicated_per_s: Mapping[str, float], total: Estimate, per_server_hour: Money
) -> MixCost:
    """Servers for these rates, apart and together. `total` is the sum of normalised throughputs that one server takes
    at this mix (`Frontier.total`)."""
    parts = {name: rate / dedicated_per_s[name] for name, rate in rates_per_s.items() if rate > 0}
    if not parts or not total.value > 0:
        raise Invalid("a mix needs at least one rate above 0, and a server that takes some of it", where="rates")
    alone = math.fsum(parts.values())
    shared = Estimate(
        alone / total.value, alone / total.high, alone / total.low if total.low > 0 else math.inf, total.confidence
    )
    return MixCost(
        dedicated=Estimate(alone, alone, alone, total.confidence),
        shared=shared,
        whole_dedicated=sum(_whole(part) for part in parts.values()),
        whole_shared=_whole(shared.value),
        per_server_hour=per_server_hour,
    )


@dataclass(frozen=True, slots=True)
class Bill:
    """One tenant's part. `per_thousand` is dollars per 1,000 requests that kept the objective."""

    tenant: str
    cost: Money
    requests: int
    within: int
    per_thousand: Estimate

    def as_json(self) -> dict[str, Any]:
        return {
            "tenant": self.tenant,
            "cost_micro_usd": self.cost.micro_usd,
            "requests": self.requests,
            "within_slo": self.within,
            "usd_per_thousand_within_slo": self.per_thousand.as_json(),
        }


@dataclass(frozen=True, slots=True)
class TraceCost:
    """The same trace on servers of their own and on shared ones. `saving` compares the costs of a request within its
    objective: sharing that breaks objectives saves nothing."""

    dedicated: tuple[Bill, ...]
    shared: tuple[Bill, ...]
    saving: Estimate

    @property
    def dedicated_cost(self) -> Money:
        return sum((bill.cost for bill in self.dedicated), Money())

    @property
    def shared_cost(self) -> Money:
        return sum((bill.cost for bill in self.shared), Money())

    def as_json(self) -> dict[str, Any]:
        return {
            "dedicated": [bill.as_json() for bill in self.dedicated],
            "shared": [bill.as_json() for bill in self.shared],
            "dedicated_cost_micro_usd": self.dedicated_cost.micro_usd,
            "shared_cost_micro_usd": self.shared_cost.micro_usd,
            "saving": self.saving.as_json(),
        }


def trace_cost(
    dedicated: Mapping[str, LoadResult],
    shared: Mapping[str, LoadResult],
    goals: Mapping[str, Goal],
    per_server_hour: Money,
    *,
    shared_servers: int = 1,
    use: Mapping[str, float] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> TraceCost:
    """What the measured windows cost: a server for each tenant, or `shared_servers` for all.

    The shared bill is split by `use` (slot-seconds, say; None takes what the server's statistics count as compute, or
    requests where they do not). Intervals are block bootstraps, so that requests that were late together count as what
    they are. Raises Invalid where the two do not have the same tenants.
    """
    names = list(dedicated)
    if not names or set(names) != set(shared) or set(names) - set(goals):
        raise Invalid(
            "the two runs and the objectives must be of the same tenants",
            where="trace",
            hint=f"dedicated: {', '.join(dedicated)}; shared: {', '.join(shared)}; objectives: {', '.join(goals)}",
        )
    rng = np.random.default_rng(seed)
    apart_cost = {name: per_server_hour * (dedicated[name].duration_s / 3600) for name in names}
    hours = max(shared[name].duration_s for name in names) / 3600
    shares = [use[name] for name in names] if use is not None else _use([shared[name] for name in names])
    parts = split(per_server_hour * (shared_servers * hours), shares)
    apart_drawn = {name: _within_draws(dedicated[name], goals[name], rng) for name in names}
    together_drawn = {name: _within_draws(shared[name], goals[name], rng) for name in names}
    apart = tuple(
        _bill(name, apart_cost[name], dedicated[name], goals[name], apart_drawn[name], confidence) for name in names
    )
    together = tuple(
        _bill(name, part, shared[name], goals[name], together_drawn[name], confidence)
        for name, part in zip(names, parts, strict=True)
    )
    ratio = sum((bill.cost for bill in together), Money()).micro_usd / max(
        1, sum((bill.cost for bill in apart), Money()).micro_usd
    )
    kept = sum(bill.within for bill in apart), sum(bill.within for bill in together)
    drawn = sum(apart_drawn.values()), sum(together_drawn.values())
    with np.errstate(divide="ignore", invalid="ignore"):
        samples = 1 - ratio * np.asarray(drawn[0], float) / np.asarray(drawn[1], float)
    value = 1 - ratio * kept[0] / kept[1] if kept[1] else -math.inf
    return TraceCost(apart, together, _percentiles(value, samples, confidence))


def split(bill: Money, use: Sequence[float]) -> tuple[Money, ...]:
    """Parts in proportion to use that add up to the bill exactly; equal ones where nobody used anything.

    Raises Invalid for a use that is negative or no number.
    """
    if not use or not all(math.isfinite(one) and one >= 0 for one in use):
        raise Invalid(f"use must be finite and not negative: {list(use)}", where="use")
    largest = max(use)
    weights = tuple(round(one / largest * _GRAIN) for one in use) if largest > 0 else (1,) * len(use)
    return bill.split(weights)


def _use(results: Sequence[LoadResult]) -> list[float]:
    counted = [result.server.compute_s * result.server.requests for result in results if result.server is not None]
    return counted if len(counted) == len(results) else [float(result.count()) for result in results]


def _bill(name: str, cost: Money, result: LoadResult, goal: Goal, drawn: Floats, confidence: float) -> Bill:
    within = int(np.count_nonzero(result.latencies_or_inf_s() <= goal.slo_s))
    usd = cost.micro_usd / 1e6
    with np.errstate(divide="ignore"):
        samples = usd * 1000 / drawn
    value = usd * 1000 / within if within else math.inf
    return Bill(name, cost, result.count(), within, _percentiles(value, samples, confidence))


def _within_draws(result: LoadResult, goal: Goal, rng: np.random.Generator) -> Floats:
    """Resampled numbers of requests within the objective, (resamples,), by circular blocks of n^(1/3) requests."""
    within = (result.latencies_or_inf_s() <= goal.slo_s).astype(np.float64)
    count = len(within)
    if not count:
        return np.zeros(_RESAMPLES)
    length = min(count, math.ceil(count ** (1 / 3)))
    sums = np.concatenate([[0.0], np.cumsum(np.concatenate([within, within[: length - 1]]))])
    of_block = sums[length:] - sums[:-length]
    blocks = math.ceil(count / length)
    drawn = np.array([of_block[rng.integers(0, count, blocks)].sum() for _ in range(_RESAMPLES)])
    return np.asarray(drawn * (count / (blocks * length)))


def _percentiles(value: float, samples: Floats, confidence: float) -> Estimate:
    known = samples[~np.isnan(samples)]
    if not known.size:
        return Estimate(value, -math.inf, math.inf, confidence)
    tail = (1 - confidence) / 2
    # Interpolating between infinities is no number, so the ends are samples.
    low, high = np.quantile(known, [tail, 1 - tail], method="inverted_cdf")
    return Estimate(value, min(value, float(low)), max(value, float(high)), confidence)


def _whole(servers: float) -> int:
    return max(1, math.ceil(servers - 1e-9))
