"""Limits and traces by cgroup, version 1 or 2, for each controller that a real write proves to be ours to use.

Every rank gets a group `shoal-HASH/GANG.RANK` in each hierarchy it needs, HASH standing for the home: whatever lies
outside `shoal-HASH` is never touched. Supervisors make, join and remove the groups; this module finds out where.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.core import Capability
from shoal.engine.local.supervisor import kill_group

_MEMORY_TEST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Controller:
    """One usable controller. `root` is the home's own group in its hierarchy."""

    name: str
    version: int
    root: Path


@dataclass(frozen=True, slots=True)
class Cgroups:
    """What is usable here; `missing` says for each absent controller why."""

    controllers: Mapping[str, Controller] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    def groups(
        self, gang: str, rank: int, *, cpu_milli: int, memory_bytes: int, processes: int
    ) -> list[dict[str, Any]]:
        """The groups of one rank as its supervisor's spec wants them: path, writes (file, value), join, and of the
        memory the files that count its kills (oom) and tell the most that it had (peak)."""
        by_root: dict[Path, dict[str, Any]] = {}
        for controller in self.controllers.values():
            writes = _limits(controller, cpu_milli=cpu_milli, memory_bytes=memory_bytes, processes=processes)
            if not writes and controller.name != "pids":  # `pids` holds every rank, so that its processes can be found
                continue
            path = controller.root / f"{gang}.{rank}"
            # v1's `tasks` moves one thread, which needs no system-wide lock: 0.3 ms instead of up to 15 ms.
            join = "tasks" if controller.version == 1 else "cgroup.procs"
            group = by_root.setdefault(
                controller.root, {"path": str(path), "writes": [], "join": join, "oom": "", "peak": ""}
            )
            group["writes"] += writes
            if controller.name == "memory":
                group["oom"] = "memory.oom_control" if controller.version == 1 else "memory.events"
                group["peak"] = "memory.max_usage_in_bytes" if controller.version == 1 else "memory.peak"
        return list(by_root.values())

    def roots(self) -> tuple[str, ...]:
        """The home's own groups. Kept with every gang: a later server may live in other groups and find others."""
        return tuple(sorted({str(controller.root) for controller in self.controllers.values()}))

    def weigh(self, cpu_milli: int) -> None:
        """Give the home as much weight as the cores that are promised in it, one at least: beside processes outside of
        it, its ranks together have no more than the home's."""
        controller = self.controllers.get("cpu")
        if controller is None:
            return
        for name, value in _limits(controller, cpu_milli=max(cpu_milli, 1000), memory_bytes=0, processes=0):
            with contextlib.suppress(OSError):
                _write(controller.root / name, value)

    def release(self) -> None:
        """Remove the home's own groups where no gang has one any more."""
        for root in self.roots():
            _rmdir(Path(root))

    def capabilities(self) -> tuple[Capability, ...]:
        return tuple(self._capability(name, costs) for name, costs in _CONSEQUENCES.items())

    def _capability(self, name: str, consequence: str) -> Capability:
        controller = self.controllers.get(name)
        if controller is None:
            why = self.missing.get(name, "no such controller is mounted")
            return Capability(f"cgroup-{name}", False, why, consequence)
        return Capability(f"cgroup-{name}", True, f"cgroup v{controller.version} at {controller.root}")


def pids(roots: tuple[str, ...], gang: str, rank: int) -> Iterator[int]:
    """The processes in a rank's groups."""
    for root in roots:
        try:
            yield from map(int, Path(root, f"{gang}.{rank}", "cgroup.procs").read_text().split())
        except OSError:
            continue


def gangs(roots: tuple[str, ...]) -> set[str]:
    """Names of the gangs that have a group left."""
    found = set()
    for root in map(Path, roots):
        if root.is_dir():
            found |= {path.name.rpartition(".")[0] for path in root.iterdir() if path.is_dir()}
    return found


def kill(roots: tuple[str, ...], gang: str, rank: int) -> None:
    """Kill all that is in a rank's groups, however fast it forks."""
    for root in roots:
        kill_group(f"{root}/{gang}.{rank}")


def remove(roots: tuple[str, ...], gang: str) -> None:
    """Remove the gang's empty groups."""
    for root in map(Path, roots):
        for path in root.glob(f"{gang}.*") if root.is_dir() else ():
            if path.name.rpartition(".")[0] == gang:
                _rmdir(path)


_CONSEQUENCES = {
    "memory": "memory is looked at once a second instead of limited: a job that grows faster can exhaust the machine's "
    "memory, and the kernel may then kill any process, of another job or of Shoal; pages that processes share are "
    "counted for each of them",
    "cpu": "cpu shares are NOT enforced: a job can take cores promised to another; OMP_NUM_THREADS only hints",
    "pids": "processes are counted once a second instead of limited: a fork bomb slows the machine down until it is "
    "found and killed; and if a supervisor is killed, processes of its rank that cleared their environment and left "
    "their session are NOT found and may go on running",
}


def _limits(controller: Controller, *, cpu_milli: int, memory_bytes: int, processes: int) -> list[tuple[str, str]]:
    v1 = controller.version == 1
    if controller.name == "memory" and memory_bytes > 0:
        names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes") if v1 else ("memory.max",)
        writes = [(name, str(memory_bytes)) for name in names if (controller.root / name).exists()]
        if not v1:  # no swapping out of the limit; and a rank dies whole
            extras = (("memory.swap.max", "0"), ("memory.oom.group", "1"))
            writes += [(name, value) for name, value in extras if (controller.root / name).exists()]
        return writes
    if controller.name == "pids" and processes > 0:
        return [("pids.max", str(processes))]
    if controller.name == "cpu":
        # A weight, not a quota: cores asked for are had under contention, idle ones are free to all. A quota would
        # stop a rank for the rest of each period, and cost a training loop 1 % even where it never ran out. A rank
        # that asked for none has the least weight: outside the group it would count as much as the whole home.
        if v1:
            return [("cpu.shares", str(_clamp(cpu_milli * 1024 // 1000, 2, 262_144)))]
        return [("cpu.weight", str(_clamp(cpu_milli // 10, 1, 10_000)))]
    return []


def _clamp(value: int, lowest: int, highest: int) -> int:
    return max(lowest, min(highest, value))


# --- finding out ---


@dataclass(frozen=True, slots=True)
class MountedHierarchy:
    """One mounted hierarchy: its version, its controllers (v1), and our own group in it."""

    version: int
    controllers: frozenset[str]
    top: Path
    own: Path


def mounts(proc: Path = Path("/proc")) -> list[MountedHierarchy]:
    """The hierarchies this process can see, from its mountinfo and cgroup files."""
    own_paths: dict[str, str] = {}
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own_paths |= dict.fromkeys(controllers.split(","), path)
    found = []
    for line in (proc / "self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, top = before.split()[3:5]
        names = frozenset(options.split(" ")[-1].split(",")) & frozenset(own_paths)
        if kind == "cgroup2":
            found.append(MountedHierarchy(2, frozenset(), Path(top), _below(Path(top), root, own_paths.get("", "/"))))
        elif kind == "cgroup" and names:
            own = own_paths[min(names)]
            found.append(MountedHierarchy(1, names, Path(top), _below(Path(top), root, own)))
    return found


def _below(top: Path, root: str, own: str) -> Path:
    """Where our group is under a mount that may show only a part (`root`) of the hierarchy, as in containers."""
    relative = os.path.relpath(own, root)
    path = top if relative.startswith("..") else top / relative
    return path if path.is_dir() else top


def memory_limit_bytes(seen: list[MountedHierarchy]) -> int | None:
    """The tightest memory limit set on our own groups from outside."""
    limits = []
    for mount in seen:
        name = "memory.max" if mount.version == 2 else "memory.limit_in_bytes"
        for group in (mount.own, *mount.own.parents):
            if not group.is_relative_to(mount.top):
                break
            try:
                limits.append(int((group / name).read_text()))
            except (OSError, ValueError):  # no such controller, or "max"
                continue
    return min(limits, default=None)


def probe(home: Path, *, proc: Path = Path("/proc"), mkdir: Callable[[Path], None] = Path.mkdir) -> Cgroups:
    """Try for real, controller by controller: make a group, set a limit, move a process into it. Blocks (10-20 ms)."""
    prefix = f"shoal-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"
    controllers: dict[str, Controller] = {}
    missing: dict[str, str] = {}
    tried: list[Controller] = []
    with subprocess.Popen(
        [os.path.realpath(sys.executable), "-I", "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as guinea_pig:
        for mount in sorted(mounts(proc), key=lambda mount: mount.version):
            for name in _CONSEQUENCES:
                if name in controllers or (mount.version == 1 and name not in mount.controllers):
                    continue
                for base in _bases(mount, name):
                    controller = Controller(name, mount.version, base / prefix)
                    tried.append(controller)
                    try:
                        _try(controller, guinea_pig.pid, mkdir)
                    except OSError as problem:
                        missing[name] = f"cgroup v{mount.version} at {controller.root}: {problem.strerror}"
                    else:
                        controllers[name] = controller
                        missing.pop(name, None)
                        break
    for controller in tried:  # only now: a group with a process in it cannot be removed
        _rmdir(_probe_group(controller))
        if controllers.get(controller.name) != controller:
            _rmdir(controller.root)
    return Cgroups(controllers, missing)


def _bases(mount: MountedHierarchy, name: str) -> list[Path]:
    """Groups below which ours may go. In v2 a group that holds processes cannot hand controllers on, so ours goes
    beside or above our own, wherever the controller is handed on already."""
    if mount.version == 1:
        return [mount.own]
    ancestors = [group for group in (mount.own, *mount.own.parents) if group.is_relative_to(mount.top)]
    return [group for group in ancestors if name in _words(group / "cgroup.subtree_control")]


def _try(controller: Controller, pid: int, mkdir: Callable[[Path], None]) -> None:
    if not controller.root.is_dir():
        mkdir(controller.root)
    if controller.version == 2:
        _write(controller.root / "cgroup.subtree_control", f"+{controller.name}")
    group = _probe_group(controller)
    mkdir(group)
    for name, value in _limits(controller, cpu_milli=1000, memory_bytes=_MEMORY_TEST_BYTES, processes=64):
        _write(group / name, value)
    _write(group / "cgroup.procs", str(pid))


def _probe_group(controller: Controller) -> Path:
    return controller.root / f"probe-{controller.name}.{os.getpid()}"


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _write(path: Path, value: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def _rmdir(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:  # foreign, in use or gone
        return
