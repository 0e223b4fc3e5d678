"""The shared part of mechanisms that write into cgroups: finding a hierarchy that lets them, and taking everything
back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.core import Capability, ShoalError, Unavailable
from shoal.host.actuators.base import Reverting
from shoal.host.linux.fs import Kernel
from shoal.host.linux.hierarchies import Hierarchy
from shoal.host.linux.members import Found
from shoal.host.types import Group
from shoal.host.undo.cgroups import Directories, probing
from shoal.host.undo.write_ahead_log import WriteAheadLog


class ByCgroup(Reverting):
    """`files` has, by version of cgroups, the file that limits, and a limit to find out with whether the kernel takes
    any. `lacking` is why there may be none at all, `costs` what that costs."""

    least_share = 1.0
    files: Mapping[int, tuple[str, str]]
    lacking: str
    costs: str

    def __init__(self, wal: WriteAheadLog, kernel: Kernel, candidates: Iterable[Hierarchy | None]) -> None:
        super().__init__(wal)
        self._kernel = kernel
        self._directories: Directories | None = None
        self._file = ""
        self._detail = self.lacking
        for hierarchy in candidates:
            if hierarchy is None:
                continue
            self._file, word = self.files[hierarchy.version]
            self._detail = f"cgroup v{hierarchy.version} at {hierarchy.top}"
            try:
                with probing(wal, hierarchy) as directory:
                    wal.write("probe", f"{directory}/{self._file}", word)
            except (OSError, ShoalError) as problem:
                self._detail += f": {problem}"
                continue
            self._directories = Directories(kernel, wal, hierarchy, self._file)
            return

    def capability(self) -> Capability:
        works = self._directories is not None
        return Capability(self.name, works, self._detail, "" if works else self.costs)

    def restore(self, group: str | None = None) -> None:
        super().restore(group)
        if self._directories is not None:
            self._directories.release(group)

    @property
    def _usable(self) -> Directories:
        if self._directories is None:
            raise Unavailable(self._detail)
        return self._directories

    def _directories_of(self, group: Group, found: Found) -> tuple[str, ...]:
        """Of a group that is being limited."""
        directories = self._usable.of(group.name, found)
        if directories:
            self._limited.add(group.name)
        return directories
