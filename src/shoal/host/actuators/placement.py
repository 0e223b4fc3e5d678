"""Placement of a group on cores: by cpuset of cgroup v1 or v2, else by binding each thread.

The strongest of all: work in another memory domain disturbs no more and keeps its own speed. Memory moves along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shoal.core import Capability, Conflict, ShoalError, Unavailable
from shoal.host.linux import cpus
from shoal.host.linux.fs import LINUX, Kernel, threads
from shoal.host.linux.hierarchies import Hierarchy, serving, subtree
from shoal.host.linux.members import Found
from shoal.host.types import Control, Domain, Group, Setting
from shoal.host.undo.cgroups import Directories, probing
from shoal.host.undo.write_ahead_log import WriteAheadLog


class Binder:
    """Works out a group's CPUs from a whole setting, and has them bound to these, and to NUMA nodes unless memory is to
    stay where it is. One for the actuators of all three controls."""

    def __init__(self, binding: Cpuset | Affinity, domains: Mapping[int, Domain]) -> None:
        self.binding = binding
        self.domains = domains
        self._free: dict[str, frozenset[int]] = {}

    def apply(self, group: str, found: Found, setting: Setting) -> frozenset[int]:
        """Bind, or let free; returns where it may run."""
        if setting.domains is None and setting.cores is None and setting.cpus is None:
            if group in self._free:
                self.restore(group)
            return found.cpus
        if not found.processes:
            return found.cpus
        free = self._free.setdefault(group, found.cpus)
        allowed = self._allowed(group, free, setting)
        try:
            self.binding.bind(group, found, allowed, self._nodes(setting))
        except BaseException:
            self.restore(group)
            raise
        return allowed

    def restore(self, group: str | None = None) -> None:
        for name in [group] if group is not None else list(self._free):
            self._free.pop(name, None)
            self.binding.free(name)

    def _allowed(self, group: str, free: frozenset[int], setting: Setting) -> frozenset[int]:
        allowed = free if setting.cpus is None else free & setting.cpus
        if setting.domains is not None:
            allowed &= frozenset[int]().union(*(self.domains[at].cpus for at in setting.domains if at in self.domains))
        if not allowed:
            wanted = [] if setting.cpus is None else [f"among {cpus.render(setting.cpus)}"]
            wanted += [] if setting.domains is None else [f"in the domains {cpus.render(setting.domains)}"]
            raise Conflict(
                f"it is allowed on CPUs {cpus.render(free)} only, none of them {' and '.join(wanted)}",
                where=group,
                hint="let its owner widen its cpuset or affinity",
            )
        if setting.cores is not None:
            allowed = frozenset(sorted(allowed)[-max(1, setting.cores) :])
        return allowed

    def _nodes(self, setting: Setting) -> frozenset[int] | None:
        everywhere = frozenset[int]().union(*(domain.nodes for domain in self.domains.values()))
        if setting.domains is None or len(everywhere) < 2:
            return None
        return frozenset[int]().union(*(self.domains[at].nodes for at in setting.domains if at in self.domains))


class _Bound:
    """What the three controls of where a group runs share: a setting is bound as a whole."""

    least_share = 1.0
    prefix: str

    def __init__(self, binder: Binder) -> None:
        self._binder = binder
        self.name = f"{self.prefix}-{binder.binding.name}"

    def capability(self) -> Capability:
        return replace(self._binder.binding.capability(), name=self.name)

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        self._binder.apply(group.name, found, setting)
        return setting

    def restore(self, group: str | None = None) -> None:
        self._binder.restore(group)


class OwnCpus(_Bound):
    """On which CPUs a group runs."""

    control = Control.CPUS
    prefix = "cpus"


class Placement(_Bound):
    """In which domains a group runs."""

    control = Control.DOMAINS
    prefix = "placement"

    def capability(self) -> Capability:
        found = super().capability()
        if found.available and len(self._binder.domains) < 2:
            one = "it has one memory domain only"
            return Capability(self.name, False, one, "neighbours cannot be moved out of the way, only slowed down")
        return found


class CoreCount(_Bound):
    """On how many of its cores a group runs."""

    control = Control.CORES
    prefix = "cores"

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        allowed = self._binder.apply(group.name, found, setting)
        return setting if setting.cores is None else replace(setting, cores=len(allowed))


class Cpuset:
    """By cgroup. New processes and threads cannot get out of it."""

    name = "cpuset"

    def __init__(self, wal: WriteAheadLog, *, kernel: Kernel = LINUX) -> None:
        self._wal = wal
        self._kernel = kernel
        self._directories: Directories | None = None
        self._detail, hierarchy = self._usable()
        if hierarchy is not None:
            prepare = self._inherit if hierarchy.version == 1 else lambda _: None
            self._directories = Directories(kernel, wal, hierarchy, "cpuset.cpus", prepare)

    def capability(self) -> Capability:
        return Capability(self.name, self._directories is not None, self._detail, "threads are bound one by one")

    def bind(self, group: str, found: Found, allowed: frozenset[int], nodes: frozenset[int] | None) -> None:
        if self._directories is None:
            raise Unavailable(self._detail, where=group)
        scope = self._scope(group)
        for directory in self._directories.of(group, found):
            if self._directories.version == 1 and nodes is not None:
                self._wal.write(scope, f"{directory}/cpuset.memory_migrate", "1")
            self._set(scope, directory, "cpuset.cpus", allowed)
            if nodes is not None:
                self._set(scope, directory, "cpuset.mems", nodes)

    def free(self, group: str) -> None:
        self._wal.revert(self._scope(group))
        if self._directories is not None:
            self._directories.release(group)

    def _scope(self, group: str) -> str:
        return f"{group}/{self.name}"

    def _set(self, scope: str, top: str, file: str, wanted: frozenset[int]) -> None:
        """In version 1 a group must lie within its parent at every moment. So all get the union of old and new, from
        parents to children, and then the new, from children to parents (as Koordinator does). In version 2 those below
        get what is left of theirs by themselves."""
        if cpus.parse(self._kernel.read(f"{top}/{file}")) == wanted:
            return
        v1 = self._directories is not None and self._directories.version == 1
        directories = tuple(subtree(self._kernel, top)) if v1 else (top,)
        old = {directory: cpus.parse(self._kernel.read(f"{directory}/{file}")) for directory in directories}
        if len(directories) > 1:
            for directory in directories:
                if not wanted <= old[directory]:
                    self._wal.write(scope, f"{directory}/{file}", cpus.render(old[directory] | wanted))
        for directory in reversed(directories):
            if old[directory] != wanted:
                self._wal.write(scope, f"{directory}/{file}", cpus.render(wanted))

    def _inherit(self, directory: str) -> None:
        """A new group of version 1 takes no process before it has CPUs and memory."""
        parent = directory.rpartition("/")[0]
        for file in ("cpuset.cpus", "cpuset.mems"):
            self._kernel.write(f"{directory}/{file}", self._kernel.read(f"{parent}/{file}").strip())

    def _usable(self) -> tuple[str, Hierarchy | None]:
        try:
            hierarchy = serving(self._kernel, "cpuset")
            if hierarchy is None:
                return "no cgroup hierarchy hands out the cpuset controller", None
            effective = "cpuset.cpus" if hierarchy.version == 1 else "cpuset.cpus.effective"
            with probing(self._wal, hierarchy) as probe:
                whole = cpus.parse(self._kernel.read(f"{hierarchy.top}/{effective}"))
                self._wal.write("probe", f"{probe}/cpuset.cpus", str(min(whole)))
        except (OSError, ShoalError) as problem:
            return f"a cpuset cannot be set: {problem}", None
        return f"cgroup v{hierarchy.version} at {hierarchy.top}", hierarchy


class Affinity:
    """By `sched_setaffinity` of every thread, and `migrate_pages` for memory. Works for any process of ours. One that
    sets its own affinity gets out of it; one whose parent ended before any tick saw it keeps what it was born with."""

    name = "affinity"

    def __init__(self, wal: WriteAheadLog, *, kernel: Kernel = LINUX) -> None:
        self._wal = wal
        self._kernel = kernel
        self._nodes: dict[str, frozenset[int]] = {}
        self._bound: dict[str, tuple[frozenset[int], frozenset[int]]] = {}

    def capability(self) -> Capability:
        return Capability(self.name, True, "sched_setaffinity, thread by thread")

    def bind(self, group: str, found: Found, allowed: frozenset[int], nodes: frozenset[int] | None) -> None:
        free, bound = self._bound.get(group, (found.cpus, None))
        for process in sorted(found.processes):
            for tid in threads(self._kernel, process.pid):
                try:
                    born = free if self._kernel.affinity(tid) == bound else None
                    self._wal.set_affinity(self._scope(group), process.pid, process.start, tid, allowed, born=born)
                except ProcessLookupError:
                    continue
            if nodes is not None and self._nodes.get(group) != nodes:
                self._migrate(process.pid, nodes)
        self._bound[group] = (free, allowed)
        if nodes is not None:
            self._nodes[group] = nodes

    def free(self, group: str) -> None:
        self._nodes.pop(group, None)
        self._bound.pop(group, None)
        self._wal.revert(self._scope(group))

    def _scope(self, group: str) -> str:
        return f"{group}/{self.name}"

    def _migrate(self, pid: int, nodes: frozenset[int]) -> None:
        """Memory that cannot be moved (no CAP_SYS_NICE, node full) stays where it is, and works from there."""
        everywhere = cpus.parse(self._kernel.read("/sys/devices/system/node/online"))
        try:
            self._kernel.migrate_pages(pid, everywhere - nodes, nodes)
        except OSError:
            return
