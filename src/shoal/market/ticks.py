"""A history cut into ticks, and a job in the same unit: what policies, the simulator and the optimum compute with."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shoal.core import Invalid
from shoal.market.history import Floats, History, Offer, Track
from shoal.market.tables import egress_usd_per_gb

Bools = NDArray[np.bool_]

_DAY_S = 86_400.0

_REGION = re.compile(r"[a-z]+[a-z-]*\d+")
"""Data may be at home where nothing is offered; what is no name of a region is a slip."""


@dataclass(frozen=True, slots=True)
class Job:
    """`work_s` is seconds on an accelerator of speed 1. A launch takes `launch_s` without work; an instance that is
    taken away loses `lost_s` of work (0 with a notice long enough for a checkpoint). A launch away from `home` reads
    the data and the state over the network."""

    work_s: float
    deadline_s: float
    launch_s: float = 600.0
    lost_s: float = 0.0
    nodes: int = 1
    state_gb: float = 0.0
    data_gb: float = 0.0
    home: str = ""

    def __post_init__(self) -> None:
        for name in ("work_s", "deadline_s", "nodes"):
            if not 0 < getattr(self, name) < math.inf:
                raise Invalid(f"{name.removesuffix('_s')} must be positive and finite, not {getattr(self, name):g}")
        for name in ("launch_s", "lost_s", "state_gb", "data_gb"):
            if not 0 <= getattr(self, name) < math.inf:
                raise Invalid(f"{name.removesuffix('_s')} must be 0 or more and finite, not {getattr(self, name):g}")


@dataclass(frozen=True)
class Ticks:
    """Offers over ticks: `usd[t, j]` for a whole tick of all nodes, `up[t, j]` whether they can be had; `speed[j]` is
    work per tick, in ticks of an accelerator of speed 1; `launch_usd[j]` is what a launch costs in egress. Work,
    deadline, launch and loss are in ticks.

    `refused[t, j]` says that a launch fails at this tick although the offer seems to be there; policies do not see it.
    `retries` is the greatest number of refusals on demand in a row that the deadline must survive."""

    offers: tuple[Offer, ...]
    usd: Floats
    up: Bools
    speed: Floats
    launch_usd: Floats
    tick_s: float
    work: float
    deadline: int
    launch: int
    lost: float
    refused: Bools | None = None
    retries: int = 0

    def __post_init__(self) -> None:
        steady = [j for j, offer in enumerate(self.offers) if not offer.spot]
        if not steady:
            raise Invalid("a deadline needs an offer on demand", hint="give --on-demand, or a catalogue with its price")
        if not self.up[:, steady].all():
            raise Invalid("offers on demand are taken to be always there")

    @cached_property
    def spot(self) -> Bools:
        return np.array([offer.spot for offer in self.offers])

    @cached_property
    def fallback(self) -> int:
        """The fastest offer on demand, the cheapest of them: the deadline is kept by it."""
        rank = [(offer.spot, -self.speed[j], self.usd[0, j]) for j, offer in enumerate(self.offers)]
        return rank.index(min(rank))

    def needed(self, work: float, running: int | None, launching: int) -> int:
        """Ticks in which the fallback surely ends this work."""
        before = launching if running == self.fallback else self.retries + self.launch
        return before + math.ceil(work / float(self.speed[self.fallback]) - 1e-9)

    def begins(self, tick: int, offer: int) -> bool:
        """Whether a launch at this tick succeeds."""
        return bool(self.up[tick, offer]) and (self.refused is None or not self.refused[tick, offer])

    def window(self, start: int, deadline: int | None = None) -> Ticks:
        """The same job, started at a later tick."""
        ticks = deadline or self.deadline
        if start < 0 or start + ticks > len(self.up):
            raise Invalid(f"the history ends {start + ticks - len(self.up)} ticks before the deadline")
        end = start + ticks
        refused = None if self.refused is None else self.refused[start:end]
        return replace(self, usd=self.usd[start:end], up=self.up[start:end], refused=refused, deadline=ticks)

    def refusing(self, spot: float, on_demand: float = 0.0, retries: int = 0, seed: int = 0) -> Ticks:
        """The same market, in which this part of the launches fails: each tick and offer by chance, on demand at most
        `retries` times in a row. A deadline then allows for that many."""
        if not (0 <= spot <= 1 and 0 <= on_demand <= 1):
            raise Invalid("the part of launches that fail lies between 0 and 1")
        if retries < 0 or (on_demand > 0 and retries == 0):
            raise Invalid("launches on demand that may fail need a number of retries")
        drawn = np.random.default_rng(seed).random(self.up.shape)
        refused: Bools = drawn < np.where(self.spot, spot, on_demand)
        for j in np.flatnonzero(~self.spot):
            row = 0
            for t in range(len(refused)):
                row = row + 1 if refused[t, j] and row < retries else 0
                refused[t, j] = row > 0
        return replace(self, refused=refused, retries=retries)


def cut(
    history: History,
    job: Job,
    *,
    tick_s: float = 600.0,
    on_demand_usd: Mapping[str, float] | float | None = None,
    spot_usd: float | None = None,
    speeds: Mapping[str, float] | None = None,
) -> Ticks:
    """The part of a history in which all its offers have data. `on_demand_usd` is per accelerator and hour, for
    instances that the history has no price on demand of; `spot_usd` that of traces without prices. `speeds` are of
    whole instances, by kind and number (`v100:8`) or by kind, 1 unless given. Mappings have the same keys."""
    if not 0 < tick_s < math.inf:
        raise Invalid(f"a tick must be positive and finite, not {tick_s:g}", where="--tick")
    asked_usd = on_demand_usd.values() if isinstance(on_demand_usd, Mapping) else (on_demand_usd,)
    for usd_per_hour in (*asked_usd, spot_usd):
        if usd_per_hour is not None and not 0 < usd_per_hour < math.inf:
            raise Invalid(
                f"a price must be positive and finite, not {usd_per_hour:g}", hint="dollars an hour are meant"
            )
    pairs = sorted(_priced(history).items())
    regions = sorted({offer.region for offer, _ in pairs})
    if job.home and job.home not in regions and not _REGION.fullmatch(job.home):
        raise Invalid(f"no offer is in region {job.home!r}", hint="data may be at home in " + ", ".join(regions))
    ends = [_extent(track) for _, track in pairs]
    first, last = max(low for low, _ in ends), min(high for _, high in ends)
    first, last = (first, last) if math.isfinite(last - first) else (0.0, _DAY_S)
    count = int((last - first) // tick_s)
    if count < 1:
        raise Invalid("the offers' histories have no common time", hint="choose by --region or --accelerator")
    edges = np.asarray(first + np.arange(count + 1) * tick_s, dtype=np.float64)
    offers, usd, up = [], [], []
    for offer, track in pairs:
        offers.append(offer)
        if track.prices is not None:
            asked = track.prices.means(edges)
        elif spot_usd is not None:
            asked = np.full(count, spot_usd * offer.accelerators)
        else:
            raise Invalid(f"{offer.name} has no prices", hint="give --spot-price for traces of availability")
        had = np.ones(count, bool) if track.availability is None else track.availability.up(edges, job.nodes)
        usd.append(asked * tick_s / 3600 * job.nodes)
        up.append(had & np.isfinite(asked) if offer.spot else np.ones(count, bool))
    for offer, price in _on_demand([offer for offer, _ in pairs], job.home, on_demand_usd):
        offers.append(offer)
        usd.append(np.full(count, price * offer.accelerators * tick_s / 3600 * job.nodes))
        up.append(np.ones(count, bool))
    gigabytes = job.state_gb + job.data_gb
    home = job.home or offers[0].region
    return Ticks(
        offers=tuple(offers), usd=np.stack(usd, axis=1), up=np.stack(up, axis=1),
        speed=np.array([of_shape(speeds or {}, offer, 1.0) for offer in offers]),
        launch_usd=np.array([gigabytes * egress_usd_per_gb(_provider(home, offers), home, offer) for offer in offers]),
        tick_s=tick_s, work=job.work_s / tick_s, deadline=int(job.deadline_s // tick_s),
        launch=math.ceil(job.launch_s / tick_s - 1e-9), lost=job.lost_s / tick_s,
    )  # fmt: skip


def _provider(region: str, offers: Sequence[Offer]) -> str:
    return next((offer.provider for offer in offers if offer.region == region), offers[0].provider)


def shape(offer: Offer) -> str:
    """The kind of its accelerators, and how many it has where that is more than one: `v100:8`."""
    return offer.accelerator if offer.accelerators == 1 else f"{offer.accelerator}:{offer.accelerators}"


def of_shape(values: Mapping[str, float], offer: Offer, otherwise: float) -> float:
    """The value for this kind and number, or else for the kind."""
    return values.get(shape(offer), values.get(offer.accelerator, otherwise))


def _priced(history: History) -> dict[Offer, Track]:
    """Tracks, in which a trace without prices has those of the same accelerators in the same zone: a price without
    a trace would count as always there. Of several the cheapest now."""
    tracks = dict(history.tracks)
    for offer, track in history.tracks.items():
        if track.prices is not None:
            continue
        place = (offer.provider, offer.zone, offer.accelerator, offer.accelerators, offer.spot)
        twins = [
            (float(other.prices.usd[-1]), one) for one, other in history.tracks.items()
            if other.prices is not None and other.availability is None
            and (one.provider, one.zone, one.accelerator, one.accelerators, one.spot) == place
        ]  # fmt: skip
        if twins:
            twin = min(twins)[1]
            tracks[twin] = Track(tracks[twin].prices, tracks.pop(offer).availability)
    return tracks


def _on_demand(
    offers: Sequence[Offer], home: str, usd: Mapping[str, float] | float | None
) -> Iterator[tuple[Offer, float]]:
    """The instances of the history on demand, with dollars an hour for each accelerator, where it has no such price;
    at home, if the history has one there."""
    known = {shape(offer) for offer in offers if not offer.spot}
    found: dict[str, Offer] = {}
    for offer in sorted(offers, key=lambda one: (one.region != home, one)):
        found.setdefault(shape(offer), offer)
    for name in sorted(found.keys() - known):
        offer = found[name]
        price = of_shape(usd, offer, math.nan) if isinstance(usd, Mapping) else usd
        if price is not None and not math.isnan(price):
            yield replace(offer, zone="", spot=False), price


def _extent(track: Track) -> tuple[float, float]:
    low, high = -np.inf, np.inf
    if track.prices is not None and track.prices.at_s[-1] > 0.0:
        # The last price holds until others end, for a day at most; one without a time, as in catalogues, always.
        low, high = float(track.prices.at_s[0]), float(track.prices.at_s[-1]) + _DAY_S
    if track.availability is not None:
        had = track.availability
        low, high = max(low, had.start_s), min(high, had.start_s + len(had.counts) * had.gap_s)
    return low, high
