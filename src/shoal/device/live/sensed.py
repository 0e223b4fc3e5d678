"""Readings of shared devices and their drivers about the jobs on them, for other components."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.device.page import Occupant

_IDLE = 0x1
"""NVML's reason of a low clock: nothing runs on the device. That is no throttling."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A process on a device, so far: its launches, and the seconds that they waited for others."""

    launches: int
    waited_s: float


@dataclass(frozen=True)
class Look:
    """What was read at once, at `at` (monotonic seconds): processes by device and name, and clocks of devices."""

    at: float
    seen: Mapping[str, Mapping[str, Seen]] = field(default_factory=dict)
    clocks: Mapping[str, float] = field(default_factory=dict)


def seen(occupants: Iterable[Occupant]) -> dict[str, Seen]:
    return {one.name: Seen(one.launches, sum(one.waited_ns.values()) / 1e9) for one in occupants}


def sensed(before: Look, now: Look, ranks: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Of a job whose ranks are these names on these devices: `device_wait`, the part of the time that its launches
    waited for others, `device_launches_beside`, those of others on its devices per second, and `clock_mhz`. Pure. Of
    several ranks, the one that is worst off."""
    passed = now.at - before.at
    found: dict[str, list[float]] = {"device_wait": [], "device_launches_beside": [], "clock_mhz": []}
    for name, device in ranks:
        if device in now.clocks:
            found["clock_mhz"].append(now.clocks[device])
        old, new = before.seen.get(device, {}), now.seen.get(device, {})
        if passed <= 0 or name not in old or name not in new:
            continue
        found["device_wait"].append(min(1.0, max(0.0, new[name].waited_s - old[name].waited_s) / passed))
        others = [one.launches - old[other].launches for other, one in new.items() if other != name and other in old]
        found["device_launches_beside"].append(max(0, sum(others)) / passed)
    return {name: (min if name == "clock_mhz" else max)(values) for name, values in found.items() if values}


def launched(before: Look, now: Look, ranks: Iterable[tuple[str, str]]) -> bool | None:
    """Whether a rank of a job, of these names on these devices, launched anything between the looks. Pure. None where
    none was seen both times."""
    pairs = [(before.seen.get(device, {}).get(name), now.seen.get(device, {}).get(name)) for name, device in ranks]
    known = [new.launches != old.launches for old, new in pairs if old is not None and new is not None]
    return any(known) if known else None


class Clocks:
    """The MHz at which devices compute, by NVML."""

    def __init__(self) -> None:
        self._nvml: Any = None

    def read(self, devices: Iterable[str]) -> dict[str, float]:
        """Without those that are idle, not known, or not of this machine."""
        if self._nvml is None:
            try:
                import pynvml

                pynvml.nvmlInit()
            except Exception:  # neither bindings nor a driver: `shoal doctor` says so
                return {}
            self._nvml = pynvml
        read = {device: _clock(self._nvml, device) for device in devices}
        return {device: clock for device, clock in read.items() if clock is not None}


def _clock(pynvml: Any, device: str) -> float | None:
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(device)
        if pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & _IDLE:
            return None
        return float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
    except pynvml.NVMLError:
        return None
