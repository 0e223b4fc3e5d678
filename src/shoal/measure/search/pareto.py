"""A frontier as it was found: its points, its proven regions, and what they say of any other mix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from shoal.core import Invalid, Reason
from shoal.measure.search.capacity import Capacity
from shoal.measure.search.judge import Goal, Verdict
from shoal.measure.search.monotone import Region
from shoal.measure.statistics import Estimate
from shoal.measure.types import Floats


@dataclass(frozen=True, slots=True)
class VectorTrial:
    """Rates that were tried together. `pressure` is the share of late requests over the one allowed, of the tenant
    with the largest; `broken_by` names the tenant whose objective was broken."""

    rates_per_s: Mapping[str, float]
    verdict: Verdict
    requests: int
    pressure: float
    broken_by: str | None = None


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """Where the front crosses a mix. `total` is the sum of normalised throughputs there, between the largest proven to
    be kept and the smallest proven to be broken; `rates_per_s` are those of its value."""

    mix: Mapping[str, float]
    total: Estimate
    rates_per_s: Mapping[str, float]
    trials: int


@dataclass(frozen=True, slots=True)
class Gap:
    """What monotony alone leaves open: outer minus inner staircase, in sums of normalised throughput, over all mixes
    (evenly drawn); `worst_mix` is where it is widest."""

    mean: float
    worst: float
    worst_mix: Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """The answer. `dedicated` is each tenant's capacity alone, in requests per second; `surprise` by how much the last
    points of the Pareto front were not where the others said. Each trial's verdict is right with `confidence`."""

    goals: Mapping[str, Goal]
    dedicated: Mapping[str, Estimate]
    points: tuple[ParetoPoint, ...]
    trials: tuple[VectorTrial, ...]
    region: Region
    gap: Gap
    surprise: float
    confidence: float
    reason: Reason
    capacities: Mapping[str, Capacity] = field(default_factory=dict)

    @property
    def tenants(self) -> tuple[str, ...]:
        return tuple(self.goals)

    @property
    def requests(self) -> int:
        """Spent in all, those for the dedicated capacities included."""
        alone = sum(capacity.requests for capacity in self.capacities.values())
        return alone + sum(trial.requests for trial in self.trials)

    def normalised(self, rates_per_s: Mapping[str, float]) -> Floats:
        """(tenants,); a tenant that is not named has rate 0."""
        unknown = sorted(set(rates_per_s) - set(self.goals))
        if unknown:
            raise Invalid(
                f"the Pareto front is not about {unknown}", where="rates", hint=f"known: {', '.join(self.goals)}"
            )
        return np.array([rates_per_s.get(name, 0.0) / self.dedicated[name].value for name in self.goals])

    def verdict(self, rates_per_s: Mapping[str, float]) -> Verdict:
        """Whether the server takes these rates, as far as the trials prove it; undecided between the staircases."""
        known = self.region.verdict(self.normalised(rates_per_s))
        return Verdict.UNDECIDED if known is None else Verdict.KEPT if known else Verdict.BROKEN

    def total(self, rates_per_s: Mapping[str, float]) -> Estimate:
        """The sum of normalised throughputs that the server takes at this mix of rates, however small or large they
        are together. The ends are proven; the value is interpolated between neighbouring points of the Pareto front."""
        vector = self.normalised(rates_per_s)
        if not vector.sum() > 0:
            raise Invalid("a mix needs at least one rate above 0", where="rates")
        mix = vector / vector.sum()
        low, high = float(self.region.inner(mix)[0]), float(self.region.outer(mix)[0])
        value = interpolated(self._corners(), mix)
        return Estimate(min(max(value, low), high), low, high, self.confidence)

    def saving(self, rates_per_s: Mapping[str, float]) -> Estimate:
        """Perseus' 1 - 1/total: the part of the dedicated servers' cost that sharing saves; negative if it costs."""
        total = self.total(rates_per_s)
        low = 1 - 1 / total.low if total.low > 0 else -math.inf
        return Estimate(1 - 1 / total.value, low, 1 - 1 / total.high, self.confidence)

    def _corners(self) -> list[Floats]:
        return [self.normalised(point.rates_per_s) for point in self.points]

    def as_json(self) -> dict[str, Any]:
        return {
            "goals": {name: asdict(goal) for name, goal in self.goals.items()},
            "dedicated_per_s": {name: one.as_json() for name, one in self.dedicated.items()},
            "points": [{**asdict(point), "total": point.total.as_json()} for point in self.points],
            "kept": [one.tolist() for one in self.region.kept],
            "broken": [one.tolist() for one in self.region.broken],
            "gap": asdict(self.gap),
            "confidence": self.confidence,
            "requests": self.requests,
            "surprise": self.surprise,
            "reason": self.reason.as_json(),
            "trials": [asdict(trial) for trial in self.trials],
        }


def interpolated(corners: Sequence[Floats], mix: Floats) -> float:
    """The factor at which a mix (n,) meets the Pareto front, if that is flat between neighbouring corners.

    On a plane the inverse of the factor is linear in the mix. Neighbours are the corners of a Delaunay triangulation of
    the corners' mixes, which include the tenants alone and so surround every mix. The triangle that holds one mix is
    found without the others by a linear program: triangulations of Delaunay's kind are lower hulls of the paraboloid
    (Edelsbrunner and Seidel 1986).
    """
    from scipy.optimize import linprog

    points = np.stack(corners)
    totals = points.sum(axis=1)
    shares = points / totals[:, None]
    weights = linprog((shares**2).sum(axis=1), A_eq=shares.T, b_eq=mix, bounds=(0, None), method="highs").x
    return 1.0 if weights is None else float(weights.sum() / (weights @ (1 / totals)))
