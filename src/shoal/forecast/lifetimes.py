"""Lifetimes of transient servers: a hazard for each hour of age, Bayesian, censored at the longest life."""

from __future__ import annotations

import math
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
Array = NDArray[np.float64]
_CONCENTRATIONS = (2.0, 4.0, 8.0, 16.0, 32.0, 1e3)
_SMOOTHINGS = (10.0, 30.0)
_KIND_WEIGHTS = (10.0, 30.0, 100.0, 1e9)
_DAY = 24
_DAY_PRIOR = 24.0
"""Revocations' worth of belief in the pattern of hours that was seen in other places."""
_DAY_WIDTH_H = 2.0


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
    """The hazard of each hour of age is drawn from a Beta distribution that all regions of a kind share, and whose mean
    leans towards that of all kinds; what was seen in a region moves it there. `alpha` and `beta` are that distribution,
    by kind and hour; the empty name stands for kinds never seen. No server outlives the last hour."""

    alpha: Mapping[str, tuple[float, ...]]
    beta: Mapping[str, tuple[float, ...]]
    seen: Mapping[tuple[str, str], Exposure]
    by_hour: tuple[float, ...] = (1.0,) * _DAY
    """The hazard at each hour of the day, as a part of its mean."""

    @classmethod
    def fit(cls, seen: Mapping[tuple[str, str], Exposure], revoked_at: Sequence[int] = ()) -> Self:
        """By kind and region; `revoked_at` are revocations by hour of the day, where these are known. How much regions
        and kinds differ is what predicts each region best from the others."""
        if not seen:
            raise Invalid("no lifetimes were seen")
        if len({len(one.at_risk) for one in seen.values()}) > 1:
            raise Invalid("lifetimes of all regions must cover the same hours of age")
        counts = {key: (np.array(one.at_risk, float), np.array(one.revoked, float)) for key, one in seen.items()}

        def foretold(choice: tuple[float, float, float]) -> float:
            total = 0.0
            for key, (risk, gone) in counts.items():
                others = {k: c for k, c in counts.items() if k != key} or counts
                alpha, beta = _prior(others, key[0], *choice)
                total += float((betaln(alpha + gone, beta + risk - gone) - betaln(alpha, beta)).sum())
            return total

        best = max(product(_KIND_WEIGHTS, _SMOOTHINGS, _CONCENTRATIONS), key=foretold)
        priors = {kind: _prior(counts, kind, *best) for kind in ("", *sorted({kind for kind, _ in seen}))}
        return cls(
            {kind: tuple(alpha.tolist()) for kind, (alpha, _) in priors.items()},
            {kind: tuple(beta.tolist()) for kind, (_, beta) in priors.items()},
            dict(seen), hour_factors(revoked_at) if revoked_at else (1.0,) * _DAY,
        )  # fmt: skip

    def log_likelihood(self, kind: str, one: Exposure) -> float:
        """Of all servers of a region together, before any of them was seen."""
        alpha, beta = (np.array(of.get(kind, of[""])) for of in (self.alpha, self.beta))
        gone, risk = np.array(one.revoked), np.array(one.at_risk)
        return float((betaln(alpha + gone, beta + risk - gone) - betaln(alpha, beta)).sum())

    def survival(self, kind: str, region: str, age_s: float, ahead_s: float, clock_h: float | None = None) -> float:
        """The probability that a server of this age is there `ahead_s` later; of the kind's hazard where nothing was
        seen in this region. `clock_h` is the hour of the day now, where it is to count. Within an hour of age and of
        the day the hazard is constant."""
        if age_s < 0 or ahead_s < 0:
            raise Invalid(f"ages and times ahead are not negative: {age_s:g}, {ahead_s:g}")
        begin, end = age_s / HOUR_S, (age_s + ahead_s) / HOUR_S
        if end >= len(self.alpha[""]):
            return 0.0
        turned = 0.0 if clock_h is None else (clock_h - begin) % 1  # where the clock's hours lie on those of age
        edges = {begin, end, *range(math.ceil(begin), math.ceil(end))}
        if clock_h is not None:
            edges |= {hour - turned for hour in range(math.ceil(begin + turned), math.ceil(end + turned))}
        stays = 1.0
        for low, high in pairwise(sorted(edges)):
            middle = (low + high) / 2
            factor = 1.0 if clock_h is None else self.by_hour[int((clock_h + middle - begin) % _DAY)]
            stays *= (1 - self._hazard(kind, region, int(middle))) ** ((high - low) * factor)
        return stays

    def mean_life_s(self, kind: str, region: str) -> float:
        """The mean life of a new server, in seconds."""
        hours = len(self.alpha[""])
        kept = [self.survival(kind, region, 0.0, hour * HOUR_S) for hour in range(hours + 1)]
        # At the longest life those that are left end together: the last hour counts in full for them.
        last = kept[-2] * (1 - self._hazard(kind, region, hours - 1))
        return HOUR_S * (sum((a + b) / 2 for a, b in pairwise(kept[:-1])) + (kept[-2] + last) / 2)

    def _hazard(self, kind: str, region: str, hour: int) -> float:
        alpha, beta = (of.get(kind, of[""])[hour] for of in (self.alpha, self.beta))
        found = self.seen.get((kind, region))
        if found is not None:
            alpha, beta = alpha + found.revoked[hour], beta + found.at_risk[hour] - found.revoked[hour]
        return alpha / (alpha + beta)

    def as_json(self) -> dict[str, Any]:
        seen = [
            {"kind": kind, "region": region, "at_risk": list(one.at_risk), "revoked": list(one.revoked)}
            for (kind, region), one in self.seen.items()
        ]
        priors = {kind: {"alpha": list(self.alpha[kind]), "beta": list(self.beta[kind])} for kind in self.alpha}
        return versioned(_KIND, {"kinds": priors, "by_hour": list(self.by_hour), "seen": seen})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        check_version(_KIND, data)
        seen = {
            (one["kind"], one["region"]): Exposure(tuple(one["at_risk"]), tuple(one["revoked"])) for one in data["seen"]
        }
        kinds = data["kinds"]
        return cls(
            {kind: tuple(of["alpha"]) for kind, of in kinds.items()},
            {kind: tuple(of["beta"]) for kind, of in kinds.items()},
            seen, tuple(data["by_hour"]),
        )  # fmt: skip


def hour_factors(revoked_at: Sequence[int]) -> tuple[float, ...]:
    """The hazard at each hour of the day as a part of its mean, from revocations by hour, as if equally many servers
    ran at all hours. Counts are smoothed over two hours and shrunk towards an even day."""
    if len(revoked_at) != _DAY or min(revoked_at) < 0:
        raise Invalid("revocations by hour of the day are 24 counts")
    hours = np.arange(_DAY)
    apart = np.minimum((hours[:, None] - hours) % _DAY, (hours - hours[:, None]) % _DAY)
    near = np.exp(-((apart / _DAY_WIDTH_H) ** 2) / 2)
    smooth = (near / near.sum(axis=1, keepdims=True)) @ np.asarray(revoked_at, float) + _DAY_PRIOR / _DAY
    return tuple((smooth / smooth.mean()).tolist())


def _prior(
    counts: Mapping[tuple[str, str], tuple[Array, Array]], kind: str, weight: float, smoothing: float, apart: float
) -> tuple[Array, Array]:
    """Of a region of this kind: `smoothing` servers' worth of one hazard for all hours, `weight` of that of all kinds,
    and `apart`, the larger the more alike regions are."""
    risk, gone = (np.sum([one[at] for one in counts.values()], axis=0) for at in (0, 1))
    usual = (gone.sum() + 0.5) / (risk.sum() + 1.0)
    mean = (gone + smoothing * usual) / (risk + smoothing)
    own = [one for (of, _), one in counts.items() if of == kind]
    if own:
        own_risk, own_gone = (np.sum([one[at] for one in own], axis=0) for at in (0, 1))
        mean = (own_gone + weight * mean) / (own_risk + weight)
    return mean * apart, (1 - mean) * apart
