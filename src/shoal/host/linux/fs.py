"""The kernel as this component sees it: its files, and the few calls that have none. Tests give another one.

Files are written with `os.open`, `os.write` and `os.close`: Python's file objects write when they are closed, and a
refusal (EINVAL) that comes while one is collected is lost.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator

from shoal.base.processes import start_in

# ruff: noqa: PTH102, PTH106, PTH110, PTH208
# These files are read ten times a second: a Path for each costs more than the read.

_READ_BYTES = 1 << 16
_CPUCLOCK_SCHED = 2
_PERF_FLAG_CLOEXEC = 8


def start_time(kernel: Kernel, pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone. With the pid, this is its identity."""
    try:
        return start_in(kernel.read(f"/proc/{pid}/stat"))
    except OSError:
        return None


def runs(kernel: Kernel, pid: int) -> bool:
    """Whether a process may go on by itself: not if it is stopped, or on its way there, or gone."""
    try:
        state = kernel.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state in ("R", "S", "I")


def owners_of(kernel: Kernel, pid: int) -> frozenset[int]:
    """The real, effective and saved user ids of a process; none when it is gone."""
    try:
        status = kernel.read(f"/proc/{pid}/status")
    except OSError:
        return frozenset()
    line = next((one for one in status.splitlines() if one.startswith("Uid:")), "")
    return frozenset(map(int, line.split()[1:4]))


def threads(kernel: Kernel, pid: int) -> tuple[int, ...]:
    """Of a process; none when it is gone."""
    try:
        return tuple(map(int, kernel.names(f"/proc/{pid}/task")))
    except OSError:
        return ()


def family(kernel: Kernel, pid: int) -> Iterator[int]:
    """A process and all its descendants."""
    yield pid
    for tid in threads(kernel, pid):
        for child in children(kernel, pid, tid):
            yield from family(kernel, child)


def children(kernel: Kernel, pid: int, tid: int) -> tuple[int, ...]:
    """The processes that a thread forked off and that still live; none where the kernel does not say."""
    try:
        return tuple(map(int, kernel.read(f"/proc/{pid}/task/{tid}/children").split()))
    except OSError:
        return ()


class Kernel:
    """Everything raises OSError with the kernel's own errno. Paths are absolute."""

    def read(self, path: str) -> str:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(fd, _READ_BYTES)
            while more := os.read(fd, _READ_BYTES):  # the kernel hands lists out by the page
                data += more
            return data.decode("utf-8", "replace")
        finally:
            os.close(fd)

    def write(self, path: str, text: str) -> None:
        """In one write, so that the kernel takes or refuses it whole."""
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def names(self, path: str) -> tuple[str, ...]:
        """What a directory holds, sorted."""
        return tuple(sorted(os.listdir(path)))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def pread(self, path: str, size: int, offset: int) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, size, offset)
        finally:
            os.close(fd)

    def pwrite(self, path: str, data: bytes, offset: int) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, data, offset)
        finally:
            os.close(fd)

    def cpu_s(self, pid: int) -> float:
        """CPU seconds that a process has used so far, those of threads that have ended included."""
        return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)  # the kernel's MAKE_PROCESS_CPUCLOCK

    def affinity(self, tid: int) -> frozenset[int]:
        return frozenset(os.sched_getaffinity(tid))

    def set_affinity(self, tid: int, cpus: frozenset[int]) -> None:
        os.sched_setaffinity(tid, cpus)

    def signal(self, pid: int, start: int, signum: int) -> None:
        """To the process of this pid that started at `start` (see `start_time`), and to no other."""
        fd = os.pidfd_open(pid)
        try:
            if start_time(self, pid) != start:
                raise ProcessLookupError(3, "another process has this pid now")
            signal.pidfd_send_signal(fd, signum)
        finally:
            os.close(fd)

    def migrate_pages(self, pid: int, sources: frozenset[int], targets: frozenset[int]) -> None:
        """Move a process's memory between NUMA nodes."""
        highest = max(sources | targets)
        words = highest // 64 + 1
        masks = [(ctypes.c_ulong * words)(*_mask(nodes, words)) for nodes in (sources, targets)]
        # The kernel takes the number of bits plus one.
        _call(_number("migrate_pages"), pid, ctypes.c_ulong(words * 64 + 1), *masks)

    def perf_open(self, attr: bytes, cpu: int, leader: int) -> int:
        """The descriptor of a counter of all that runs on a CPU; `attr` is a `perf_event_attr`, `leader` the descriptor
        of its group's or -1."""
        block = ctypes.create_string_buffer(attr, len(attr))
        return _call(_number("perf_event_open"), block, -1, cpu, leader, ctypes.c_ulong(_PERF_FLAG_CLOEXEC))

    def read_fd(self, fd: int, size: int) -> bytes:
        return os.read(fd, size)

    def close(self, fd: int) -> None:
        os.close(fd)


LINUX = Kernel()

_NUMBERS = {
    "x86_64": {"perf_event_open": 298, "migrate_pages": 256},
    "aarch64": {"perf_event_open": 241, "migrate_pages": 238},
}


def _number(name: str) -> int:
    try:
        return _NUMBERS[os.uname().machine][name]
    except KeyError:
        raise OSError(38, f"the number of {name} on {os.uname().machine} is not known here") from None


def _mask(bits: frozenset[int], words: int) -> list[int]:
    whole = sum(1 << bit for bit in bits)
    return [whole >> 64 * word & (1 << 64) - 1 for word in range(words)]


def _libc() -> Callable[..., int]:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call


def _call(number: int, *arguments: object) -> int:
    result = int(_libc()(number, *arguments))
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
