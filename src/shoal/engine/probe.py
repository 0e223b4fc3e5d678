"""Probe of this machine for the local engine, tried for real: the facts behind `shoal doctor`."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from shoal.core import Capability
from shoal.engine import sandbox
from shoal.engine.local import cgroups, inventory

LOW_DISK_BYTES = 1 << 30
"""Below this much free space, logs and checkpoints are expected to fail soon."""

_PR_GET_PDEATHSIG = 2
_PR_GET_CHILD_SUBREAPER = 37


def probe_machine(
    home: Path, *, accelerators: inventory.Probe = inventory.nvidia_accelerators
) -> tuple[Capability, ...]:
    """Everything worth knowing before running jobs below `home`, most important first. Creates `home` if missing,
    leaves nothing else behind; blocks for some 50 ms. Each missing thing says what it costs."""
    home = home.absolute()
    found = cgroups.probe(home / "probe")  # in groups of its own: those of a running engine stay as they are
    limits = found.capabilities()
    found.release()
    return (
        inventory.accelerator_capability(accelerators()),
        _cores(),
        _memory(),
        *limits,
        _pidfd(),
        _process_control(),
        *_disk(home),
        _user(),
        *sandbox.capabilities(home),
    )


def _cores() -> Capability:
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    return Capability("cores", True, f"{usable} usable of {present}")


def _memory() -> Capability:
    physical = inventory.physical_memory_bytes()
    limit = cgroups.memory_limit_bytes(cgroups.mounts())
    if limit is None or limit >= physical:
        return Capability("memory", True, f"{_gib(physical)}")
    return Capability("memory", True, f"{_gib(limit)} (a cgroup limit; the machine has {_gib(physical)})")


def _pidfd() -> Capability:
    cost = "a killed supervisor is noticed after up to a second instead of at once, and signals may race with pid reuse"
    return _tried("pidfd", "processes can be watched and signalled without races", cost, _try_pidfd)


def _try_pidfd() -> None:
    fd = os.pidfd_open(os.getpid())
    try:
        signal.pidfd_send_signal(fd, 0)
    finally:
        os.close(fd)


def _process_control() -> Capability:
    cost = "processes that daemonise are NOT found when their rank ends, and ranks outlive a killed supervisor"
    return _tried("process-control", "child subreaper and parent-death signal work", cost, _try_prctl)


def _try_prctl() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    value = ctypes.c_int()
    for option in (_PR_GET_CHILD_SUBREAPER, _PR_GET_PDEATHSIG):
        if libc.prctl(option, ctypes.byref(value), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _disk(home: Path) -> tuple[Capability, ...]:
    cost = "the engine cannot keep its records there: `shoal up` will refuse this home"
    # A home that is not there yet would be made in the nearest folder that is. Looking makes nothing.
    place = next(path for path in (home, *home.parents) if path.exists())
    try:
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        free_bytes = shutil.disk_usage(place).free
    except OSError as problem:
        return (Capability("disk", False, f"{home}: {problem.strerror}", cost),)
    space = Capability(
        "disk",
        free_bytes >= LOW_DISK_BYTES,
        f"{_gib(free_bytes)} free at {home}",
        ""
        if free_bytes >= LOW_DISK_BYTES
        else "launches are refused and jobs' logs and checkpoints fail once it is full",
    )
    return (
        space,
        _quota(place),
        _tried("fsync", f"writes to {home} reach the disk", f"{cost}, or may lose what it acknowledged",
               lambda: _with_file(place, _try_fsync)),
        _tried("fifo", f"named pipes work in {home}",
               "every launch and end is noticed up to a second late: put the home on a local file system",
               lambda: _with_file(place, lambda path: os.mkfifo(path, 0o600))),
    )  # fmt: skip


def _quota(place: Path) -> Capability:
    cost = "the disk use of jobs is added up from the blocks of their files, and stopped when it is over"
    try:
        found = quotas_of(Path("/proc/self/mountinfo").read_text(), place.stat().st_dev)
    except OSError as problem:
        return Capability("disk quota", False, str(problem), cost)
    if not found:
        return Capability("disk quota", False, f"the file system of {place} keeps none", cost)
    detail = f"{', '.join(found)} at {place}: of a tenant's user, so not of one job"
    return Capability("disk quota", True, detail, cost)


def quotas_of(mountinfo: str, device: int) -> list[str]:
    """The quotas of users and projects that a file system keeps, as its mount options name them."""
    number = f"{os.major(device)}:{os.minor(device)}"
    options: set[str] = set()
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, more = before.split(), after.split()
        if len(fields) > 5 and fields[2] == number:
            options |= {
                one.partition("=")[0] for one in (*fields[5].split(","), *(more[-1].split(",") if more else ()))
            }
    known = {"quota", "usrquota", "usrjquota", "uquota", "prjquota", "pquota"}
    return sorted(options & known)


def _try_fsync(path: Path) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, b"shoal")
        os.fsync(fd)
    finally:
        os.close(fd)


def _with_file(home: Path, act: Callable[[Path], None]) -> None:
    path = home / f".probe-{os.getpid()}"
    try:
        act(path)
    finally:
        path.unlink(missing_ok=True)


def _user() -> Capability:
    if os.geteuid() == 0:
        detail = "root: jobs run as root too, with the server's rights, unless their tenant has a sandbox"
    else:
        detail = f"uid {os.geteuid()}: jobs run as the same user and can read each other's files"
    return Capability("user", True, detail)


def _tried(name: str, works: str, cost: str, act: Callable[[], None]) -> Capability:
    try:
        act()
    except (OSError, AttributeError) as problem:
        return Capability(name, False, str(problem), cost)
    return Capability(name, True, works)


def _gib(count_bytes: int) -> str:
    return f"{count_bytes / (1 << 30):.1f} GiB"
