"""CPU weight: guaranteed work goes before what is in no group where both want the same CPU.

Work that is in no group leaves the cores of best-effort work when those are paced. What is left to it are the CPUs of
guaranteed work. The scheduler then divides these evenly, and no step's CPU time shows it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from shoal.core import Capability, Conflict, ShoalError, Unavailable
from shoal.host.cgroups import PREFIX, Directories
from shoal.host.fs import LINUX, Kernel
from shoal.host.hierarchies import Hierarchy, serving
from shoal.host.members import Found
from shoal.host.types import Control, Group, Setting
from shoal.host.write_ahead_log import WriteAheadLog

_FILES = {1: ("cpu.shares", 1024, 262_144), 2: ("cpu.weight", 100, 10_000)}
"""By version: the file, what a cgroup has by default, and the most that the kernel takes."""
_COSTS = "what is in no group takes CPU time from guaranteed work wherever both may run"


class CpuWeight:
    """By `cpu.shares` of version 1 or `cpu.weight` of version 2. A cgroup weighs against those beside it, and tasks
    beside it; its weight is divided among the CPUs that it keeps busy. More than it had is never taken away."""

    name = "weight"
    control = Control.WEIGHT
    least_share = 1.0

    def __init__(self, wal: WriteAheadLog, *, kernel: Kernel = LINUX) -> None:
        self._wal = wal
        self._kernel = kernel
        self._directories: Directories | None = None
        self._raised: set[str] = set()
        self._detail, hierarchy = _usable(kernel, wal)
        if hierarchy is not None:
            self._file, self._usual, self._most = _FILES[hierarchy.version]
            self._directories = Directories(kernel, wal, hierarchy, self._file)

    def capability(self) -> Capability:
        if self._directories is None:
            return Capability(self.name, False, self._detail, _COSTS)
        return Capability(self.name, True, self._detail)

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        if self._directories is None:
            raise Unavailable(self._detail, where=group.name)
        if setting.weight is None:
            self.restore(group.name)
            return setting
        directories = self._directories.of(group.name, found)
        if not directories:
            return replace(setting, weight=None)
        value = min(self._most, math.ceil(setting.weight * self._usual))
        self._raised.add(group.name)
        for directory in directories:
            self._raise(group.name, f"{directory}/{self._file}", value)
        return replace(setting, weight=min(setting.weight, self._most / self._usual))

    def restore(self, group: str | None = None) -> None:
        for name in [group] if group is not None else list(self._raised):
            self._raised.discard(name)
            self._wal.revert(self._scope(name))
        if self._directories is not None:
            self._directories.release(group)

    def _scope(self, group: str) -> str:
        return f"{group}/{self.name}"

    def _raise(self, group: str, path: str, value: int) -> None:
        try:
            owners = self._wal.before(path) or self._kernel.read(path)
            if int(owners) < value:
                self._wal.write(self._scope(group), path, str(value))
        except OSError as problem:
            self.restore(group)
            raise Conflict(f"a CPU weight is refused: {problem.strerror}", where=path) from problem


def _usable(kernel: Kernel, wal: WriteAheadLog) -> tuple[str, Hierarchy | None]:
    """The hierarchy in which a weight can be set, found out by setting one."""
    try:
        hierarchy = serving(kernel, "cpu")
        if hierarchy is None:
            return "no cgroup hierarchy hands out the cpu controller", None
        file, _, most = _FILES[hierarchy.version]
        probe = f"{hierarchy.top}/{PREFIX}probe-{wal.epoch}"
        try:
            wal.make("probe", probe)
            wal.write("probe", f"{probe}/{file}", str(most))
        finally:
            wal.revert("probe")
    except (OSError, ShoalError) as problem:
        return f"a CPU weight cannot be set: {problem}", None
    return f"cgroup v{hierarchy.version} at {hierarchy.top}", hierarchy
