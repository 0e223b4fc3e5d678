"""The kernel's resctrl file system: what it can do here, groups of our own in it, and its errors with their meaning.

Only groups whose name begins with our prefix are made, changed or removed (after goresctrl).
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from shoal.core import Conflict, Invalid, Overloaded, ShoalError, Unavailable
from shoal.host.linux import cpus
from shoal.host.linux.fs import Kernel, threads
from shoal.host.linux.members import Found, Process
from shoal.host.undo.cgroups import PREFIX, own_name
from shoal.host.undo.write_ahead_log import WriteAheadLog

HOW_TO_HAVE = "bare metal with Intel RDT or AMD QoS, and `mount -t resctrl resctrl /sys/fs/resctrl` as root"


class Unit(StrEnum):
    """What the numbers of an `MB:` line are."""

    PERCENT = "percent"  # Intel
    MEBIBYTES = "MiB/s"  # Intel with the mba_MBps mount option: the kernel's own feedback
    EIGHTHS = "1/8 GB/s"  # AMD

    @property
    def bytes_per_s(self) -> float:
        """Of one unit; of PERCENT there are none."""
        return {Unit.MEBIBYTES: float(1 << 20), Unit.EIGHTHS: 1e9 / 8}[self]


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bandwidth allocation: ids of L3 caches, least value, step, and the value that limits nothing."""

    unit: Unit
    ids: tuple[int, ...]
    least: int
    step: int
    unlimited: int


@dataclass(frozen=True, slots=True)
class Cache:
    """Cache allocation in L3. `mask` has a bit for each way, `shared` those that devices use as well; `resources` is
    `L3`, or `L3CODE` and `L3DATA`."""

    resources: tuple[str, ...]
    ids: tuple[int, ...]
    mask: int
    least_bits: int
    shared: int


class Resctrl:
    """The mounted file system."""

    def __init__(self, kernel: Kernel, root: str, options: str = "") -> None:
        self._kernel = kernel
        self.root = root
        self._options = options.split(",")

    @classmethod
    def find(cls, kernel: Kernel) -> Resctrl:
        """Raises Unavailable where it is not mounted."""
        for line in kernel.read("/proc/self/mountinfo").splitlines():
            before, _, after = line.partition(" - ")
            kind, _, options = after.split(" ", 2)
            if kind == "resctrl":
                return cls(kernel, before.split()[4], options.split(" ")[-1])
        raise Unavailable("resctrl is not mounted", hint=HOW_TO_HAVE)

    def bandwidth(self) -> Bandwidth | None:
        ids = self._ids("MB")
        if not ids:
            return None
        if "mba_MBps" in self._options:
            return Bandwidth(Unit.MEBIBYTES, ids, self._number("MB/min_bandwidth", 1), 1, (1 << 32) - 1)
        if self._amd():
            return Bandwidth(Unit.EIGHTHS, ids, max(1, self._number("MB/min_bandwidth", 1)), 1, 2048)
        return Bandwidth(
            Unit.PERCENT, ids, self._number("MB/min_bandwidth", 10), self._number("MB/bandwidth_gran", 10), 100
        )

    def cache(self) -> Cache | None:
        for resources in (("L3",), ("L3CODE", "L3DATA")):
            ids = self._ids(resources[0])
            if ids:
                info = f"{self.root}/info/{resources[0]}"
                return Cache(
                    resources,
                    ids,
                    int(self._kernel.read(f"{info}/cbm_mask"), 16),
                    self._number(f"{resources[0]}/min_cbm_bits", 1),
                    int(self._kernel.read(f"{info}/shareable_bits"), 16),
                )
        return None

    def monitors(self) -> frozenset[str]:
        """What the machine counts by group: `llc_occupancy`, `mbm_total_bytes`, `mbm_local_bytes`."""
        try:
            return frozenset(self._kernel.read(f"{self.root}/info/L3_MON/mon_features").split())
        except OSError:
            return frozenset()

    def path(self, group: str) -> str:
        """Of our control group for a group."""
        return f"{self.root}/{own_name(group)}"

    def groups(self) -> tuple[str, ...]:
        """All control groups, the default one first."""
        names = [
            name
            for name in self._kernel.names(self.root)
            if name not in ("info", "mon_data", "mon_groups") and self._kernel.exists(f"{self.root}/{name}/tasks")
        ]
        return (self.root, *(f"{self.root}/{name}" for name in names))

    def schemata(self, path: str) -> str:
        """What a group's limits are now, as the kernel says it."""
        return self._kernel.read(f"{path}/schemata")

    def tasks(self, path: str) -> frozenset[int]:
        """The threads in a group."""
        return frozenset(map(int, self._kernel.read(f"{path}/tasks").split()))

    def make(self, wal: WriteAheadLog, scope: str, path: str) -> bool:
        """Make a control or monitoring group, unless it is there; whether it was made. Raises Overloaded when the
        hardware has no more."""
        if self._kernel.exists(path):
            return False
        try:
            wal.make(scope, path)
        except OSError as problem:
            raise self._explained(problem, path) from problem
        return True

    def assign(self, path: str, found: Iterable[Process]) -> None:
        """Put all threads of processes into a group; what they start later is born there. Raises Conflict for one that
        is in a group of others."""
        processes = list(found)
        if not processes:
            return
        self._refuse_foreign(processes)
        for process in processes:
            for tid in threads(self._kernel, process.pid):
                try:
                    self._kernel.write(f"{path}/tasks", str(tid))
                except ProcessLookupError:
                    continue
                except OSError as problem:
                    raise self._explained(problem, f"{path}/tasks") from problem

    def allocate(self, path: str, values: Mapping[str, Mapping[int, str]]) -> None:
        """Write a group's schemata: values by resource (`MB`, `L3`) and cache. Raises Invalid in the kernel's
        words."""
        lines = [f"{name}:" + ";".join(f"{at}={value}" for at, value in row.items()) for name, row in values.items()]
        try:
            self._kernel.write(f"{path}/schemata", "".join(line + "\n" for line in lines))
        except OSError as problem:
            raise self._explained(problem, f"{path}/schemata") from problem

    def last_status(self) -> str:
        """What the kernel had against the last command."""
        try:
            return self._kernel.read(f"{self.root}/info/last_cmd_status").strip()
        except OSError:
            return "unknown"

    def _refuse_foreign(self, processes: list[Process]) -> None:
        for group in self.groups()[1:]:
            if not group.rpartition("/")[2].startswith(PREFIX):
                tasks = set(map(int, self._kernel.read(f"{group}/tasks").split()))
                for process in processes:
                    if process.pid in tasks:
                        raise Conflict(
                            f"process {process.pid} is in the control group {group} of another program",
                            hint="take it out of there, or let Shoal limit it by other means",
                        )

    def _explained(self, problem: OSError, where: str) -> ShoalError:
        status = self.last_status()
        if problem.errno == errno.ENOSPC:
            hint = "remove control groups that are not needed"
            return Overloaded(f"no free hardware class for another group: {status}", where=where, hint=hint)
        if problem.errno == errno.EBUSY:
            hint = "the hardware still counts for a removed group; it is free again in a while"
            return Overloaded(f"busy: {status}", where=where, hint=hint, retry_after_s=10.0)
        if problem.errno == errno.EINVAL:
            return Invalid(f"the kernel refuses it: {status}", where=where)
        return Unavailable(f"{problem.strerror}: {status}", where=where)

    def _ids(self, resource: str) -> tuple[int, ...]:
        """The caches that the default group's line of a resource names."""
        for line in self._kernel.read(f"{self.root}/schemata").splitlines():
            name, _, values = line.strip().partition(":")
            if name == resource:
                return tuple(int(value.partition("=")[0]) for value in values.split(";"))
        return ()

    def _number(self, name: str, default: int) -> int:
        try:
            return int(self._kernel.read(f"{self.root}/info/{name}"))
        except (OSError, ValueError):
            return default

    def _amd(self) -> bool:
        return "AuthenticAMD" in self._kernel.read("/proc/cpuinfo")


def l3_of(kernel: Kernel, cpu: int) -> int | None:
    """The id of a CPU's last-level cache, as resctrl numbers them."""
    base = f"/sys/devices/system/cpu/cpu{cpu}/cache"
    try:
        return int(kernel.read(f"{base}/index3/id"))
    except (OSError, ValueError):
        return None


def l3_count(kernel: Kernel, found: Found) -> int:
    """On how many last-level caches a group may run; at least 1."""
    return max(1, len({l3_of(kernel, cpu) for cpu in found.cpus} - {None}))


def online(kernel: Kernel) -> frozenset[int]:
    return cpus.parse(kernel.read("/sys/devices/system/cpu/online"))
