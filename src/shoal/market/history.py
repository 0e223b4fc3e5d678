"""History of offers: prices and availability of offers over time, from whatever feed they came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shoal.core import Invalid

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class Offer:
    """One thing that can be rented. `accelerators` is how many of `accelerator` the instance has; `spot` instances may
    be taken away."""

    provider: str
    region: str
    zone: str
    instance: str
    accelerator: str
    accelerators: int = 1
    spot: bool = True

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.zone or self.region}/{self.instance}" + ("" if self.spot else "/on-demand")

    def as_json(self) -> dict[str, object]:
        return {
            "offer": self.name, "provider": self.provider, "region": self.region, "zone": self.zone,
            "instance": self.instance, "accelerator": self.accelerator, "accelerators": self.accelerators,
            "spot": self.spot,
        }  # fmt: skip


@dataclass(frozen=True)
class Prices:
    """Dollars an hour of the whole instance: `usd[i]` holds from `at_s[i]` on, in Unix seconds (UTC)."""

    at_s: Floats
    usd: Floats

    def at(self, when_s: float) -> float | None:
        """None before the first known price."""
        before = int(np.searchsorted(self.at_s, when_s, side="right")) - 1
        return float(self.usd[before]) if before >= 0 else None

    def means(self, edges_s: Floats) -> Floats:
        """The mean price between neighbouring edges; before the first known price it is not a number."""
        inside = self.at_s[(self.at_s > edges_s[0]) & (self.at_s < edges_s[-1])]
        points = np.union1d(edges_s, inside)
        which = np.searchsorted(self.at_s, points[:-1], side="right") - 1
        spent = np.where(which >= 0, self.usd[np.maximum(which, 0)], np.nan) * np.diff(points)
        return np.add.reduceat(spent, np.searchsorted(points, edges_s[:-1])) / np.diff(edges_s)


@dataclass(frozen=True)
class Availability:
    """How many instances could be had (or, of a `kept` trace, were still there) at `start_s + i * gap_s`."""

    start_s: float
    gap_s: float
    counts: Integers
    kept: bool = False

    def up(self, edges_s: Floats, need: int) -> NDArray[np.bool_]:
        """Whether `need` could be had at every sample between neighbouring edges. Outside of the trace: not."""
        first = np.floor((edges_s[:-1] - self.start_s) / self.gap_s + 1e-9).astype(int)
        last = np.maximum(first + 1, np.floor((edges_s[1:] - self.start_s) / self.gap_s + 1e-9).astype(int))
        short = np.concatenate([[0], np.cumsum(self.counts < need)])
        inside = (first >= 0) & (last <= len(self.counts))
        low, high = np.clip(first, 0, len(self.counts)), np.clip(last, 0, len(self.counts))
        return np.asarray(inside & (short[high] == short[low]))


@dataclass(frozen=True)
class Track:
    """All that is known of one offer."""

    prices: Prices | None = None
    availability: Availability | None = None


@dataclass(frozen=True)
class History:
    """Tracks by offer; `notes` say what a feed left out or took for granted."""

    tracks: Mapping[Offer, Track]
    notes: tuple[str, ...] = field(default=())

    def joined(self, others: Iterable[History]) -> History:
        """With the tracks of others; where two have the same part of an offer, that of the later one counts."""
        tracks, notes = dict(self.tracks), list(self.notes)
        for other in others:
            for offer, track in other.tracks.items():
                known = tracks.get(offer, Track())
                tracks[offer] = Track(track.prices or known.prices, track.availability or known.availability)
            notes += other.notes
        return History(tracks, tuple(notes))

    def only(self, accelerator: str | None = None, region: str | None = None) -> History:
        """The offers whose accelerator is this one, in a zone or region that begins like this."""
        kept = {
            offer: track
            for offer, track in self.tracks.items()
            if (accelerator is None or offer.accelerator == accelerator.lower())
            and (region is None or (offer.zone or offer.region).startswith(region))
        }
        if not kept:
            hint = "; ".join((f"the history has {len(self.tracks)} others", *self.notes))
            raise Invalid("no offer is left", hint=hint)
        return History(kept, self.notes)


def prices_of(changes: Iterable[tuple[float, float]]) -> tuple[Prices, int]:
    """From (Unix seconds, dollars an hour) in any order; of one moment the last given counts. Also returns how many
    were duplicates."""
    found = dict(pairs := list(changes))
    at = np.array(sorted(found), dtype=np.float64)
    return Prices(at, np.array([found[one] for one in at], dtype=np.float64)), len(pairs) - len(found)
