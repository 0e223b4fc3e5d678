"""Bandwidth allocation in hardware (MBA on Intel, QoS on AMD), with a part of the cache where that can be had too."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from shoal.core import Capability, ShoalError, Unavailable
from shoal.host.actuators.base import Unhindered
from shoal.host.linux.fs import LINUX, Kernel
from shoal.host.linux.members import Found
from shoal.host.types import Control, Group, Setting
from shoal.host.undo.resctrl import Bandwidth, Cache, Resctrl, Unit, l3_count
from shoal.host.undo.write_ahead_log import WriteAheadLog

CACHE_SHARE = 0.3
"""Of the ways of the last-level cache that limited work keeps (Koordinator gives best-effort work as much)."""
_COSTS = "limits on memory bandwidth are left to pacing of cores or CPU quotas"


class BandwidthAllocation:
    """`unhindered` says what a group takes without limits: where the hardware counts bytes per second, a share is one
    of that. Without it such hardware is passed over."""

    name = "mba"
    control = Control.SHARE

    def __init__(
        self,
        wal: WriteAheadLog,
        *,
        unhindered: Callable[[str], Unhindered],
        kernel: Kernel = LINUX,
        cache_share: float = CACHE_SHARE,
    ) -> None:
        self._wal = wal
        self._kernel = kernel
        self._unhindered = unhindered
        self._cache_share = cache_share
        self._applied: dict[str, tuple[int, str]] = {}
        """By group: what was written, and what the kernel then said of it."""
        self._bandwidth: Bandwidth | None = None
        self._cache: Cache | None = None
        self._why = "this machine has no memory bandwidth allocation"
        try:
            self._resctrl = Resctrl.find(kernel)
            self._bandwidth = self._resctrl.bandwidth()
            self._cache = self._resctrl.cache()
        except (OSError, ShoalError) as problem:
            self._why = str(problem)

    @property
    def least_share(self) -> float:
        if self._bandwidth is None:
            return 1.0
        return self._bandwidth.least / 100 if self._bandwidth.unit is Unit.PERCENT else 0.01

    def capability(self) -> Capability:
        if self._bandwidth is None:
            return Capability(self.name, False, self._why, _COSTS)
        ways = f", and {self._cache.mask.bit_count()} cache ways" if self._cache else "; no cache allocation"
        return Capability(self.name, True, f"{self._bandwidth.unit} from {self._bandwidth.least}{ways}")

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        if self._bandwidth is None:
            raise Unavailable(self._why, where=group.name)
        if setting.share >= 1 and group.name not in self._applied:
            return setting
        value, share = self._value(self._bandwidth, group.name, found, setting.share)
        path = self._resctrl.path(group.name)
        if self._resctrl.make(self._wal, self._scope(group.name), path):
            self._applied.pop(group.name, None)
        try:
            known, said = self._applied.get(group.name), self._resctrl.schemata(path)
            if known != (value, said):
                if known is not None and known[1] != said:
                    self._wal.repaired(group.name, f"{path}/schemata was changed: set again")
                self._resctrl.allocate(path, self._schemata(value))
                self._applied[group.name] = (value, self._resctrl.schemata(path))
            inside = self._resctrl.tasks(path)
            self._resctrl.assign(path, [one for one in sorted(found.processes) if one.pid not in inside])
        except (ShoalError, OSError):
            self.restore(group.name)
            raise
        return replace(setting, share=share)

    def restore(self, group: str | None = None) -> None:
        for name in [group] if group is not None else list(self._applied):
            self._applied.pop(name, None)
            self._wal.revert(self._scope(name))

    def _scope(self, group: str) -> str:
        return f"{group}/{self.name}"

    def _value(self, machine: Bandwidth, group: str, found: Found, share: float) -> tuple[int, float]:
        """The number to write, and the share that it stands for."""
        if share >= 1:
            return machine.unlimited, 1.0
        if machine.unit is Unit.PERCENT:
            steps = math.ceil(round(share * 100 / machine.step, 6))
            value = min(100, max(machine.least, steps * machine.step))
            return value, value / 100
        alone = self._unhindered(group).bandwidth
        if alone is None:
            raise Unavailable("what it takes without a limit is not known yet", where=group)
        each = alone / l3_count(self._kernel, found) / machine.unit.bytes_per_s
        value = min(machine.unlimited, max(machine.least, math.ceil(round(share * each, 6))))
        return value, min(1.0, value / each)

    def _schemata(self, value: int) -> dict[str, dict[int, str]]:
        assert self._bandwidth is not None
        rows = {"MB": dict.fromkeys(self._bandwidth.ids, str(value))}
        if self._cache is not None:
            limited = value != self._bandwidth.unlimited
            mask = ways(self._cache, self._cache_share) if limited else self._cache.mask
            rows |= {resource: dict.fromkeys(self._cache.ids, f"{mask:x}") for resource in self._cache.resources}
        return rows


def ways(cache: Cache, share: float) -> int:
    """A run of ways that is this share of the cache, at least as long as the hardware wants, clear of what devices use
    if that is possible."""
    size = cache.mask.bit_length()
    count = min(size, max(cache.least_bits, round(share * size)))
    runs = [((1 << count) - 1) << at for at in range(size - count + 1)]
    return min(runs, key=lambda run: (run & cache.shared).bit_count())
