"""A CPU quota. The mean of what a group takes follows it, the tail of what it does to others does not: it runs
unhindered for a part of every period."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

from shoal.core import Conflict
from shoal.host.actuators.base import Unhindered
from shoal.host.actuators.by_cgroup import ByCgroup
from shoal.host.linux.fs import LINUX, Kernel
from shoal.host.linux.hierarchies import serving
from shoal.host.linux.members import Found
from shoal.host.types import Control, Group, Setting
from shoal.host.undo.write_ahead_log import WriteAheadLog

PERIOD_US = 100_000
LEAST_QUOTA_US = 1000
"""The kernel's; with it, a period of 100 ms makes one per cent of a CPU the least."""


class Quota(ByCgroup):
    """`unhindered` says how many CPUs a group keeps busy without limits: a share is one of them. Without it, all CPUs
    that it may use count."""

    name = "quota"
    control = Control.SHARE
    least_share = LEAST_QUOTA_US / PERIOD_US
    files = MappingProxyType({
        1: ("cpu.cfs_quota_us", str(LEAST_QUOTA_US)),
        2: ("cpu.max", f"{LEAST_QUOTA_US} {PERIOD_US}"),
    })  # fmt: skip
    lacking = "no cgroup hierarchy hands out the cpu controller"
    costs = "best-effort work can be slowed down only by pacing, fewer cores or freezing"

    def __init__(self, wal: WriteAheadLog, *, unhindered: Callable[[str], Unhindered], kernel: Kernel = LINUX) -> None:
        super().__init__(wal, kernel, [serving(kernel, "cpu")])
        self._unhindered = unhindered

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        v1 = self._usable.version == 1
        if setting.share >= 1:
            self._wal.revert(self._scope(group.name))
            return setting
        directories = self._directories_of(group, found)
        if not directories:
            return replace(setting, share=1.0)
        busy = self._unhindered(group.name).cpus or len(found.cpus) or 1
        quota = max(LEAST_QUOTA_US, round(setting.share * busy * PERIOD_US / len(directories)))
        for directory in directories:
            self._limit(group.name, directory, quota, v1=v1)
        return replace(setting, share=min(1.0, quota * len(directories) / (busy * PERIOD_US)))

    def _limit(self, group: str, directory: str, quota: int, *, v1: bool) -> None:
        scope, path = self._scope(group), f"{directory}/{self._file}"
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
