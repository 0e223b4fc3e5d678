"""Resources, which machines offer and workloads ask for. Units: accelerators are devices, cpus thousandths, memory
bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from shoal.core.affinity import Taint

ANY = "any"
"""The accelerator type of a request that takes whatever type there is."""

CPU_SLOT = "cpu"
"""The type of the declared slots that stand in for accelerators on a machine without."""


class Share(StrEnum):
    """How a job has its accelerators: to itself, as the one whose speed is guaranteed, or as one of those that fill
    the gaps."""

    EXCLUSIVE = "exclusive"
    GUARANTEED = "guaranteed"
    BEST_EFFORT = "best-effort"


@dataclass(frozen=True)
class Resources:
    """A vector of accelerators by type, `cpu_milli` (1000 = one core) and `memory_bytes`.

    As a request, the type may be `ANY`; as a capacity it may not. Types with a count of zero are dropped, so equal
    vectors compare and hash equal. Subtraction may go negative. A request may be for accelerators that others use as
    well: `share`, with `device_memory_bytes` of each one's memory. A sum has no share.
    """

    accelerators: Mapping[str, int] = field(default_factory=dict)
    cpu_milli: int = 0
    memory_bytes: int = 0
    share: Share = Share.EXCLUSIVE
    device_memory_bytes: int = 0

    def __post_init__(self) -> None:
        kept = {kind: self.accelerators[kind] for kind in sorted(self.accelerators) if self.accelerators[kind]}
        object.__setattr__(self, "accelerators", MappingProxyType(kept))
        object.__setattr__(self, "share", Share(self.share))
        amounts = (self.cpu_milli, self.memory_bytes, self.share, self.device_memory_bytes)
        object.__setattr__(self, "_hash", hash((tuple(kept.items()), amounts)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]  # computed once: schedulers look shapes up

    def __reduce__(self) -> tuple[type[Resources], tuple[dict[str, int], int, int, Share, int]]:
        kinds = dict(self.accelerators)
        return Resources, (kinds, self.cpu_milli, self.memory_bytes, self.share, self.device_memory_bytes)

    @property
    def accelerator_count(self) -> int:
        return sum(self.accelerators.values())

    def __add__(self, other: Resources) -> Resources:
        kinds = {**self.accelerators}
        for kind, count in other.accelerators.items():
            kinds[kind] = kinds.get(kind, 0) + count
        return Resources(kinds, self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes)

    def __sub__(self, other: Resources) -> Resources:
        return self + other * -1

    def __mul__(self, times: int) -> Resources:
        return Resources(
            {kind: count * times for kind, count in self.accelerators.items()},
            self.cpu_milli * times,
            self.memory_bytes * times,
            self.share,
            self.device_memory_bytes,
        )


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator (or declared CPU slot). `id` is unique on its node and stable across restarts. Beside one
    guaranteed job it has room for `best_effort_seats` best-effort ones; without any it is only given whole."""

    id: str
    type: str
    index: int
    memory_bytes: int | None = None
    best_effort_seats: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """A machine that an engine can start processes on; or, where `pooled`, the pool of many among which the engine's
    own scheduler picks. The devices of a pool are places: their number is the most that may be handed over at once."""

    name: str
    devices: tuple[Device, ...] = ()
    cpu_milli: int = 0
    memory_bytes: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    pooled: bool = False
    taints: tuple[Taint, ...] = ()

    def capacity(self) -> Resources:
        kinds: dict[str, int] = {}
        for device in self.devices:
            kinds[device.type] = kinds.get(device.type, 0) + 1
        return Resources(kinds, self.cpu_milli, self.memory_bytes)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Work per second with the standard deviation of that estimate."""

    per_s: float
    std_per_s: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.per_s) and self.per_s >= 0):
            raise ValueError(f"a throughput must be finite and not negative: {self.per_s}")
        if not self.std_per_s >= 0:
            raise ValueError(f"a standard deviation cannot be negative: {self.std_per_s}")
