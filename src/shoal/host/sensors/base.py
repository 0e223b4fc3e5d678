"""The protocol of sensors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from shoal.core import Capability
from shoal.host.linux.members import Found
from shoal.host.types import Missing, Reading


class Quantity(StrEnum):
    """What is sensed, with its unit. Rates are means since the sensor was read before."""

    BANDWIDTH = "bandwidth"  # bytes per second from and to memory
    SATURATION = "saturation"  # share of cycles in which memory pushed back, 0 to 1
    LATENCY = "latency"  # nanoseconds of one dependent load
    STEP = "step"  # CPU seconds of a unit of work, mean
    TAIL = "tail"  # the same, 99th percentile
    RATE = "rate"  # units of work per second
    CPUS = "cpus"  # CPUs kept busy
    WAIT = "wait"  # seconds runnable but not running, per CPU-second
    THROTTLED = "throttled"  # share of enforcement periods in which its CPU quota ran out
    STEAL = "steal"  # share of CPU time that the hypervisor took

    __hash__ = str.__hash__  # an enum's own is Python code, and readings are looked up by the hundred


class Scope(StrEnum):
    HOST = "host"
    SOCKET = "socket"
    DOMAIN = "domain"
    GROUP = "group"

    __hash__ = str.__hash__


class Key(NamedTuple):
    """What is sensed, and of what: a group by its name, a socket or domain by its number."""

    quantity: Quantity
    scope: Scope
    of: str | int = 0


Readings = Mapping[Key, Reading]


class Sensor(Protocol):
    @property
    def name(self) -> str: ...

    def capability(self) -> Capability:
        """Whether it works on this machine, as found out by trying."""
        ...

    def read(self, now: float, found: Mapping[str, Found], since: float) -> Readings:
        """Everything it can say at `now` (monotonic seconds) of these groups and of the host; never raises OSError:
        what fails is Missing with its reason. The first reading of a rate is Missing.

        `since` is when work was last frozen or let go: units of work that began before tell nothing of now."""
        ...

    def close(self) -> None: ...


def missing(reason: str) -> Reading:
    return Reading(Missing(reason))


FIRST = missing("it was read only once so far")


class Rates:
    """Counters that only grow, as rates per second. What goes back was set back, and says nothing."""

    def __init__(self) -> None:
        self._last: dict[object, tuple[float, float]] = {}

    def rate(self, key: object, value: float, now: float) -> float | None:
        """Since the last call for this key; None at the first and after a step back."""
        before = self._last.get(key)
        self._last[key] = (value, now)
        if before is None or value < before[0] or now <= before[1]:
            return None
        return (value - before[0]) / (now - before[1])

    def forget(self, key: object) -> None:
        self._last.pop(key, None)


SILENT_S = 1.0


class Thrifty:
    """A sensor that is read no more often than its share of one core permits, as its own last reading cost; one that
    says nothing, each SILENT_S. Between, its last readings are given with their age."""

    def __init__(self, sensor: Sensor, *, share: float = 0.002, cost: Callable[[], float] = time.thread_time) -> None:
        self._sensor = sensor
        self._share = share
        self._cost = cost
        self._at = float("-inf")
        self._due = float("-inf")
        self._readings: Readings = {}
        self.name = sensor.name

    def capability(self) -> Capability:
        return self._sensor.capability()

    def read(self, now: float, found: Mapping[str, Found], since: float) -> Readings:
        if now >= self._due:
            before = self._cost()
            self._readings = self._sensor.read(now, found, since)
            self._at, self._due = now, now + (self._cost() - before) / self._share
            if not self._readings:
                self._due = max(self._due, now + SILENT_S)
        if now == self._at or not self._readings:
            return self._readings
        age = now - self._at
        return {key: Reading(one.value, one.age_s + age) for key, one in self._readings.items()}

    def close(self) -> None:
        self._sensor.close()
