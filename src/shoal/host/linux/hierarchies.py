"""The cgroup hierarchies of this machine, version 1 and 2, and where processes are in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from shoal.host.linux.fs import Kernel


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted hierarchy. `controllers` are those of version 1; `root` is the part of it that the mount shows."""

    version: int
    controllers: frozenset[str]
    top: str
    root: str = "/"

    def directory(self, kernel: Kernel, pid: int) -> str | None:
        """Where a process is; None when it is gone or outside of what the mount shows."""
        try:
            lines = kernel.read(f"/proc/{pid}/cgroup").splitlines()
        except OSError:
            return None
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if (self.version == 2 and not controllers) or self.controllers & frozenset(controllers.split(",")):
                relative = os.path.relpath(path, self.root)
                if relative.startswith(".."):
                    return None
                return self.top if relative == "." else f"{self.top}/{relative}"
        return None


def hierarchies(kernel: Kernel) -> tuple[Hierarchy, ...]:
    """All that are mounted, version 1 first: what a controller of it can, version 2 does not offer beside it."""
    found = []
    for line in kernel.read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, top = before.split()[3:5]
        if kind == "cgroup2":
            found.append(Hierarchy(2, frozenset(), top, root))
        elif kind == "cgroup":
            found.append(Hierarchy(1, frozenset(options.split(" ")[-1].split(",")), top, root))
    return tuple(sorted(found, key=lambda hierarchy: hierarchy.version))


def serving(kernel: Kernel, controller: str) -> Hierarchy | None:
    """The hierarchy that has a controller to hand out."""
    for hierarchy in hierarchies(kernel):
        if hierarchy.version == 1 and controller in hierarchy.controllers:
            return hierarchy
        if hierarchy.version == 2 and controller in _words(kernel, f"{hierarchy.top}/cgroup.subtree_control"):
            return hierarchy
    return None


def unified(kernel: Kernel) -> Hierarchy | None:
    return next((hierarchy for hierarchy in hierarchies(kernel) if hierarchy.version == 2), None)


def subtree(kernel: Kernel, directory: str) -> Iterator[str]:
    """A directory and those below it, parents first."""
    yield directory
    try:
        names = kernel.names(directory)
    except OSError:
        return
    for name in names:
        # A file of a controller has a dot with its name before it; a directory of a user may have one as well.
        if kernel.exists(f"{directory}/{name}/cgroup.procs"):
            yield from subtree(kernel, f"{directory}/{name}")


def processes(kernel: Kernel, directory: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, kernel.read(f"{directory}/cgroup.procs").split()))
    except OSError:
        return ()


def _words(kernel: Kernel, path: str) -> list[str]:
    try:
        return kernel.read(path).split()
    except OSError:
        return []
