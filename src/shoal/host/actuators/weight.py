"""CPU weight: guaranteed work goes before what is in no group where both want the same CPU.

Work that is in no group leaves the cores of best-effort work when those are paced. What is left to it are the CPUs of
guaranteed work. The scheduler then divides these evenly, and no step's CPU time shows it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType

from shoal.core import Conflict
from shoal.host.actuators.by_cgroup import ByCgroup
from shoal.host.linux.fs import LINUX, Kernel
from shoal.host.linux.hierarchies import serving
from shoal.host.linux.members import Found
from shoal.host.types import Control, Group, Setting
from shoal.host.undo.write_ahead_log import WriteAheadLog

_BOUNDS = {1: (1024, 262_144), 2: (100, 10_000)}
"""By version: what a cgroup has by default, and the most that the kernel takes."""


class CpuWeight(ByCgroup):
    """By `cpu.shares` of version 1 or `cpu.weight` of version 2. A cgroup weighs against those beside it, and tasks
    beside it; its weight is divided among the CPUs that it keeps busy. More than it had is never taken away."""

    name = "weight"
    control = Control.WEIGHT
    files = MappingProxyType({1: ("cpu.shares", "262144"), 2: ("cpu.weight", "10000")})
    lacking = "no cgroup hierarchy hands out the cpu controller"
    costs = "what is in no group takes CPU time from guaranteed work wherever both may run"

    def __init__(self, wal: WriteAheadLog, *, kernel: Kernel = LINUX) -> None:
        super().__init__(wal, kernel, [serving(kernel, "cpu")])

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        usual, most = _BOUNDS[self._usable.version]
        if setting.weight is None:
            self.restore(group.name)
            return setting
        directories = self._directories_of(group, found)
        if not directories:
            return replace(setting, weight=None)
        for directory in directories:
            self._raise(group.name, f"{directory}/{self._file}", min(most, math.ceil(setting.weight * usual)))
        return replace(setting, weight=min(setting.weight, most / usual))

    def _raise(self, group: str, path: str, value: int) -> None:
        try:
            owners = self._wal.before(path) or self._kernel.read(path)
            if int(owners) < value:
                self._wal.write(self._scope(group), path, str(value))
        except OSError as problem:
            self.restore(group)
            raise Conflict(f"a CPU weight is refused: {problem.strerror}", where=path) from problem
