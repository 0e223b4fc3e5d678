"""The processes of a group: the processes of a cgroup, some processes with their descendants, or all that carry a label
in their environment. Looked up again and again, so that newcomers are found.

Every user chooses the environment of his own processes. So a label counts only for processes of owners that may choose
a group; a pid or a cgroup is chosen by the writer of the configuration.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from shoal.core import Invalid, PriorityClass
from shoal.host.linux.fs import LINUX, Kernel, family, owners_of, start_time, threads
from shoal.host.linux.hierarchies import hierarchies, processes, subtree
from shoal.host.types import Group

FOLLOW_S = 0.5
"""How old the list of a cgroup's or process's descendants may be."""
UNBORN_S = 2.0
"""The same of a process's descendants while nothing was born on this machine: only of those that have ended."""
SCAN_S = 1.0
"""How old what has to be asked of each process of the machine (its environment) or each thread (its CPUs) may be."""
_SETTLING = 3
"""Scans after which a process's environment is final: a program gets its own only when it is executed."""


@dataclass(frozen=True, slots=True)
class Members:
    """Exactly one of these. `cgroup` is a directory (`/sys/fs/cgroup/cpu/a/b`) or its path in every hierarchy
    (`a/b`), with all below it; `pids` take their descendants along; `label` is `NAME=VALUE`.

    Of these only processes count whose real, effective and saved user ids are all among `owners`. None means all users,
    but for a label, which then counts for root's processes and those of this process's own user."""

    cgroup: str = ""
    pids: frozenset[int] = frozenset()
    label: str = ""
    owners: frozenset[int] | None = None

    def __post_init__(self) -> None:
        if bool(self.cgroup) + bool(self.pids) + bool(self.label) != 1:
            raise Invalid("a group's members are named by one of cgroup, pids and label", where="members")

    @property
    def trusted(self) -> frozenset[int] | None:
        """The users whose processes count; None means all users."""
        return frozenset({0, os.geteuid()}) if self.owners is None and self.label else self.owners

    def unmatched(self, found: Iterable[Process], foreign: int = 0) -> str:
        """What of this no process matches: `pids 7, 8`; empty if there is one for everything. `foreign` is how many
        match but have another owner."""
        whose = f" ({foreign} of users that are not among its owners)" if foreign else ""
        if self.pids:
            gone = self.pids - {one.pid for one in found}
            return f"pids {', '.join(map(str, sorted(gone)))}{whose}" if gone else ""
        if any(True for _ in found):
            return ""
        return (f"cgroup {self.cgroup}" if self.cgroup else f"label {self.label}") + whose


class Process(NamedTuple):
    """A pid alone is no identity: `start` is when it started, in clock ticks since boot."""

    pid: int
    start: int


@dataclass(frozen=True, slots=True)
class Found:
    """A group's processes. `cpus` is where any of their threads may run, `exclusive` those of them where no
    guaranteed group may; `cgroup` the path in hierarchies that they were found by, if they were; `unmatched` what of
    the group's definition matches no process."""

    processes: frozenset[Process] = frozenset()
    cpus: frozenset[int] = frozenset()
    exclusive: frozenset[int] = frozenset()
    cgroup: str = ""
    unmatched: str = ""


NONE_FOUND = Found()


@dataclass(slots=True)
class _Looked:
    processes: frozenset[Process] = frozenset()
    at: float = float("-inf")
    cpus: frozenset[int] = frozenset()
    cpus_at: float = float("-inf")
    newest_pid: str = ""
    """Of the machine, when it was looked at."""
    roots: dict[int, int] = field(default_factory=dict)
    """When each of the pids that were named had started, when it was seen first: a pid is given out again."""
    foreign: int = 0
    found: Found = field(default_factory=Found)
    summed: object = None


class Membership:
    """The processes of each group. `groups` may be exchanged at any time."""

    def __init__(self, groups: Mapping[str, tuple[Group, Members]], *, kernel: Kernel = LINUX) -> None:
        self.groups = groups
        self._kernel = kernel
        self._looked: dict[str, _Looked] = {}
        self._environments = _Environments(kernel)
        self._tops: tuple[str, ...] = ()
        self._all: Mapping[str, Found] = {}
        self._of: object = None
        self._at = float("-inf")

    def refresh(self, now: float) -> Mapping[str, Found]:
        """All processes at `now` (monotonic seconds), as old as FOLLOW_S or SCAN_S at most."""
        if now - self._at < FOLLOW_S and self._of is self.groups:
            return self._all
        self._at, self._of = now, self.groups
        newest = self._newest_pid()
        self._looked = {name: self._looked.get(name) or _Looked() for name in self.groups}
        for name, (_, members) in self.groups.items():
            self._look(self._looked[name], members, now, newest)
        taken = frozenset[int]().union(
            *(
                self._looked[name].cpus
                for name, (group, _) in self.groups.items()
                if group.priority_class is PriorityClass.GUARANTEED and self._looked[name].processes
            )
        )
        self._all = {name: self._sum_up(name, taken) for name in self.groups}
        return self._all

    def look_again(self) -> None:
        """Let nothing that is known count at the next refresh: processes were moved between CPUs."""
        self._at = float("-inf")
        for looked in self._looked.values():
            looked.at = looked.cpus_at = float("-inf")

    def _look(self, looked: _Looked, members: Members, now: float, newest: str) -> None:
        # A family has no newcomers if no process or thread was born on this machine since it was looked at.
        unborn = bool(members.pids) and newest == looked.newest_pid != "" and now - looked.at < UNBORN_S
        if now - looked.at >= (SCAN_S if members.label else FOLLOW_S) and not unborn:
            known = {process.pid: process.start for process in looked.processes}
            pids = self._owned(looked, members, frozenset(self._pids(looked, members, now)))
            starts = ((pid, known.get(pid) or start_time(self._kernel, pid)) for pid in pids)
            present = frozenset(Process(pid, start) for pid, start in starts if start is not None)
            if present - looked.processes:
                looked.cpus_at = float("-inf")
            looked.processes, looked.at, looked.newest_pid = present, now, newest
        if now - looked.cpus_at >= SCAN_S:
            looked.cpus = frozenset[int]().union(*(self._cpus(process.pid) for process in looked.processes))
            looked.cpus_at = now

    def _owned(self, looked: _Looked, members: Members, pids: frozenset[int]) -> frozenset[int]:
        trusted = members.trusted
        if trusted is None:
            looked.foreign = 0
            return pids
        owners = {pid: owners_of(self._kernel, pid) for pid in pids}
        own = frozenset(pid for pid, found in owners.items() if found and found <= trusted)
        looked.foreign = sum(bool(found) for found in owners.values()) - len(own)
        return own

    def _newest_pid(self) -> str:
        """The one that was given last, to a process or thread; empty if the kernel does not say."""
        try:
            return self._kernel.read("/proc/loadavg").split()[-1]
        except (OSError, IndexError):
            return ""

    def _sum_up(self, name: str, taken: frozenset[int]) -> Found:
        looked, members = self._looked[name], self.groups[name][1]
        summed = (looked.processes, looked.cpus, taken, members, looked.foreign)
        if looked.summed == summed:
            return looked.found
        looked.summed, unmatched = summed, members.unmatched(looked.processes, looked.foreign)
        found = Found(looked.processes, looked.cpus, looked.cpus - taken, self._path(members.cgroup), unmatched)
        if found != looked.found:
            looked.found = found
        return looked.found

    def _pids(self, looked: _Looked, members: Members, now: float) -> Iterator[int]:
        if members.label:
            yield from self._environments.having(members.label, now)
        elif members.pids:
            looked.roots = {pid: start for pid, start in looked.roots.items() if pid in members.pids}
            for pid in members.pids:
                start = start_time(self._kernel, pid)
                if start is not None and looked.roots.setdefault(pid, start) == start:
                    yield from family(self._kernel, pid)
        else:
            yield from self._cgroup_pids(self._path(members.cgroup))

    def _path(self, cgroup: str) -> str:
        for top in self._hierarchy_tops():
            if f"{cgroup}/".startswith(f"{top}/"):
                return cgroup[len(top) :].strip("/")
        return cgroup.strip("/")

    def _cgroup_pids(self, path: str) -> Iterator[int]:
        for top in self._hierarchy_tops():
            for directory in subtree(self._kernel, f"{top}/{path}"):
                yield from processes(self._kernel, directory)

    def _hierarchy_tops(self) -> tuple[str, ...]:
        if not self._tops:
            self._tops = tuple(sorted((one.top for one in hierarchies(self._kernel)), key=len, reverse=True))
        return self._tops

    def _cpus(self, pid: int) -> frozenset[int]:
        allowed: set[int] = set()
        for tid in threads(self._kernel, pid):
            try:
                allowed |= self._kernel.affinity(tid)
            except OSError:
                continue
        return frozenset(allowed)


class _Environments:
    """What processes carry. Reading all of them costs a millisecond per hundred, so each is read a few times only."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._at = float("-inf")
        self._read: dict[int, tuple[int, frozenset[str]]] = {}
        self._labels: dict[str, None] = {}

    def having(self, label: str, now: float) -> Iterator[int]:
        if label not in self._labels:
            self._labels[label] = None
            self._read.clear()
            self._at = float("-inf")
        if now - self._at >= SCAN_S:
            self._scan()
            self._at = now
        return (pid for pid, (_, labels) in self._read.items() if label in labels)

    def _scan(self) -> None:
        own = os.getpid()
        pids = [int(name) for name in self._kernel.names("/proc") if name.isdigit()]
        known, self._read = self._read, {}
        for pid in pids:
            times, labels = known.get(pid, (0, frozenset[str]()))
            if times < _SETTLING and pid != own:
                times, labels = times + 1, self._carried(pid)
            self._read[pid] = (times, labels)

    def _carried(self, pid: int) -> frozenset[str]:
        try:
            items = frozenset(self._kernel.read(f"/proc/{pid}/environ").split("\0"))
        except OSError:  # gone, or another user's
            return frozenset()
        return frozenset(label for label in self._labels if label in items)
