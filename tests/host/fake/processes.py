"""Processes and what /proc says of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shoal.ring import Ring
from tests.host.fake.trees import Directory, File

if TYPE_CHECKING:
    from tests.host.fake.cgroups import Group
    from tests.host.fake.host import FakeHost


@dataclass
class FakeProcess:
    """`busy` CPUs it would keep busy, each moving `demand` bytes per second when nothing holds it back. With `step_s`
    it does units of work that take so much CPU time each, undisturbed, and more beside others' traffic: all of it when
    `sensitive` is 1. `user_cpus` is the affinity it was given; `real_time` processes
    cannot join a cgroup without a real-time budget."""

    pid: int
    start: int
    ppid: int = 1
    busy: float = 1.0
    demand: float = 0.0
    step_s: float = 0.0
    sensitive: float = 0.6
    environ: dict[str, str] = field(default_factory=dict)
    uids: tuple[int, int, int] = (0, 0, 0)
    user_cpus: frozenset[int] | None = None
    tids: tuple[int, ...] = ()
    cgroups: dict[str, Group] = field(default_factory=dict)
    resctrl: str = ""
    monitor: str = ""
    stopped: bool = False
    real_time: bool = False
    run_ns: float = 0.0
    wait_ns: float = 0.0
    moved: float = 0.0
    node: int = 0
    ring: Ring | None = None
    units: float = 0.0
    last_step_s: float = 0.0

    def frozen(self) -> bool:
        return self.stopped or any(group.frozen() for group in self.cgroups.values())


class ProcDirectory(Directory):
    """/proc: the fixed files of its `files`, and one directory for each process that lives."""

    def __init__(self, host: FakeHost) -> None:
        super().__init__()
        self._host = host

    def names(self) -> set[str]:
        return {*super().names(), *map(str, self._host.processes)}

    def child(self, name: str) -> Directory | None:
        if name == "self":
            return self.directories.get(name)
        process = self._host.processes.get(int(name)) if name.isdigit() else None
        return super().child(name) if process is None else self._of(process)

    def _of(self, process: FakeProcess) -> Directory:
        host = self._host
        state = "T" if process.stopped else "R"
        fields = [state, str(process.ppid), *["0"] * 17, str(process.start), *["0"] * 30]
        environ = "".join(f"{name}={value}\0" for name, value in process.environ.items())
        children = " ".join(str(one.pid) for one in host.processes.values() if one.ppid == process.pid)
        tasks = {}
        for at, tid in enumerate(process.tids):
            share = len(process.tids)
            files = {
                "schedstat": _text(f"{int(process.run_ns / share)} {int(process.wait_ns / share)} 7\n"),
                "children": _text(f"{children} \n" if at == 0 else ""),
            }
            tasks[str(tid)] = Directory(files)
        return Directory(
            {
                "stat": _text(f"{process.pid} (a (b) c) {' '.join(fields)}\n"),
                "environ": _text(environ),
                "status": _text("Name:\ta\nUid:\t" + "\t".join(map(str, (*process.uids, process.uids[1]))) + "\n"),
                "cgroup": _text(host.cgroup_lines(process)),
            },
            {"task": Directory({}, tasks)},
        )


def _text(text: str) -> File:
    return File(lambda: text)
