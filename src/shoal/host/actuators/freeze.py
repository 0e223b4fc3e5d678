"""Freezing: a group stops whole, until it is thawed."""

from __future__ import annotations

import signal
from dataclasses import replace

from shoal.core import Capability, ShoalError, Unavailable
from shoal.host.cgroups import PREFIX, Directories
from shoal.host.fs import LINUX, Kernel
from shoal.host.hierarchies import Hierarchy, serving, unified
from shoal.host.members import Found
from shoal.host.types import Control, Group, Setting
from shoal.host.write_ahead_log import WriteAheadLog

_FILES = {1: ("freezer.state", "FROZEN"), 2: ("cgroup.freeze", "1")}


class CgroupFreeze:
    """By `cgroup.freeze` of version 2, which needs no controller, or the freezer of version 1. Only the kernel
    sees it; a process notices a gap in time."""

    name = "freeze"
    control = Control.FREEZE
    least_share = 1.0

    def __init__(self, wal: WriteAheadLog, *, kernel: Kernel = LINUX) -> None:
        self._wal = wal
        self._directories: Directories | None = None
        self._frozen: set[str] = set()
        self._detail = "no cgroup hierarchy can freeze"
        for hierarchy in (unified(kernel), serving(kernel, "freezer")):
            if hierarchy is None:
                continue
            problem = _refusal(wal, hierarchy)
            if problem is None:
                self._detail = f"cgroup v{hierarchy.version} at {hierarchy.top}"
                self._file, self._word = _FILES[hierarchy.version]
                self._directories = Directories(kernel, wal, hierarchy, self._file)
                break
            self._detail = f"cgroup v{hierarchy.version} at {hierarchy.top}: {problem}"

    def capability(self) -> Capability:
        if self._directories is None:
            return Capability(self.name, False, self._detail, "groups are stopped by SIGSTOP, which their parents see")
        return Capability(self.name, True, self._detail)

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        if self._directories is None:
            raise Unavailable(self._detail, where=group.name)
        if not setting.frozen:
            self._wal.revert(self._scope(group.name))
            return setting
        directories = self._directories.of(group.name, found)
        self._frozen.add(group.name)
        for directory in directories:
            try:
                self._wal.write(self._scope(group.name), f"{directory}/{self._file}", self._word)
            except FileNotFoundError:
                continue  # its processes ended
        return replace(setting, frozen=bool(directories))

    def restore(self, group: str | None = None) -> None:
        for name in [group] if group is not None else list(self._frozen):
            self._frozen.discard(name)
            self._wal.revert(self._scope(name))
        if self._directories is not None:
            self._directories.release(group)

    def _scope(self, group: str) -> str:
        return f"{group}/{self.name}"


class StopSignal:
    """By SIGSTOP. Works on any process that we may signal; its parent is told, a shell may show it."""

    name = "stop-signal"
    control = Control.FREEZE
    least_share = 1.0

    def __init__(self, wal: WriteAheadLog) -> None:
        self._wal = wal
        self._stopped: set[str] = set()

    def capability(self) -> Capability:
        return Capability(self.name, True, "SIGSTOP and SIGCONT")

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        if not setting.frozen:
            if group.name in self._stopped:
                self.restore(group.name)
            return setting
        self._stopped.add(group.name)
        for process in sorted(found.processes):
            try:
                self._wal.stop(self._scope(group.name), process.pid, process.start, signal.SIGSTOP)
            except ProcessLookupError:
                continue
        return setting

    def restore(self, group: str | None = None) -> None:
        for name in [group] if group is not None else list(self._stopped):
            self._stopped.discard(name)
            self._wal.revert(self._scope(name))

    def _scope(self, group: str) -> str:
        return f"{group}/{self.name}"


def _refusal(wal: WriteAheadLog, hierarchy: Hierarchy) -> str | None:
    """What the kernel has against freezing a group there, found out by trying."""
    probe = f"{hierarchy.top}/{PREFIX}probe-{wal.epoch}"
    file, word = _FILES[hierarchy.version]
    try:
        try:
            wal.make("probe", probe)
            wal.write("probe", f"{probe}/{file}", word)
        finally:
            wal.revert("probe")
    except (OSError, ShoalError) as problem:
        return str(problem)
    return None
