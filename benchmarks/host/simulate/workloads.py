"""Workloads of a simulated host: calibrated guaranteed and best-effort work, and the scenarios they meet in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from host.simulate.physics import ZEN4_PATH
from shoal.core import Invalid, PriorityClass
from shoal.host.types import Control, Domain, Group


class Mechanism(StrEnum):
    """What carries out a share."""

    PACING = "pacing"
    """Tens of microseconds at a time: work slows down evenly."""
    QUOTA = "quota"
    """On and off within 100 ms: it restores the mean of guaranteed work, not the tail."""
    ALLOCATION = "allocation"
    """In hardware, on memory traffic alone: computing is not slowed down."""


@dataclass(frozen=True, slots=True)
class Guaranteed:
    """`alone_s` is what a unit of its work takes undisturbed, `bandwidth` its own, `leak` how much more than the
    pipeline it feels the pressure in other domains; the others: `physics.slowdown`."""

    alone_s: float
    exposure: float
    own: float = 0.0
    cached: float = 0.0
    leak: float = 1.0
    bandwidth: float = 4e9


@dataclass(frozen=True, slots=True)
class BestEffort:
    """Of one core: `bandwidth` unhindered, `press` the pressure of a byte against that of a non-temporal store,
    `memory` the part of its time that waits for memory, `displaces` what it takes of the cache, `prefetched` and
    `slowed` the bandwidth and speed that it loses without hardware prefetchers (assumed, not measured)."""

    bandwidth: float
    press: float
    memory: float = 1.0
    displaces: float = 0.0
    prefetched: float = 0.0
    slowed: float = 0.0


GUARANTEED: Mapping[str, Guaranteed] = MappingProxyType({
    "pipeline": Guaranteed(0.92e-3, exposure=1.0),
    "staging-copy": Guaranteed(16e-3, exposure=0.78, own=0.10, leak=6.5, bandwidth=8e9),
    "triad": Guaranteed(5e-3, exposure=0.63, own=0.22, leak=2.5, bandwidth=9e9),
    "chase": Guaranteed(1e-3, exposure=0.78, leak=2.5, bandwidth=0.3e9),
    "cached-chase": Guaranteed(0.1e-3, exposure=0.0, cached=6.35, bandwidth=0.0),
})  # fmt: skip
"""By name; fitted to Table 4.1 of the measurements."""

BEST_EFFORT: Mapping[str, BestEffort] = MappingProxyType({
    "nt-stores": BestEffort(ZEN4_PATH, press=1.0, displaces=1.0),
    "stores": BestEffort(22.9e9, press=0.79, displaces=1.0, prefetched=0.15, slowed=0.1),
    "reads": BestEffort(20e9, press=0.48, displaces=1.0, prefetched=0.35, slowed=0.25),
    "triad": BestEffort(18e9, press=0.25, displaces=1.0, prefetched=0.35, slowed=0.2),
    "cache-thrash": BestEffort(4e9, press=0.6, memory=0.6, displaces=0.58),
    "compute": BestEffort(0.05e9, press=0.5, memory=0.02),
})  # fmt: skip
"""By name, one core of each; fitted to Tables 4.1, 4.2 and 4.5 of the measurements."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Work on a host: of a kind, as a group, on `cores` cores of a domain. `on_s` and `off_s` are its phases (always on
    if `off_s` is 0), the first beginning at `from_s`; it ends at `until_s`."""

    group: Group
    kind: str
    domain: int = 0
    cores: int = 1
    from_s: float = 0.0
    on_s: float = 1.0
    off_s: float = 0.0
    until_s: float = float("inf")

    def __post_init__(self) -> None:
        kinds = GUARANTEED if self.group.priority_class is PriorityClass.GUARANTEED else BEST_EFFORT
        if self.kind not in kinds:
            raise Invalid(
                f"there is no {self.group.priority_class} work {self.kind!r}", hint=f"one of {', '.join(kinds)}"
            )

    def active(self, at: float) -> bool:
        if not self.from_s <= at < self.until_s:
            return False
        return self.off_s <= 0 or (at - self.from_s + 1e-9) % (self.on_s + self.off_s) < self.on_s


@dataclass(frozen=True, slots=True)
class Drift:
    """From `at` on undisturbed guaranteed work takes `factor` of its time (another clock, another input)."""

    at: float
    factor: float


@dataclass(frozen=True, slots=True)
class Sensing:
    """Which sensors the host has, the noise of a tick's step time, and from when to when nothing answers at all.

    `wander` is by how much (standard deviation, part of 1) the machine's own speed comes and goes in some `wander_s`
    seconds, disturbed or not: a virtual machine's does.
    """

    step_time: bool = True
    bandwidth: bool = True
    latency: bool = True
    saturation: bool = False
    alone: bool = True
    cpus: bool = True
    noise: float = 0.006
    wander: float = 0.0
    wander_s: float = 1.0
    blind: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class HostSpec:
    """`controls` are what the host's actuators can turn; a plan is in force `lag_s` after it was given."""

    domains: tuple[Domain, ...]
    capacity: float = ZEN4_PATH
    mechanism: Mechanism = Mechanism.PACING
    controls: frozenset[Control] = frozenset({Control.SHARE, Control.CORES, Control.FREEZE})
    sensing: Sensing = Sensing()
    least_share: float = 0.01
    lag_s: float = 0.004


@dataclass(frozen=True, slots=True)
class Scenario:
    """`work` in the order in which it is shown; `duration_s` of simulated time."""

    name: str
    about: str
    host: HostSpec
    work: tuple[Placed, ...]
    duration_s: float = 20.0
    drifts: tuple[Drift, ...] = ()
    seed: int = 1

    def best_effort(self) -> tuple[Placed, ...]:
        return tuple(one for one in self.work if one.group.priority_class is PriorityClass.BEST_EFFORT)

    def guaranteed(self) -> tuple[Placed, ...]:
        return tuple(one for one in self.work if one.group.priority_class is PriorityClass.GUARANTEED)
