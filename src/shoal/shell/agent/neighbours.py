"""Whether a pipe's other end may still turn out to be a command: what `/proc` tells of the processes that hold it."""

from __future__ import annotations

import os
from pathlib import Path

NEAR = 1000
"""Processes of one pipeline are started one after another, so their numbers lie near."""
OWN_WORK_NS = 30_000_000
"""A copy of a shell that has worked so long and started nothing is a loop or a function, no command about to start."""


_SLEEPS = frozenset(
    (
        "do_wait", "pipe_read", "anon_pipe_read", "pipe_write", "anon_pipe_write", "n_tty_read", "wait_woken",
        "do_select", "do_poll", "do_sys_poll", "poll_schedule_timeout", "ep_poll", "sigsuspend", "do_sigtimedwait",
        "do_nanosleep", "hrtimer_nanosleep", "unix_stream_read_generic", "wait_for_partner", "do_epoll_wait",
        "futex_wait_queue", "futex_wait_queue_me", "futex_do_wait",
    )
)  # fmt: skip
"""Functions of the kernel in which a shell, or a thread of another program, waits and starts nothing more for now."""


def may_come(inode: int, pid: int, parent: int, stage_program: str, *, proc: Path = Path("/proc")) -> bool:
    """Whether another command of the pipeline of `pid` may still come to the pipe `inode`. Time plays no part, so a
    busy machine comes to the same answer."""
    if not _waits(parent, proc):
        return _exists(parent, proc)  # the shell has not started all of its pipeline yet
    link = f"pipe:[{inode}]"
    shell = _link(proc / str(parent) / "exe")
    for one in _siblings(pid, parent, proc):
        if not _holds(one, link, proc):
            continue
        program = _link(proc / str(one) / "exe")
        if program == stage_program or (not program and _exists(one, proc)):
            return True
        if program == shell and not _waits(one, proc) and _worked_ns(one, proc) < OWN_WORK_NS:
            return True
    return False


def parent_of(pid: int, *, proc: Path = Path("/proc")) -> int:
    """0 where the process is gone."""
    fields = _stat(pid, proc)
    return int(fields[1]) if fields else 0


def _stat(pid: int | str, proc: Path) -> list[str]:
    """From the state on."""
    try:
        return (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _exists(pid: int, proc: Path) -> bool:
    fields = _stat(pid, proc)
    return bool(fields) and fields[0] not in "ZX"


def _waits(pid: int, proc: Path) -> bool:
    """Whether all threads of the process sleep until something happens: a child ends, or something can be read. One
    that is just being replaced by a program may sleep too, but elsewhere in the kernel; one between `vfork` and its
    child's start has another state (D)."""
    folder = proc / str(pid) / "task"
    try:
        threads = os.listdir(folder)  # noqa: PTH208 - many at once
    except OSError:
        return False
    return bool(threads) and all(_sleeps(one, folder) for one in threads)


def _sleeps(thread: str, folder: Path) -> bool:
    fields = _stat(thread, folder)
    if not fields or fields[0] not in "STt":
        return False
    try:
        where = (folder / thread / "wchan").read_text().strip().partition(".")[0]
    except OSError:
        where = "0"
    return fields[0] != "S" or where == "0" or where in _SLEEPS


def _worked_ns(pid: int, proc: Path) -> int:
    try:
        return int((proc / str(pid) / "schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return OWN_WORK_NS


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _holds(pid: int, link: str, proc: Path) -> bool:
    """Under any number: a copy of a shell has the pipe before it makes it its input or output. While a process becomes
    another program it cannot be looked into."""
    folder = proc / str(pid)
    try:
        return any(str(one.readlink()) == link for one in (folder / "fd").iterdir())
    except PermissionError:
        return _is_mine(folder)
    except OSError:
        return False


def _is_mine(folder: Path) -> bool:
    try:
        return folder.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _siblings(pid: int, parent: int, proc: Path) -> list[int]:
    """Where the kernel has no lists of children, all processes are looked at whose numbers lie near."""
    folder, found = proc / str(parent) / "task", list[int]()
    try:
        for thread in os.listdir(folder):  # noqa: PTH208 - many at once
            found += map(int, (folder / thread / "children").read_text().split())
    except OSError:
        found = [one for one in _near(pid, proc) if parent_of(one, proc=proc) == parent]
    return [one for one in found if one != pid]


def _near(pid: int, proc: Path) -> list[int]:
    last = _last_pid(proc)
    away = ((int(one), abs(int(one) - pid)) for one in os.listdir(proc) if one.isdigit())  # noqa: PTH208
    return [one for one, distance in away if min(distance, last - distance) <= NEAR]


def _last_pid(proc: Path) -> int:
    """After it the kernel counts from the beginning again."""
    try:
        return int((proc / "sys" / "kernel" / "pid_max").read_text())
    except (OSError, ValueError):
        return 1 << 22
