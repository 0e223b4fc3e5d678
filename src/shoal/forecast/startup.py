"""Time until a job works on a rented server: its start-up, and the checkpoint that is read back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, NamedTuple, Self

from scipy.special import stdtrit

from shoal.core import Estimate, Invalid
from shoal.forecast.fitting import LEVEL, check_version, interval_width, versioned, within

_KIND = "start-up"
_FEWEST = 5
"""Servers of a place by which it stands alone."""


class Place(NamedTuple):
    """Where a server starts: how it is offered (preemptible or on demand), its region and kind of accelerator."""

    offer: str
    region: str
    kind: str


@dataclass(frozen=True)
class StartUp:
    """Seconds from the request of a server until it is up, as logarithms, by place."""

    logs: Mapping[Place, tuple[float, ...]]

    @classmethod
    def fit(cls, measured: Mapping[Place, Sequence[float]]) -> Self:
        if not measured or any(not of or min(of) <= 0 for of in measured.values()):
            raise Invalid("start-up times are positive seconds, one at least for each place")
        return cls({place: tuple(math.log(one) for one in of) for place, of in measured.items()})

    def predict(self, place: Place) -> Estimate | None:
        """Of a server in this place; from other places of the same offer where few were measured here, and None where
        no server of this offer was."""
        own = self.logs.get(place, ())
        if len(own) >= _FEWEST:
            width = float(stdtrit(len(own) - 1, (1 + LEVEL) / 2)) * stdev(own) * math.sqrt(1 + 1 / len(own))
            return within(math.exp(fmean(own)), width, f"measured on {len(own)} servers of the same place")
        alike = {at: fmean(of) for at, of in self.logs.items() if at.offer == place.offer}
        if not alike:
            return None
        errors = []
        for at in alike:
            others = [mean for other, mean in alike.items() if other != at] or [alike[at]]
            errors.append([one - fmean(others) for one in self.logs[at]])
        source = f"inferred from {len(alike)} places with {place.offer} servers"
        return within(math.exp(fmean(alike.values())), interval_width(errors), source)

    def as_json(self) -> dict[str, Any]:
        return versioned(_KIND, {"places": [{**place._asdict(), "logs": list(of)} for place, of in self.logs.items()]})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        check_version(_KIND, data)
        return cls({Place(one["offer"], one["region"], one["kind"]): tuple(one["logs"]) for one in data["places"]})


def restart(startup: Estimate, read: Estimate, lost_s: float) -> Estimate:
    """From a revocation until the work is where it was: a new server, its checkpoint read, and what was done since it
    was made. The parts vary independently; their half-widths add up as squares."""
    if startup.level != read.level:
        raise Invalid(f"intervals of {startup.level:g} and {read.level:g} cannot be added")
    median = startup.median + read.median + lost_s
    below = math.hypot(startup.median - startup.low, read.median - read.low)
    above = math.hypot(startup.high - startup.median, read.high - read.median)
    source = f"start-up {startup.source}; checkpoint {read.source}"
    return Estimate(median, median - below, median + above, startup.level, source)
