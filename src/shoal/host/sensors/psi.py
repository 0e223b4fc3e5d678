"""Pressure stall information: the share of time in which somebody waited for CPU, memory or disk. Memory pressure means
reclaim; of bandwidth it says nothing (it stayed at 0 under the worst contention measured)."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.core import Capability
from shoal.host.fs import LINUX, Kernel
from shoal.host.hierarchies import unified
from shoal.host.members import Found
from shoal.host.sensors.base import FIRST, Key, Quantity, Rates, Readings, Scope, missing
from shoal.host.types import Reading

_FILES = {
    Quantity.PRESSURE_CPU: "cpu",
    Quantity.PRESSURE_MEMORY: "memory",
    Quantity.PRESSURE_IO: "io",
}


class Pressure:
    name = "psi"

    def __init__(self, *, kernel: Kernel = LINUX) -> None:
        self._kernel = kernel
        self._rates = Rates()
        self._groups = unified(kernel)

    def capability(self) -> Capability:
        if self._kernel.exists("/proc/pressure/cpu"):
            return Capability(self.name, True, "/proc/pressure")
        why = "this kernel keeps no pressure (CONFIG_PSI, and psi=1 where it is off by default)"
        return Capability(self.name, False, why, "a host short of CPU or memory is not told from a contended one")

    def read(self, now: float, found: Mapping[str, Found], since: float) -> Readings:  # noqa: ARG002
        readings: dict[Key, Reading] = {}
        for quantity, name in _FILES.items():
            readings[Key(quantity, Scope.HOST)] = self._stalled(f"/proc/pressure/{name}", now)
        for group, members in found.items():
            directory = f"{self._groups.top}/{members.cgroup}" if self._groups and members.cgroup else None
            if directory is not None and self._kernel.exists(directory):
                for quantity, name in _FILES.items():
                    readings[Key(quantity, Scope.GROUP, group)] = self._stalled(f"{directory}/{name}.pressure", now)
        return readings

    def close(self) -> None:
        return

    def _stalled(self, path: str, now: float) -> Reading:
        try:
            some = self._kernel.read(path).partition("\n")[0]
        except OSError as problem:
            return missing(f"{path}: {problem.strerror}")
        total = some.rpartition("total=")[2]
        rate = self._rates.rate(path, int(total) / 1e6, now) if total.isdigit() else None
        return FIRST if rate is None else Reading(min(1.0, rate))
