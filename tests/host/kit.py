"""A machine to test on: fakes of several kinds, and this one where it can."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.core import PriorityClass
from shoal.host.linux.fs import LINUX, Kernel, start_time
from shoal.host.linux.hierarchies import serving, unified
from shoal.host.linux.members import Found, Process
from shoal.host.types import Group
from shoal.host.undo.write_ahead_log import WriteAheadLog
from tests.host.fake import FakeHost, Machine

BATCH = Group("batch", PriorityClass.BEST_EFFORT)
OTHER = Group("other", PriorityClass.BEST_EFFORT)
SERVICE = Group("service", PriorityClass.GUARANTEED)

_SPIN = "import sys, time\nsys.stdout.write('.'); sys.stdout.flush()\nwhile True: time.sleep(0.001)"


def found(host: Kernel, *pids: int, exclusive: frozenset[int] | None = None) -> Found:
    """Processes as `Membership` finds them."""
    processes = frozenset(Process(pid, start) for pid in pids if (start := start_time(host, pid)) is not None)
    cpus = frozenset[int]().union(*(host.affinity(pid) for pid in pids))
    return Found(processes, cpus, cpus if exclusive is None else exclusive)


def write_ahead_log(path: Path, kernel: Kernel) -> WriteAheadLog:
    return WriteAheadLog(path / "wal", kernel=kernel, wait_s=0.1, sleep=lambda _: None)


class FakeKit:
    """`kernel` is what is tested on; groups that tests make lie below `top`."""

    real = False

    def __init__(self, layout: str) -> None:
        self.kernel: Kernel
        self.host = FakeHost(Machine(cgroups=layout))
        self.kernel = self.host

    def process(self) -> int:
        return self.host.start(busy=1.0).pid

    def top(self, controller: str) -> str:
        return _top(self.kernel, controller)

    def close(self) -> None:
        return


class RealKit:
    real = True

    def __init__(self) -> None:
        self.kernel: Kernel = LINUX
        self._processes: list[subprocess.Popen[bytes]] = []
        self.made: list[str] = []

    def process(self) -> int:
        process = subprocess.Popen([sys.executable, "-I", "-S", "-c", _SPIN], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.read(1)
        self._processes.append(process)
        return process.pid

    def top(self, controller: str) -> str:
        return _top(self.kernel, controller)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        for path in reversed(self.made):
            until(lambda path=path: _removed(path), f"{path} is removed")


def _removed(path: str) -> bool:
    try:
        Path(path).rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def until(holds: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    """Wait for something; fails instead of hanging."""
    ends_at = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < ends_at, f"never: {what}"
        time.sleep(0.005)


def _top(kernel: Kernel, controller: str) -> str:
    hierarchy = unified(kernel) if controller == "unified" else serving(kernel, controller)
    if hierarchy is None:
        pytest.skip(f"no cgroup hierarchy here has {controller}")
    try:
        probe = f"{hierarchy.top}/shoal-test-writable-{os.getpid()}"
        kernel.mkdir(probe)
        kernel.rmdir(probe)
    except OSError as problem:
        pytest.skip(f"cgroups of {hierarchy.top} are not ours to make: {problem.strerror}")
    return hierarchy.top
