"""The whole machine: what a `Kernel` is asked, answered from memory."""

from __future__ import annotations

import errno
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal.host.linux import cpus
from shoal.host.types import Domain
from tests.host.fake import model, perf
from tests.host.fake.cgroups import FakeHierarchy
from tests.host.fake.processes import FakeProcess, ProcDirectory
from tests.host.fake.resctrl import FakeResctrl, ResctrlSpec
from tests.host.fake.trees import Directory, File, Tree, refuse

INTEL = ("GenuineIntel", 6, 0x55)
AMD = ("AuthenticAMD", 25, 17)
RESCTRL_INTEL = ResctrlSpec()
RESCTRL_MBPS = ResctrlSpec(unit="mbps", least=1, step=1)
RESCTRL_AMD = ResctrlSpec(unit="amd", least=1, step=1)
ROOT = "/sys/fs/cgroup"
RESCTRL = "/sys/fs/resctrl"
_IMC_EVENTS = {
    "cas_count_read": "event=0x04,umask=0x03\n",
    "cas_count_read.scale": "6.103515625e-5\n",
    "cas_count_read.unit": "MiB\n",
    "cas_count_write": "event=0x04,umask=0x0c\n",
    "cas_count_write.scale": "6.103515625e-5\n",
    "cas_count_write.unit": "MiB\n",
}


@dataclass(frozen=True)
class Machine:
    """`l3s` are the CPUs of each last-level cache, each with its NUMA node; `cgroups` is v1, v2, hybrid or none."""

    processor: tuple[str, int, int] = INTEL
    l3s: Mapping[int, tuple[frozenset[int], int]] = field(default_factory=lambda: {0: (frozenset({0, 1, 2, 3}), 0)})
    cgroups: str = "v2"
    resctrl: ResctrlSpec | None = None
    msr: bool = False
    uncore: bool = False
    multiplexed: float = 1.0


class FakeHost:
    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine = machine or Machine()
        self.cpus = frozenset[int]().union(*(own for own, _ in machine.l3s.values()))
        self.nodes = frozenset(node for _, node in machine.l3s.values())
        self.l3s = tuple(machine.l3s)
        self.l3_of = {cpu: l3 for l3, (own, _) in machine.l3s.items() for cpu in own}
        self.now = 1000.0
        self.processes: dict[int, FakeProcess] = {}
        self.bandwidth: dict[int, float] = {}
        self.saturation: dict[int, float] = {}
        self.uncore: list[perf.Uncore] = []
        self.pmu_cpus: dict[int, frozenset[int]] = {}
        self.prefetch_register = 0x1A4 if machine.processor is INTEL else 0xC000_0108
        self.msr = {cpu: {self.prefetch_register: 0} for cpu in self.cpus} if machine.msr else {}
        self.writes: list[tuple[str, str]] = []
        self._pid = 4000
        self._tree = Tree()
        self._perf = perf.FakePerf(self, multiplexed=machine.multiplexed)
        self.hierarchies = self._mount_cgroups()
        self.resctrl = FakeResctrl(self, RESCTRL, machine.resctrl) if machine.resctrl else None
        if self.resctrl is not None:
            self._tree.directory("/sys/fs").directories["resctrl"] = self.resctrl.root
        self._describe()

    # --- the world ---

    def start(self, *, cgroup: str = "/", threads: int = 1, **traits: Any) -> FakeProcess:
        """A process that runs from now on, in the group of this path in each hierarchy that has it."""
        self._pid += 10
        process = FakeProcess(self._pid, self._pid * 7, tids=tuple(range(self._pid, self._pid + threads)), **traits)
        for hierarchy in self.hierarchies:
            here = hierarchy.root
            for name in [name for name in cgroup.split("/") if name]:
                here = here.directories.get(name, here)  # type: ignore[assignment]
            process.cgroups[hierarchy.top] = here
        parent = self.processes.get(process.ppid)
        if parent is not None:
            process.cgroups = dict(parent.cgroups)
            process.resctrl, process.monitor, process.user_cpus = parent.resctrl, parent.monitor, parent.user_cpus
        self.processes[process.pid] = process
        return process

    def end(self, process: FakeProcess) -> None:
        del self.processes[process.pid]

    def advance(self, dt: float = 0.1) -> None:
        model.advance(self, dt)

    def shoot(self, cpu: int) -> float:
        return model.shoot(self, cpu)

    def domains(self) -> tuple[Domain, ...]:
        return tuple(Domain(l3, own, frozenset({node})) for l3, (own, node) in self.machine.l3s.items())

    def allowed(self, process: FakeProcess) -> frozenset[int]:
        allowed = self.cpus
        for group in process.cgroups.values():
            allowed &= group.allowed()
        return allowed & (process.user_cpus or allowed) or allowed

    def cgroup_lines(self, process: FakeProcess) -> str:
        lines = []
        for at, hierarchy in enumerate(self.hierarchies):
            names = ",".join(sorted(hierarchy.controllers)) if hierarchy.version == 1 else ""
            path = process.cgroups[hierarchy.top].path()
            lines.append(f"{at + 1 if names else 0}:{names}:{path}\n")
        return "".join(lines)

    def group(self, path: str, *, controllers: str = "") -> str:
        """Make a group in every hierarchy that hands out one of these controllers (all without); its path."""
        for hierarchy in self.hierarchies:
            if not controllers or hierarchy.controllers & set(controllers.split()):
                here = hierarchy.top
                for name in path.split("/"):
                    here = f"{here}/{name}"
                    if not self.exists(here):
                        self.mkdir(here)
                        if hierarchy.version == 1 and "cpuset" in hierarchy.controllers:
                            for file in ("cpuset.cpus", "cpuset.mems"):
                                self.write(f"{here}/{file}", self.read(f"{here.rpartition('/')[0]}/{file}"))
        return path

    # --- Kernel ---

    def read(self, path: str) -> str:
        return self._tree.read(path)

    def write(self, path: str, text: str) -> None:
        self._tree.write(path, text)
        self.writes.append((path, text))

    def names(self, path: str) -> tuple[str, ...]:
        return self._tree.names(path)

    def exists(self, path: str) -> bool:
        return self._tree.exists(path)

    def mkdir(self, path: str) -> None:
        self._tree.mkdir(path)

    def rmdir(self, path: str) -> None:
        self._tree.rmdir(path)

    def pread(self, path: str, size: int, offset: int) -> bytes:
        registers = self._registers(path)
        if offset not in registers:
            raise refuse(errno.EIO, path)
        return registers[offset].to_bytes(8, "little")[:size]

    def pwrite(self, path: str, data: bytes, offset: int) -> None:
        registers = self._registers(path)
        if offset not in registers:
            raise refuse(errno.EIO, path)
        registers[offset] = int.from_bytes(data, "little")

    def cpu_s(self, pid: int) -> float:
        if pid not in self.processes:
            raise refuse(errno.EINVAL)
        return self.processes[pid].run_ns / 1e9

    def affinity(self, tid: int) -> frozenset[int]:
        return self.allowed(self._thread(tid))

    def set_affinity(self, tid: int, cpus: frozenset[int]) -> None:
        process = self._thread(tid)
        if not cpus & self.cpus:
            raise refuse(errno.EINVAL)
        process.user_cpus = cpus

    def signal(self, pid: int, start: int, signum: int) -> None:
        process = self.processes.get(pid)
        if process is None or process.start != start:
            raise refuse(errno.ESRCH)
        process.stopped = signum == signal.SIGSTOP

    def migrate_pages(self, pid: int, sources: frozenset[int], targets: frozenset[int]) -> None:
        self.processes[pid].node = min(targets)

    def perf_open(self, attr: bytes, cpu: int, leader: int) -> int:
        return self._perf.perf_open(attr, cpu, leader)

    def read_fd(self, fd: int, size: int) -> bytes:
        return self._perf.read_fd(fd)

    def close(self, fd: int) -> None:
        self._perf.close(fd)

    @property
    def open_counters(self) -> int:
        return len(self._perf.open)

    # --- making it ---

    def _thread(self, tid: int) -> FakeProcess:
        for process in self.processes.values():
            if tid in process.tids:
                return process
        raise refuse(errno.ESRCH)

    def _registers(self, path: str) -> dict[int, int]:
        cpu = int(path.split("/")[3])
        if not path.startswith("/dev/cpu/") or cpu not in self.msr:
            raise refuse(errno.ENOENT, path)
        return self.msr[cpu]

    def _mount_cgroups(self) -> list[FakeHierarchy]:
        layouts: dict[str, list[tuple[int, str, str]]] = {
            "v1": [(1, f"{ROOT}/{one}", one) for one in ("cpu", "cpuset", "freezer")],
            "v2": [(2, ROOT, "cpu cpuset memory")],
            "none": [],
            "hybrid": [
                *((1, f"{ROOT}/{one}", one) for one in ("cpu", "cpuset", "freezer")),
                (2, f"{ROOT}/unified", ""),
            ],
        }
        mounted = []
        for version, top, controllers in layouts[self.machine.cgroups]:
            hierarchy = FakeHierarchy(self, version, top, frozenset(controllers.split()))
            parent, _, name = top.rpartition("/")
            self._tree.directory(parent).directories[name] = hierarchy.root
            mounted.append(hierarchy)
        return mounted

    def _describe(self) -> None:
        proc = ProcDirectory(self)
        self._tree.root.directories["proc"] = proc
        put = self._tree.put
        vendor, family, number = self.machine.processor
        put("/proc/cpuinfo", f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {number}\n")
        put("/proc/sys/kernel/random/boot_id", "7a1d\n")
        put("/proc/sys/kernel/perf_event_paranoid", "2\n")
        put("/proc/self/schedstat", "1 2 3\n")
        put("/proc/self/mountinfo", self._mounts())
        proc.files["stat"] = File(self._stat)
        proc.files["loadavg"] = File(lambda: f"0.10 0.20 0.30 1/99 {self._pid}\n")
        for one in ("cpu", "memory", "io"):
            proc.directories.setdefault("pressure", Directory()).files[one] = File(self._pressure)
        put("/sys/devices/system/cpu/online", cpus.render(self.cpus) + "\n")
        put("/sys/devices/system/node/online", cpus.render(self.nodes) + "\n")
        for cpu, l3 in self.l3_of.items():
            put(f"/sys/devices/system/cpu/cpu{cpu}/cache/index3/id", f"{l3}\n")
            put(f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", "0\n")
            put(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu}\n")
        if self.machine.uncore:
            self._describe_pmus()

    def _describe_pmus(self) -> None:
        kinds = {"uncore_imc_0": perf.IMC, "uncore_cha_0": perf.CHA, "uncore_cha_17": 99}
        if self.machine.processor is AMD:
            kinds = {"amd_umc_0": perf.UMC}
        for name, kind in kinds.items():
            base = f"/sys/bus/event_source/devices/{name}"
            self._tree.put(f"{base}/type", f"{kind}\n")
            self._tree.put(f"{base}/cpumask", "0\n")
            self._tree.put(f"{base}/format/event", "config:0-7\n")
            self._tree.put(f"{base}/format/umask", "config:8-15\n")
            self.pmu_cpus[kind] = frozenset({0})
            for event, text in _IMC_EVENTS.items() if kind == perf.IMC else ():
                self._tree.put(f"{base}/events/{event}", text)

    def _mounts(self) -> str:
        lines = []
        for at, hierarchy in enumerate(self.hierarchies):
            kind = "cgroup2" if hierarchy.version == 2 else "cgroup"
            options = ",".join(["rw", *sorted(hierarchy.controllers)]) if hierarchy.version == 1 else "rw"
            lines.append(f"{30 + at} 1 0:{at} / {hierarchy.top} rw,relatime - {kind} {kind} {options}\n")
        if self.machine.resctrl is not None:
            options = "rw,mba_MBps" if self.machine.resctrl.unit == "mbps" else "rw"
            lines.append(f"50 1 0:50 / {RESCTRL} rw,relatime - resctrl resctrl {options}\n")
        return "".join(lines)

    def _stat(self) -> str:
        ticks = int((self.now - 1000) * 100)
        return f"cpu  {ticks} 0 0 {ticks * 2} 0 0 0 {ticks} 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n"

    def _pressure(self) -> str:
        total = int((self.now - 1000) * 250_000)
        return f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
