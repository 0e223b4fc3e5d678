"""Cgroup directories that hold one group's processes and no others.

A limit on a directory limits all in it. So where a group's processes make up a directory, that one is used; where
others share it, a child of it is made and they are moved there: what limits the parent goes on limiting them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shoal.core import Conflict, Unavailable
from shoal.host.linux.fs import Kernel
from shoal.host.linux.hierarchies import Hierarchy, processes, subtree
from shoal.host.linux.members import Found
from shoal.host.undo.write_ahead_log import WriteAheadLog

PREFIX = "shoal-guard-"
"""Of the names of all directories that are made here; others are never removed."""
_GENERATIONS = 8


class Directories:
    """Of one hierarchy, for limits by `needs`, a file that each directory must have. `prepare` makes a new one fit to
    take processes."""

    def __init__(
        self,
        kernel: Kernel,
        wal: WriteAheadLog,
        hierarchy: Hierarchy,
        needs: str,
        prepare: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._kernel = kernel
        self._wal = wal
        self._hierarchy = hierarchy
        self._needs = needs
        self._prepare = prepare
        self._places: dict[str, tuple[dict[str, str], frozenset[int]]] = {}
        """By group: where its processes are, with the directory that limits them there; and which these are."""
        self._whole: dict[str, set[str]] = {}

    @property
    def version(self) -> int:
        return self._hierarchy.version

    def of(self, group: str, found: Found) -> tuple[str, ...]:
        """Directories that hold the group's processes only, after newcomers, and those that others took out, were
        moved there. Read anew at each call. Raises Unavailable where there can be none, Conflict where a process may
        not be moved."""
        pids = {process.pid for process in found.processes}
        places, before = self._places.get(group, ({}, frozenset[int]()))
        if found.cgroup and before == pids and places:
            return tuple(sorted(set(places.values())))  # they were found in it
        there = {place: pids.intersection(processes(self._kernel, place)) for place in places}
        places = {place: limit for place, limit in places.items() if there[place]}
        strayed = pids.difference(*there.values())
        taken = sorted(strayed & before)
        if taken and all(self._kernel.exists(place) for place in there):
            text = f"processes {', '.join(map(str, taken))} were taken out of their cgroup: moved back"
            self._wal.repaired(group, text)
        for pid in sorted(strayed):
            directory = self._hierarchy.directory(self._kernel, pid)
            if directory is None:
                continue
            limit = self._its_own(group, found, directory, pid, pids)
            if limit not in places.values() and not self._kernel.exists(f"{limit}/{self._needs}"):
                self.release(group)
                raise Unavailable(
                    f"{limit} has no {self._needs}",
                    where=group,
                    hint="give its processes a cgroup of their own whose parent hands the controller on",
                )
            places[limit if limit == f"{directory}/{own_name(group)}" else directory] = limit
        self._places[group] = (places, frozenset(pids))
        return tuple(sorted(set(places.values())))

    def release(self, group: str | None = None) -> None:
        """Move its processes (all groups' without one) back, and remove what was made, unless another mechanism still
        limits it there."""
        for name in [group] if group is not None else list(self._places):
            self._places.pop(name, None)
            self._whole.pop(name, None)
            if not self._wal.in_use(self._scope(name)):
                self._wal.revert(self._scope(name))

    def _scope(self, group: str) -> str:
        return f"{group}/directories:{self._hierarchy.top}"

    def _its_own(self, group: str, found: Found, directory: str, pid: int, pids: set[int]) -> str:
        name = own_name(group)
        if directory.rpartition("/")[2] == name:
            return directory
        declared = f"{self._hierarchy.top}/{found.cgroup}"
        if found.cgroup and f"{directory}/".startswith(f"{declared}/"):
            return declared
        whole = self._whole_one(group, directory, pids)
        if whole is not None:
            return whole
        child = f"{directory}/{name}"
        try:
            if not self._kernel.exists(child):
                self._wal.make(self._scope(group), child)
                self._prepare(child)
            self._kernel.write(f"{child}/cgroup.procs", str(pid))
        except ProcessLookupError:
            pass
        except OSError as problem:
            self.release(group)
            raise Conflict(f"process {pid} cannot be moved to {child}: {problem.strerror}", where=group) from problem
        return child

    def _whole_one(self, group: str, directory: str, pids: set[int]) -> str | None:
        """The directory, or the nearest above it that has the file, if it holds the group only."""
        known, here = self._whole.setdefault(group, set()), directory
        while here != self._hierarchy.top and (here in known or self._only(here, pids)):
            known.add(here)
            if self._kernel.exists(f"{here}/{self._needs}"):
                return here
            here = here.rpartition("/")[0]
        return None if here == directory else directory

    def _only(self, directory: str, pids: set[int]) -> bool:
        return all(
            pid in pids or self._descends(pid, pids)
            for below in subtree(self._kernel, directory)
            for pid in processes(self._kernel, below)
        )

    def _descends(self, pid: int, pids: set[int]) -> bool:
        """Whether a process was forked off by one of these since they were looked for."""
        for _ in range(_GENERATIONS):
            try:
                pid = int(self._kernel.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])
            except OSError:
                return True
            if pid in pids:
                return True
            if pid <= 1:
                return False
        return False


@contextmanager
def probing(wal: WriteAheadLog, hierarchy: Hierarchy) -> Iterator[str]:
    """A directory of a moment, to find out by trying what the kernel lets us do there; scope `probe` of the log."""
    directory = f"{hierarchy.top}/{PREFIX}probe-{wal.epoch}"
    try:
        wal.make("probe", directory)
        yield directory
    finally:
        wal.revert("probe")


def own_name(group: str) -> str:
    """The name of directories that are made for a group."""
    return PREFIX + re.sub(r"[^A-Za-z0-9_.-]", "_", group)
