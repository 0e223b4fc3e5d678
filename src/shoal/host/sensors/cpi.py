"""Cycles per instruction of each group (after CPI2): contention shows as more cycles for the same instructions."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.core import Capability
from shoal.host import perf
from shoal.host.fs import LINUX, Kernel
from shoal.host.hierarchies import Hierarchy, hierarchies
from shoal.host.members import Found
from shoal.host.perf import CYCLES, INSTRUCTIONS, CounterGroup, Counts
from shoal.host.sensors.base import FIRST, Key, Quantity, Readings, Scope, missing
from shoal.host.types import Reading

_COSTS = "groups without step times are judged by memory latency only"
_LEAST_INSTRUCTIONS = 1e6
"""Fewer say nothing of a group."""


class CyclesPerInstruction:
    """Counts a group's cgroup on every CPU that it may use; groups that share theirs with others are not counted."""

    name = "cpi"

    def __init__(self, *, kernel: Kernel = LINUX) -> None:
        self._kernel = kernel
        self._open: dict[str, tuple[tuple[str, frozenset[int]], list[CounterGroup]]] = {}
        self._last: dict[str, list[Counts]] = {}
        self._hierarchy = _perf_hierarchy(kernel)
        self._problem = _refusal(kernel)

    def capability(self) -> Capability:
        if self._problem is not None:
            return Capability(self.name, False, self._problem, _COSTS)
        if self._hierarchy is None:
            return Capability(self.name, False, "no cgroup hierarchy counts events (perf_event, or version 2)", _COSTS)
        return Capability(self.name, True, f"by cgroup v{self._hierarchy.version} at {self._hierarchy.top}")

    def read(self, now: float, found: Mapping[str, Found], since: float) -> Readings:  # noqa: ARG002
        if self._problem is not None or self._hierarchy is None:
            return {}
        for gone in set(self._open) - set(found):
            self._shut(gone)
        readings = {}
        for name, members in found.items():
            try:
                readings[Key(Quantity.CPI, Scope.GROUP, name)] = self._of(name, members)
            except OSError as problem:  # its cgroup went, or the kernel has no more counters
                self._shut(name)
                readings[Key(Quantity.CPI, Scope.GROUP, name)] = missing(f"it cannot be counted: {problem.strerror}")
        return readings

    def close(self) -> None:
        for name in list(self._open):
            self._shut(name)

    def _of(self, name: str, members: Found) -> Reading:
        directory = self._directory(members)
        if directory is None:
            self._shut(name)
            return missing("its processes have no cgroup of their own to be counted by")
        wanted = (directory, members.cpus)
        if name not in self._open or self._open[name][0] != wanted:
            self._shut(name)
            self._open[name] = (wanted, self._counters(directory, members.cpus))
        return self._ratio(name)

    def _ratio(self, name: str) -> Reading:
        counts = [group.read() for group in self._open[name][1]]
        before = self._last.get(name)
        self._last[name] = counts
        if before is None:
            return FIRST
        deltas = [delta for now, then in zip(counts, before, strict=True) if (delta := now.since(then)) is not None]
        cycles, instructions = (sum(delta[at] for delta in deltas) for at in (0, 1))
        if instructions < _LEAST_INSTRUCTIONS:
            return missing("it did next to nothing")
        return Reading(cycles / instructions)

    def _counters(self, directory: str, cpus: frozenset[int]) -> list[CounterGroup]:
        opened: list[CounterGroup] = []
        fd = self._kernel.open_directory(directory)
        try:
            for cpu in sorted(cpus):
                opened.append(
                    CounterGroup(self._kernel, (CYCLES, INSTRUCTIONS), cpu=cpu, pid=fd, flags=perf.FLAG_PID_CGROUP)
                )
        except OSError:
            for group in opened:
                group.close()
            raise
        finally:
            self._kernel.close(fd)
        return opened

    def _shut(self, name: str) -> None:
        self._last.pop(name, None)
        for group in self._open.pop(name, (None, []))[1]:
            group.close()

    def _directory(self, members: Found) -> str | None:
        """The one that all of its processes are in, unless it is the root, where all processes are."""
        assert self._hierarchy is not None
        if members.cgroup and self._kernel.exists(f"{self._hierarchy.top}/{members.cgroup}/cgroup.procs"):
            return f"{self._hierarchy.top}/{members.cgroup}"
        own = {self._hierarchy.directory(self._kernel, process.pid) for process in members.processes} - {None}
        if len(own) != 1:
            return None
        (directory,) = own
        if directory is None or directory == self._hierarchy.top:
            return None
        pids = {str(process.pid) for process in members.processes}
        return directory if set(self._kernel.read(f"{directory}/cgroup.procs").split()) <= pids else None


def _perf_hierarchy(kernel: Kernel) -> Hierarchy | None:
    """Version 2 counts by any group, unless a hierarchy of version 1 took the controller."""
    mounted = hierarchies(kernel)
    first = next((one for one in mounted if "perf_event" in one.controllers), None)
    return first or next((one for one in mounted if one.version == 2), None)


def _refusal(kernel: Kernel) -> str | None:
    try:
        CounterGroup(kernel, (CYCLES, INSTRUCTIONS), cpu=0).close()
    except FileNotFoundError:
        return "the processor shows no counters (VMs seldom do)"
    except OSError as problem:
        return f"counters are refused: {problem.strerror}; {perf.paranoid_hint(kernel)}"
    return None
