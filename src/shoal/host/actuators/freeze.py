"""Freezing: a group stops whole, until it is thawed."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from shoal.core import Capability
from shoal.host.actuators.base import Reverting
from shoal.host.actuators.by_cgroup import ByCgroup
from shoal.host.linux.fs import LINUX, Kernel
from shoal.host.linux.hierarchies import serving, unified
from shoal.host.linux.members import Found
from shoal.host.types import Control, Group, Setting
from shoal.host.undo.write_ahead_log import WriteAheadLog


class CgroupFreeze(ByCgroup):
    """By `cgroup.freeze` of version 2, which needs no controller, or the freezer of version 1. Only the kernel
    sees it; a process notices a gap in time."""

    name = "freeze"
    control = Control.FREEZE
    files = MappingProxyType({1: ("freezer.state", "FROZEN"), 2: ("cgroup.freeze", "1")})
    lacking = "no cgroup hierarchy can freeze"
    costs = "groups are stopped by SIGSTOP, which their parents see"

    def __init__(self, wal: WriteAheadLog, *, kernel: Kernel = LINUX) -> None:
        super().__init__(wal, kernel, [unified(kernel), serving(kernel, "freezer")])

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        word = self.files[self._usable.version][1]
        if not setting.frozen:
            self._wal.revert(self._scope(group.name))
            return setting
        directories = self._directories_of(group, found)
        for directory in directories:
            with suppress(FileNotFoundError):  # its processes ended
                self._wal.write(self._scope(group.name), f"{directory}/{self._file}", word)
        return replace(setting, frozen=bool(directories))


class StopSignal(Reverting):
    """By SIGSTOP. Works on any process that we may signal; its parent is told, a shell may show it."""

    name = "stop-signal"
    control = Control.FREEZE
    least_share = 1.0

    def capability(self) -> Capability:
        return Capability(self.name, True, "SIGSTOP and SIGCONT")

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        if not setting.frozen:
            if group.name in self._limited:
                self.restore(group.name)
            return setting
        self._limited.add(group.name)
        for process in sorted(found.processes):
            try:
                self._wal.stop(self._scope(group.name), process.pid, process.start, signal.SIGSTOP)
            except ProcessLookupError:
                continue
        return setting
