"""Hardware counters by `perf_event_open`, described by sysfs: no type, CPU or encoding is known by heart where the
kernel says it.

Counters that are open at the same time as others share the hardware in turns; each count is scaled by the part of the
time in which it was really counted (after WCA's perf module and the kernel's perf-stat).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shoal.host.linux import cpus
from shoal.host.linux.fs import Kernel

DEVICES = "/sys/bus/event_source/devices"
_READ_FORMAT = 1 | 2 | 8  # time enabled, time running, whole group
_ATTR = struct.Struct("<IIQQQQQIIQQQQIiQIHH")


@dataclass(frozen=True, slots=True)
class Event:
    """What to count. A count times `scale` is in `unit`."""

    name: str
    type: int
    config: int
    config1: int = 0
    config2: int = 0
    scale: float = 1.0
    unit: str = ""

    def attr(self) -> bytes:
        """As a `perf_event_attr` of 112 bytes (its size since Linux 4.1)."""
        return _ATTR.pack(
            self.type, _ATTR.size, self.config, 0, 0, _READ_FORMAT, 0, 0, 0, self.config1, self.config2, *[0] * 8
        )


class Pmu:
    """One device that counts. Raises OSError where sysfs does not describe it."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self._kernel = kernel
        self.name = name
        self._path = f"{DEVICES}/{name}"
        self.type = int(kernel.read(f"{self._path}/type"))

    def cpus(self) -> frozenset[int]:
        """On which its counters are to be opened: one for each instance."""
        return cpus.parse(self._kernel.read(f"{self._path}/cpumask"))

    def event(self, name: str) -> Event:
        """One that the kernel names, with its scale and unit. Raises OSError for others."""
        terms = parse_terms(self._kernel.read(f"{self._path}/events/{name}"))
        scale = float(self._optional(f"events/{name}.scale") or 1)
        return self.encoded(name, terms, scale=scale, unit=self._optional(f"events/{name}.unit"))

    def encoded(self, name: str, terms: Mapping[str, int], *, scale: float = 1.0, unit: str = "") -> Event:
        """One by its terms (`event`, `umask`, ...), put where the device's format wants them. Raises OSError for a term
        it does not know."""
        configs = {"config": 0, "config1": 0, "config2": 0}
        for term, value in terms.items():
            if term in configs:
                configs[term] |= value
                continue
            register, _, ranges = self._kernel.read(f"{self._path}/format/{term}").strip().partition(":")
            configs[register] |= scatter(value, ranges)
        return Event(name, self.type, configs["config"], configs["config1"], configs["config2"], scale, unit)

    def _optional(self, name: str) -> str:
        try:
            return self._kernel.read(f"{self._path}/{name}").strip()
        except OSError:
            return ""


def pmus(kernel: Kernel) -> tuple[str, ...]:
    try:
        return kernel.names(DEVICES)
    except OSError:
        return ()


def parse_terms(text: str) -> dict[str, int]:
    """`event=0x04,umask=0x3,edge` as numbers; a term alone is 1."""
    terms = {}
    for item in text.strip().split(","):
        name, _, value = item.partition("=")
        terms[name] = int(value, 0) if value else 1
    return terms


def scatter(value: int, ranges: str) -> int:
    """Put a value's bits into a format's ranges (`0-7,32-35`), lowest first."""
    result = 0
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        low, width = int(first), int(last or first) - int(first) + 1
        result |= (value & (1 << width) - 1) << low
        value >>= width
    return result


@dataclass(frozen=True, slots=True)
class Counts:
    """Raw, since the counters were opened: nanoseconds enabled and running, and a value for each event."""

    enabled_ns: int
    running_ns: int
    values: tuple[int, ...]

    def since(self, before: Counts) -> tuple[float, ...] | None:
        """What was counted in between, scaled to all of that time; None when the hardware never got to count."""
        enabled, running = self.enabled_ns - before.enabled_ns, self.running_ns - before.running_ns
        if enabled <= 0 or running <= 0:
            return None
        pairs = zip(self.values, before.values, strict=True)
        return tuple((now - then) * enabled / running for now, then in pairs)


class CounterGroup:
    """Events that are counted at the same moments on one CPU, whatever runs there. Raises OSError; then nothing is left
    open."""

    def __init__(self, kernel: Kernel, events: Sequence[Event], *, cpu: int) -> None:
        self._kernel = kernel
        self._fds: list[int] = []
        self._count = len(events)
        try:
            for event in events:
                leader = self._fds[0] if self._fds else -1
                self._fds.append(kernel.perf_open(event.attr(), cpu, leader))
        except OSError:
            self.close()
            raise

    def read(self) -> Counts:
        data = self._kernel.read_fd(self._fds[0], 24 + 8 * self._count)
        _, enabled, running, *values = struct.unpack(f"<{3 + self._count}Q", data)
        return Counts(enabled, running, tuple(values))

    def close(self) -> None:
        while self._fds:
            self._kernel.close(self._fds.pop())


def paranoid_hint(kernel: Kernel) -> str:
    """Why counters of the whole machine may be refused."""
    try:
        level = kernel.read("/proc/sys/kernel/perf_event_paranoid").strip()
    except OSError:
        return "this kernel has no perf events"
    return f"needs CAP_PERFMON, or kernel.perf_event_paranoid at 0 or below (it is {level})"
