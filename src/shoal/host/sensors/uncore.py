"""Bandwidth and saturation of memory by counters outside the cores: Intel's memory and cache controllers, AMD's unified
memory controllers. Of sockets, DMA included.

Encodings that sysfs does not give: Intel's event lists (`UNC_CHA_FAST_ASSERTED.HORZ`, `UNC_CHA_DISTRESS_ASSERTED.VERT`,
`UNC_C_FAST_ASSERTED`, CAS counts) and Linux's `amdzen4/memory-controller.json`, with the metrics of Linux perf:
saturation is distress over clock ticks (`lpm_mem_sat`), bus utilisation is data slots / 2 over memory clocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from shoal.core import Capability
from shoal.host.linux import perf
from shoal.host.linux.fs import LINUX, Kernel
from shoal.host.linux.members import Found
from shoal.host.linux.perf import CounterGroup, Counts, Event, Pmu
from shoal.host.sensors.base import FIRST, Key, Quantity, Readings, Scope, missing
from shoal.host.types import Missing, Reading

_LINE = 64
"""Bytes that a CAS command moves."""
_UNITS = {"MiB": float(1 << 20), "Bytes": 1.0, "": 1.0}
_CHA_PER_SOCKET = 4
"""The distress signal goes to the whole socket; all of up to sixty controllers need not be asked."""
_COSTS = "memory's saturation is guessed from the latency probe"


@dataclass(frozen=True, slots=True)
class _Counter:
    """Open counters of one device on one socket, and what is made of their deltas."""

    socket: int
    group: CounterGroup
    events: tuple[Event, ...]
    quantity: Quantity
    device: str


class UncoreCounters:
    name = "uncore"

    def __init__(self, *, kernel: Kernel = LINUX) -> None:
        self._kernel = kernel
        self._counters: list[_Counter] = []
        self._last: dict[int, tuple[Counts, float]] = {}
        self._problem = "this machine shows no memory controller counters (VMs do not)"
        for quantity, pmu, events, cpus in _wanted(kernel):
            for cpu in sorted(cpus):
                try:
                    socket = _socket(kernel, cpu)
                    group = CounterGroup(kernel, events, cpu=cpu)
                except OSError as problem:
                    self._problem = f"{pmu}: {problem.strerror}; {perf.paranoid_hint(kernel)}"
                    continue
                self._counters.append(_Counter(socket, group, events, quantity, pmu))

    def capability(self) -> Capability:
        if not self._counters:
            return Capability(self.name, False, self._problem, _COSTS)
        devices = sorted({counter.device for counter in self._counters})
        quantities = sorted({counter.quantity.value for counter in self._counters})
        return Capability(self.name, True, f"{', '.join(quantities)} by {len(devices)} devices, {devices[0]} first")

    def read(self, now: float, found: Mapping[str, Found], since: float) -> Readings:  # noqa: ARG002
        values: dict[Key, list[float]] = {}
        spoiled: dict[Key, str] = {}
        for at, counter in enumerate(self._counters):
            key = Key(counter.quantity, Scope.SOCKET, counter.socket)
            value = self._value(at, counter, now)
            if isinstance(value, Missing):
                spoiled[key] = value.reason
            else:
                values.setdefault(key, []).append(value)
        readings = {key: Reading(_combined(key.quantity, of)) for key, of in values.items()}
        return readings | {key: missing(why) for key, why in spoiled.items()}

    def close(self) -> None:
        for counter in self._counters:
            counter.group.close()
        self._counters.clear()

    def _value(self, at: int, counter: _Counter, now: float) -> float | Missing:
        try:
            counts = counter.group.read()
        except OSError as problem:
            return Missing(f"{counter.device}: {problem.strerror}")
        last = self._last.get(at)
        self._last[at] = (counts, now)
        if last is None or now <= last[1]:
            assert isinstance(FIRST.value, Missing)
            return FIRST.value
        deltas = counts.since(last[0])
        if deltas is None:
            return Missing(f"{counter.device} had no turn at the hardware's counters")
        if counter.quantity is Quantity.BANDWIDTH:
            total = sum(
                delta * event.scale * _UNITS.get(event.unit, 1.0)
                for delta, event in zip(deltas, counter.events, strict=True)
            )
            return total / (now - last[1])
        busy, ticks = deltas
        return (
            min(1.0, busy * counter.events[0].scale / ticks) if ticks > 0 else Missing(f"{counter.device} stands still")
        )


def _combined(quantity: Quantity, values: list[float]) -> float:
    """Of a socket's devices: bandwidths add up, shares of cycles are averaged."""
    return sum(values) if quantity is Quantity.BANDWIDTH else sum(values) / len(values)


_Recipe = Callable[[Pmu, int], tuple[Quantity, tuple[Event, ...]]]


def _cas(pmu: Pmu, model: int) -> tuple[Quantity, tuple[Event, ...]]:  # noqa: ARG001
    try:
        events = (pmu.event("cas_count_read"), pmu.event("cas_count_write"))
    except OSError:
        read, write = {"event": 0x04, "umask": 0x03}, {"event": 0x04, "umask": 0x0C}
        events = (pmu.encoded("cas_read", read, scale=_LINE), pmu.encoded("cas_write", write, scale=_LINE))
    return Quantity.BANDWIDTH, events


def _umc_cas(pmu: Pmu, model: int) -> tuple[Quantity, tuple[Event, ...]]:  # noqa: ARG001
    return Quantity.BANDWIDTH, (pmu.encoded("umc_cas_cmd", {"event": 0x0A}, scale=_LINE),)


def _cha(pmu: Pmu, model: int) -> tuple[Quantity, tuple[Event, ...]]:
    if model not in _DISTRESS:
        raise OSError(22, f"the distress event of model {model:#x} is not known")
    code, umask, clock = _DISTRESS[model]
    try:
        ticks = pmu.event("clockticks")
    except OSError:
        ticks = pmu.encoded("clockticks", {"event": clock})
    return Quantity.SATURATION, (pmu.encoded("distress", {"event": code, "umask": umask}), ticks)


def _cbox(pmu: Pmu, model: int) -> tuple[Quantity, tuple[Event, ...]]:  # noqa: ARG001
    return Quantity.SATURATION, (pmu.encoded("fast", {"event": 0x09}), pmu.encoded("clockticks", {"event": 0x00}))


_DISTRESS = {
    0x55: (0xA5, 0x02, 0x00),  # Skylake, Cascade Lake, Cooper Lake: FAST_ASSERTED.HORZ
    0x6A: (0xAF, 0x01, 0x00),  # Ice Lake: DISTRESS_ASSERTED.VERT
    0x6C: (0xAF, 0x01, 0x00),
    0x8F: (0xAF, 0x01, 0x01),  # Sapphire Rapids
    0xCF: (0xAF, 0x01, 0x01),  # Emerald Rapids
}
"""By model of Intel's family 6: event, mask, and event of the clock."""
_RECIPES: tuple[tuple[re.Pattern[str], _Recipe], ...] = (
    (re.compile(r"uncore_imc_\d+$"), _cas),
    (re.compile(r"amd_umc_\d+$"), _umc_cas),
    (re.compile(rf"uncore_cha_[0-{_CHA_PER_SOCKET - 1}]$"), _cha),
    (re.compile(rf"uncore_cbox_[0-{_CHA_PER_SOCKET - 1}]$"), _cbox),
)


def _wanted(kernel: Kernel) -> Iterator[tuple[Quantity, str, tuple[Event, ...], frozenset[int]]]:
    names = perf.pmus(kernel)
    model = re.search(r"^model\s*: (\d+)", kernel.read("/proc/cpuinfo"), re.MULTILINE)
    for pattern, recipe in _RECIPES:
        for name in names:
            if pattern.match(name):
                try:
                    pmu = Pmu(kernel, name)
                    quantity, events = recipe(pmu, int(model[1]) if model else 0)
                    yield quantity, name, events, pmu.cpus()
                except (OSError, ValueError, KeyError):  # this device does not count that
                    continue


def _socket(kernel: Kernel, cpu: int) -> int:
    return int(kernel.read(f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"))


def sockets(kernel: Kernel, cpus: frozenset[int]) -> frozenset[int]:
    """Those that CPUs are on; none where sysfs does not say."""
    found = set()
    for cpu in cpus:
        try:
            found.add(_socket(kernel, cpu))
        except (OSError, ValueError):
            continue
    return frozenset(found)
