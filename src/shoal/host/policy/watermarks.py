"""High and low watermarks on what a host's memory says of itself, as Kelp has them.

The paper takes its marks from a profile of each workload. Here they are fixed, and the work's own speed, where it is
known, does what the profile is for: it is one reading more, and the only one on a host without sensors of its memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shoal.core import PriorityClass
from shoal.host.policy.violation import Quiet, Seen, Source
from shoal.host.types import DomainState, Snapshot


class Pressure(StrEnum):
    HIGH = "high"
    MIDDLE = "between its marks"
    LOW = "low"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Mark:
    high: float
    low: float

    def of(self, value: float) -> Pressure:
        return Pressure.HIGH if value > self.high else Pressure.LOW if value < self.low else Pressure.MIDDLE


SATURATION = Mark(0.05, 0.01)
LATENCY = Mark(1.25, 1.1)
"""Against the lowest seen."""
BANDWIDTH = Mark(0.75, 0.6)
"""Of capacity."""
VIOLATION = Mark(1.0, 0.5)


def pressure(snapshot: Snapshot, seen: Seen, quiet: Quiet) -> Pressure:
    """High if any reading is above its mark, low if all are below theirs. No reading at all: unknown."""
    homes = frozenset().union(*(one.domains for one in snapshot.of(PriorityClass.GUARANTEED)))
    readings = [reading for one in snapshot.domains if one.domain.id in homes for reading in _readings(one, quiet)]
    if seen.worst is not None and (seen.worst.sensor is Source.STEP or not readings):
        readings.append(VIOLATION.of(seen.worst.value))
    if not readings:
        return Pressure.UNKNOWN
    if Pressure.HIGH in readings:
        return Pressure.HIGH
    return Pressure.LOW if all(one is Pressure.LOW for one in readings) else Pressure.MIDDLE


def _readings(home: DomainState, quiet: Quiet) -> list[Pressure]:
    found = []
    saturation, latency, bandwidth = home.saturation.known(), home.latency_ns.known(), home.bandwidth.known()
    capacity = home.capacity.known(stale_s=float("inf"))
    lowest = quiet.latency_ns.get(str(home.domain.id))
    if saturation is not None:
        found.append(SATURATION.of(saturation))
    if latency is not None and lowest:
        found.append(LATENCY.of(latency / lowest))
    if bandwidth is not None and capacity:
        found.append(BANDWIDTH.of(bandwidth / capacity))
    return found
