"""How long transient servers live: a hazard for each hour of age, Bayesian, censored at the longest life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from shoal.core import Invalid
from shoal.forecast.fitting import check_version, versioned

_KIND = "lifetimes"
HOUR_S = 3600.0
_CONCENTRATIONS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 1e3)
_SMOOTHINGS = (3.0, 10.0, 30.0, 100.0, 300.0)


@dataclass(frozen=True)
class Exposure:
    """Servers of one kind in one region: how many lived at the start of each hour of age, and how many were revoked in
    it. A server that its user ended, or that reached the longest life, was at risk and not revoked."""

    at_risk: tuple[int, ...]
    revoked: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.at_risk) != len(self.revoked) or not self.at_risk:
            raise Invalid("lifetimes need servers at risk and revocations for the same hours of age, one at least")
        if any(not 0 <= gone <= risk for gone, risk in zip(self.revoked, self.at_risk, strict=True)):
            raise Invalid("in some hour more servers were revoked than were at risk")

    @classmethod
    def of(cls, lives_s: Sequence[tuple[float, bool]], hours: int) -> Self:
        """From lives in seconds, and whether each ended by revocation."""
        ended = [(min(int(life / HOUR_S), hours), gone) for life, gone in lives_s]
        # A life that was cut short by something else counts for its whole hours only.
        risk = [sum(last > hour or (last == hour and gone) for last, gone in ended) for hour in range(hours)]
        return cls(tuple(risk), tuple(sum(last == hour and gone for last, gone in ended) for hour in range(hours)))


@dataclass(frozen=True)
class HourlyLifetimes:
    """The hazard of each hour is drawn from a Beta distribution that all regions share; what was seen in a region moves
    it there. `alpha` and `beta` are that distribution, by hour. No server outlives the last hour."""

    alpha: tuple[float, ...]
    beta: tuple[float, ...]
    seen: Mapping[tuple[str, str], Exposure]

    @classmethod
    def fit(cls, seen: Mapping[tuple[str, str], Exposure]) -> Self:
        """By kind and region. How much regions differ is what makes all that was seen most likely."""
        if not seen:
            raise Invalid("no lifetimes were seen")
        if len({len(one.at_risk) for one in seen.values()}) > 1:
            raise Invalid("lifetimes of all regions must cover the same hours of age")
        risk = np.array([one.at_risk for one in seen.values()], float)
        gone = np.array([one.revoked for one in seen.values()], float)

        def prior(smoothing: float, concentration: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            usual = (gone.sum() + 0.5) / (risk.sum() + 1.0)
            mean = (gone.sum(axis=0) + smoothing * usual) / (risk.sum(axis=0) + smoothing)
            return mean * concentration, (1 - mean) * concentration

        def likelihood(choice: tuple[float, float]) -> float:
            alpha, beta = prior(*choice)
            return float((betaln(alpha + gone, beta + risk - gone) - betaln(alpha, beta)).sum())

        alpha, beta = prior(*max(product(_SMOOTHINGS, _CONCENTRATIONS), key=likelihood))
        return cls(tuple(alpha.tolist()), tuple(beta.tolist()), dict(seen))

    def log_likelihood(self, one: Exposure) -> float:
        """Of all servers of a region together, before any of them was seen."""
        alpha, beta = np.array(self.alpha), np.array(self.beta)
        gone, risk = np.array(one.revoked), np.array(one.at_risk)
        return float((betaln(alpha + gone, beta + risk - gone) - betaln(alpha, beta)).sum())

    def survival(self, kind: str, region: str, age_s: float, ahead_s: float) -> float:
        """The probability that a server of this age is there `ahead_s` later; of the shared hazard where nothing was
        seen of this kind in this region. Within an hour the hazard is constant."""
        if age_s < 0 or ahead_s < 0:
            raise Invalid(f"ages and times ahead are not negative: {age_s:g}, {ahead_s:g}")
        end = age_s + ahead_s
        if end >= len(self.alpha) * HOUR_S:
            return 0.0
        stays = 1.0
        for hour in range(int(age_s // HOUR_S), int(end // HOUR_S) + 1):
            part = min(end / HOUR_S, hour + 1) - max(age_s / HOUR_S, hour)
            stays *= (1 - self._hazard(kind, region, hour)) ** part
        return stays

    def mean_life_s(self, kind: str, region: str) -> float:
        """The mean life of a new server, in seconds."""
        hours = len(self.alpha)
        kept = [self.survival(kind, region, 0.0, hour * HOUR_S) for hour in range(hours + 1)]
        # At the longest life those that are left end together: the last hour counts in full for them.
        last = kept[-2] * (1 - self._hazard(kind, region, hours - 1))
        return HOUR_S * (sum((a + b) / 2 for a, b in pairwise(kept[:-1])) + (kept[-2] + last) / 2)

    def _hazard(self, kind: str, region: str, hour: int) -> float:
        alpha, beta = self.alpha[hour], self.beta[hour]
        found = self.seen.get((kind, region))
        if found is not None:
            alpha, beta = alpha + found.revoked[hour], beta + found.at_risk[hour] - found.revoked[hour]
        return alpha / (alpha + beta)

    def as_json(self) -> dict[str, Any]:
        seen = [
            {"kind": kind, "region": region, "at_risk": list(one.at_risk), "revoked": list(one.revoked)}
            for (kind, region), one in self.seen.items()
        ]
        return versioned(_KIND, {"alpha": list(self.alpha), "beta": list(self.beta), "seen": seen})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        check_version(_KIND, data)
        seen = {
            (one["kind"], one["region"]): Exposure(tuple(one["at_risk"]), tuple(one["revoked"])) for one in data["seen"]
        }
        return cls(tuple(data["alpha"]), tuple(data["beta"]), seen)
