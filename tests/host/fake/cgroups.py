"""cgroup hierarchies, version 1 and 2, with the refusals of kernel/cgroup and kernel/sched."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shoal.host.linux import cpus
from tests.host.fake.trees import Directory, File, refuse

if TYPE_CHECKING:
    from tests.host.fake.host import FakeHost

V1_FILES = {
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.stat", "cpu.shares"),
    "cpuset": ("cpuset.cpus", "cpuset.mems", "cpuset.memory_migrate"),
    "freezer": ("freezer.state",),
}
V2_FILES = {
    "cpu": ("cpu.max", "cpu.weight"),
    "cpuset": ("cpuset.cpus", "cpuset.mems", "cpuset.cpus.effective"),
}


class Group(Directory):
    def __init__(self, hierarchy: FakeHierarchy, parent: Group | None, name: str) -> None:
        super().__init__(make=self._make, remove=self._remove)
        self.hierarchy, self.parent, self.name = hierarchy, parent, name
        self.values = {
            "cpu.cfs_quota_us": "-1",
            "cpu.cfs_period_us": "100000",
            "cpu.max": "max 100000",
            "cpu.shares": "1024",
            "cpu.weight": "100",
            "cpuset.cpus": "",
            "cpuset.mems": "",
            "cpuset.memory_migrate": "0",
            "freezer.state": "THAWED",
            "cgroup.freeze": "0",
        }
        self.subtree: frozenset[str] = frozenset()
        self.periods = self.throttled = 0.0
        if parent is None:
            host = hierarchy.host
            self.values |= {"cpuset.cpus": cpus.render(host.cpus), "cpuset.mems": cpus.render(host.nodes)}
            self.subtree = hierarchy.controllers if hierarchy.version == 2 else frozenset()
        for file in self._wanted():
            self.files[file] = File(lambda file=file: self._read(file), lambda text, file=file: self._write(file, text))

    def path(self) -> str:
        if self.parent is None:
            return "/"
        return f"{self.parent.path().rstrip('/')}/{self.name}"

    def own(self) -> list[int]:
        host = self.hierarchy.host
        return sorted(one.pid for one in host.processes.values() if one.cgroups.get(self.hierarchy.top) is self)

    def up(self) -> Iterator[Group]:
        here: Group | None = self
        while here is not None:
            yield here
            here = here.parent

    def below(self) -> Iterator[Group]:
        yield self
        for child in self.directories.values():
            assert isinstance(child, Group)
            yield from child.below()

    def frozen(self) -> bool:
        return any(one.values["freezer.state"] == "FROZEN" or one.values["cgroup.freeze"] == "1" for one in self.up())

    def cpu_limit(self) -> float:
        """CPUs that quotas leave, its own and those above it."""
        return min((ratio for one in self.up() if (ratio := one._ratio()) is not None), default=float("inf"))

    def allowed(self) -> frozenset[int]:
        host = self.hierarchy.host
        if "cpuset" not in self.hierarchy.controllers:
            return host.cpus
        if self.hierarchy.version == 1:
            return cpus.parse(self.values["cpuset.cpus"])
        allowed = host.cpus
        for one in reversed(list(self.up())):
            own = cpus.parse(one.values["cpuset.cpus"])
            allowed = allowed & own if allowed & own else allowed
        return allowed

    def _ratio(self) -> float | None:
        if self.hierarchy.version == 1:
            quota, period = self.values["cpu.cfs_quota_us"], self.values["cpu.cfs_period_us"]
        else:
            quota, period = self.values["cpu.max"].split()
        return None if quota in ("-1", "max") else int(quota) / int(period)

    def _wanted(self) -> list[str]:
        hierarchy = self.hierarchy
        if hierarchy.version == 1:
            files = ["cgroup.procs", "tasks"]
            return files + [file for one in hierarchy.controllers for file in V1_FILES.get(one, ())]
        files = ["cgroup.procs", "cgroup.controllers", "cgroup.subtree_control", "cpu.stat", "cpu.pressure"]
        if self.parent is not None:
            files += ["cgroup.freeze", "cgroup.events"]
            files += [file for one in self.parent.subtree for file in V2_FILES.get(one, ())]
        elif "cpuset" in hierarchy.controllers:
            files.append("cpuset.cpus.effective")
        return files

    def _read(self, file: str) -> str:
        if file in ("cgroup.procs", "tasks"):
            return "".join(f"{pid}\n" for pid in self.own())
        if file == "cgroup.controllers":
            return " ".join(sorted(self.parent.subtree if self.parent else self.hierarchy.controllers)) + "\n"
        if file == "cgroup.subtree_control":
            return " ".join(sorted(self.subtree)) + "\n"
        if file == "cgroup.events":
            return f"populated {int(bool(self.own()))}\nfrozen {int(self.frozen())}\n"
        if file == "cpu.stat":
            return f"nr_periods {int(self.periods)}\nnr_throttled {int(self.throttled)}\nthrottled_time 0\n"
        if file == "cpu.pressure":
            return "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
        if file == "cpuset.cpus.effective":
            return cpus.render(self.allowed()) + "\n"
        return self.values[file] + "\n"

    def _write(self, file: str, text: str) -> None:
        text = text.strip()
        if self.parent is None and file not in ("cgroup.procs", "tasks", "cgroup.subtree_control"):
            raise refuse(errno.EINVAL if file.startswith("cpu.") else errno.EACCES, file)
        if file in ("cgroup.procs", "tasks"):
            self._join(int(text))
        elif file == "cgroup.subtree_control":
            if self.parent is not None and self.own():
                raise refuse(errno.EBUSY)
            self.subtree |= {word[1:] for word in text.split() if word.startswith("+")}
        elif file in ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.max"):
            self._limit(file, text)
        elif file == "cpu.shares":
            self.values[file] = str(min(max(int(text), 2), 262_144))
        elif file == "cpu.weight":
            if not 1 <= int(text) <= 10_000:
                raise refuse(errno.ERANGE, file)
            self.values[file] = text
        elif file in ("cpuset.cpus", "cpuset.mems"):
            self._bind(file, text)
        elif file == "freezer.state":
            self._choose(file, text, ("FROZEN", "THAWED"))
        elif file in ("cgroup.freeze", "cpuset.memory_migrate"):
            self._choose(file, text, ("0", "1"))
        else:
            raise refuse(errno.EACCES, file)

    def _choose(self, file: str, text: str, words: tuple[str, ...]) -> None:
        if text not in words:
            raise refuse(errno.EINVAL, file)
        self.values[file] = text

    def _join(self, pid: int) -> None:
        process = self.hierarchy.host.processes.get(pid)
        if process is None:
            raise refuse(errno.ESRCH)
        bound = self.hierarchy.version == 1 and "cpuset" in self.hierarchy.controllers
        if bound and not (self.values["cpuset.cpus"] and self.values["cpuset.mems"]):
            raise refuse(errno.ENOSPC)
        if process.real_time and "cpu" in self.hierarchy.controllers and self.parent is not None:
            raise refuse(errno.EINVAL)
        if self.hierarchy.version == 2 and self.parent is not None and self.subtree:
            raise refuse(errno.EBUSY)  # no processes in inner groups
        process.cgroups[self.hierarchy.top] = self

    def _limit(self, file: str, text: str) -> None:
        before = self.values[file]
        if file == "cpu.max":
            quota, _, period = text.partition(" ")
            text = f"{quota} {period or before.split()[1]}"
            quota, period = text.split()
        else:
            quota = text if file == "cpu.cfs_quota_us" else self.values["cpu.cfs_quota_us"]
            period = text if file == "cpu.cfs_period_us" else self.values["cpu.cfs_period_us"]
            quota = "max" if quota == "-1" else quota
        if not 1000 <= int(period) <= 1_000_000 or (quota != "max" and int(quota) < 1000):
            raise refuse(errno.EINVAL, file)
        self.values[file] = text
        if self.hierarchy.version == 1 and not self._schedulable():
            self.values[file] = before
            raise refuse(errno.EINVAL, file)

    def _schedulable(self) -> bool:
        """In version 1 a child's quota may not be above its parent's."""
        for one in self.below():
            ratio = one._ratio()
            above = one.parent.cpu_limit() if one.parent is not None else float("inf")
            if ratio is not None and ratio > above:
                return False
        return True

    def _bind(self, file: str, text: str) -> None:
        host = self.hierarchy.host
        try:
            wanted = cpus.parse(text)
        except ValueError:
            raise refuse(errno.EINVAL, file) from None
        whole = host.cpus if file == "cpuset.cpus" else host.nodes
        if not wanted <= whole:
            raise refuse(errno.EINVAL, file)
        if self.hierarchy.version == 1:
            assert self.parent is not None
            if not wanted and self.own():
                raise refuse(errno.ENOSPC, file)
            if not wanted <= cpus.parse(self.parent.values[file]):
                raise refuse(errno.EACCES, file)
            for child in self.directories.values():
                assert isinstance(child, Group)
                if not cpus.parse(child.values[file]) <= wanted:
                    raise refuse(errno.EBUSY, file)
        self.values[file] = cpus.render(wanted)
        if file == "cpuset.mems" and (self.hierarchy.version == 2 or self.values["cpuset.memory_migrate"] == "1"):
            for group in self.below():
                for pid in group.own():
                    host.processes[pid].node = min(wanted, default=host.processes[pid].node)

    def _make(self, name: str) -> Directory:
        return Group(self.hierarchy, self, name)

    def _remove(self, name: str) -> None:
        child = self.directories[name]
        assert isinstance(child, Group)
        if child.directories or child.own():
            raise refuse(errno.EBUSY, child.path())


class FakeHierarchy:
    def __init__(self, host: FakeHost, version: int, top: str, controllers: frozenset[str]) -> None:
        self.host, self.version, self.top, self.controllers = host, version, top, controllers
        self.root = Group(self, None, "")
