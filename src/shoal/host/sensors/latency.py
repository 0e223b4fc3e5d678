"""Latency of one dependent load from memory: the sensor that works everywhere, and the next best to a step time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from shoal.core import Capability
from shoal.host.linux.fs import LINUX, Kernel
from shoal.host.linux.members import Found
from shoal.host.sensors.base import Key, Quantity, Readings, Scope, missing
from shoal.host.types import Domain, Reading

_SHOTS = 3
"""One shot in between may have been interrupted; their median was not."""
CALM_S = 5.0


class MemoryLatency:
    """`shoot` chases pointers on a CPU (see `pinned`) and says how many nanoseconds each took; it raises OSError where
    it cannot, and is None where the native part is not built. `cpu_of` says where in a domain it may be fired.
    `domains` may be exchanged. While it is not `wanted`, it is fired each CALM_S only: a shot takes the time of work
    that runs there.
    """

    name = "latency"

    def __init__(
        self,
        domains: Sequence[Domain],
        shoot: Callable[[int], float] | None,
        *,
        cpu_of: Callable[[Domain], int] = lambda domain: min(domain.cpus),
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.domains = domains
        self._shoot = shoot
        self._cpu_of = cpu_of
        self._shots: dict[int, deque[float]] = {}
        self._wanted = wanted
        self._since = self._at = float("-inf")
        self._readings: Readings = {}

    def capability(self) -> Capability:
        if self._shoot is None:
            return Capability(
                self.name,
                False,
                "the native part is not built",
                "contention is seen only through step times and hardware counters",
            )
        return Capability(self.name, True, "pointer chase, one shot per domain")

    def read(self, now: float, found: Mapping[str, Found], since: float) -> Readings:  # noqa: ARG002
        if self._shoot is None:
            return {}
        if now - self._at < CALM_S and not self._wanted():
            return {key: Reading(one.value, one.age_s + now - self._at) for key, one in self._readings.items()}
        if since > self._since:  # earlier shots tell nothing of now
            self._shots.clear()
            self._since = since
        readings: dict[Key, Reading] = {}
        for domain in self.domains:
            key = Key(Quantity.LATENCY, Scope.DOMAIN, domain.id)
            try:
                shots = self._shots.setdefault(domain.id, deque(maxlen=_SHOTS))
                shots.append(self._shoot(self._cpu_of(domain)))
                readings[key] = Reading(median(shots))
            except OSError as problem:
                readings[key] = missing(f"the probe failed: {problem}")
        self._readings, self._at = readings, now
        return readings

    def close(self) -> None:
        self._shots.clear()


def pinned(shot: Callable[[], float], *, kernel: Kernel = LINUX) -> Callable[[int], float]:
    """A shot of the calling thread, on the CPU that is asked for."""

    def shoot(cpu: int) -> float:
        before = kernel.affinity(0)
        if before == {cpu}:
            return shot()
        kernel.set_affinity(0, frozenset({cpu}))
        try:
            return shot()
        finally:
            kernel.set_affinity(0, before)

    return shoot
