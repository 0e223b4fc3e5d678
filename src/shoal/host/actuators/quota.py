"""A CPU quota. The mean of what a group takes follows it, the tail of what it does to others does not: it runs
unhindered for a part of every period."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shoal.core import Capability, Conflict, ShoalError, Unavailable
from shoal.host.actuators.base import Unhindered
from shoal.host.cgroups import PREFIX, Directories
from shoal.host.fs import LINUX, Kernel
from shoal.host.hierarchies import Hierarchy, serving
from shoal.host.members import Found
from shoal.host.types import Control, Group, Setting
from shoal.host.write_ahead_log import WriteAheadLog

PERIOD_US = 100_000
LEAST_QUOTA_US = 1000
"""The kernel's; with it, a period of 100 ms makes one per cent of a CPU the least."""
_COSTS = "best-effort work can be slowed down only by pacing, fewer cores or freezing"


class Quota:
    """`unhindered` says how many CPUs a group keeps busy without limits: a share is one of them. Without it, all CPUs
    that it may use count."""

    name = "quota"
    control = Control.SHARE
    least_share = LEAST_QUOTA_US / PERIOD_US

    def __init__(self, wal: WriteAheadLog, *, unhindered: Callable[[str], Unhindered], kernel: Kernel = LINUX) -> None:
        self._wal = wal
        self._kernel = kernel
        self._unhindered = unhindered
        self._limited: set[str] = set()
        self._directories: Directories | None = None
        self._detail, hierarchy = _usable(kernel, wal)
        if hierarchy is not None:
            needs = "cpu.cfs_quota_us" if hierarchy.version == 1 else "cpu.max"
            self._directories = Directories(kernel, wal, hierarchy, needs)

    def capability(self) -> Capability:
        if self._directories is None:
            return Capability(self.name, False, self._detail, _COSTS)
        return Capability(self.name, True, self._detail)

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        if self._directories is None:
            raise Unavailable(self._detail, where=group.name)
        if setting.share >= 1:
            self._wal.revert(self._scope(group.name))
            return setting
        directories = self._directories.of(group.name, found)
        if not directories:
            return replace(setting, share=1.0)
        busy = self._unhindered(group.name).cpus or len(found.cpus) or 1
        quota = max(LEAST_QUOTA_US, round(setting.share * busy * PERIOD_US / len(directories)))
        self._limited.add(group.name)
        for directory in directories:
            self._limit(group.name, directory, quota)
        return replace(setting, share=min(1.0, quota * len(directories) / (busy * PERIOD_US)))

    def restore(self, group: str | None = None) -> None:
        for name in [group] if group is not None else list(self._limited):
            self._limited.discard(name)
            self._wal.revert(self._scope(name))
        if self._directories is not None:
            self._directories.release(group)

    def _scope(self, group: str) -> str:
        return f"{group}/{self.name}"

    def _limit(self, group: str, directory: str, quota: int) -> None:
        scope, v1 = self._scope(group), self._directories is not None and self._directories.version == 1
        path = f"{directory}/{'cpu.cfs_quota_us' if v1 else 'cpu.max'}"
        owners = self._owners_ratio(path, v1=v1)
        if owners is not None and owners <= quota / PERIOD_US:
            return  # its owner limits it more
        try:
            if v1:
                self._wal.write(scope, f"{directory}/cpu.cfs_period_us", str(PERIOD_US))
                self._wal.write(scope, path, str(quota))
            else:
                self._wal.write(scope, path, f"{quota} {PERIOD_US}")
        except FileNotFoundError:
            return  # its processes ended
        except OSError as problem:
            self.restore(group)
            hint = "a cgroup below it may have a larger quota of its own"
            raise Conflict(f"a quota is refused: {problem.strerror}", where=directory, hint=hint) from problem

    def _owners_ratio(self, path: str, *, v1: bool) -> float | None:
        """The CPUs that a quota that others set leaves it; None without one."""
        text = self._wal.before(path)
        try:
            text = self._kernel.read(path) if text is None else text
            if v1:
                period = f"{path.rpartition('/')[0]}/cpu.cfs_period_us"
                text = f"{text} {self._wal.before(period) or self._kernel.read(period)}"
        except OSError:
            return None
        quota, period = text.split()
        return None if quota in ("max", "-1") else int(quota) / int(period)


def _usable(kernel: Kernel, wal: WriteAheadLog) -> tuple[str, Hierarchy | None]:
    """The hierarchy in which a quota can be set, found out by setting one."""
    try:
        hierarchy = serving(kernel, "cpu")
        if hierarchy is None:
            return "no cgroup hierarchy hands out the cpu controller", None
        probe = f"{hierarchy.top}/{PREFIX}probe-{wal.epoch}"
        try:
            wal.make("probe", probe)
            if hierarchy.version == 1:
                wal.write("probe", f"{probe}/cpu.cfs_quota_us", str(LEAST_QUOTA_US))
            else:
                wal.write("probe", f"{probe}/cpu.max", f"{LEAST_QUOTA_US} {PERIOD_US}")
        finally:
            wal.revert("probe")
    except (OSError, ShoalError) as problem:
        return f"a CPU quota cannot be set: {problem}", None
    return f"cgroup v{hierarchy.version} at {hierarchy.top}", hierarchy
