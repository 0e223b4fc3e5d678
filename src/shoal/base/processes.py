"""Processes: how one is known for certain, how one ends with its parent, and how one outlives its starter."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal.core import Unavailable

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Process:
    """One process, known for good by pid and start time (clock ticks since boot): a pid alone may be another's by
    now."""

    pid: int
    start: int


def start_ticks(pid: int, *, proc: Path = Path("/proc")) -> int | None:
    """When the process started, in clock ticks since boot; None when there is none."""
    try:
        return start_in((proc / str(pid) / "stat").read_text(errors="replace"))
    except OSError:
        return None


def start_in(stat: str) -> int | None:
    """The start in the text of a process's `stat` file; None for a zombie. Its name may hold anything, brackets too."""
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def open_process(process: Process) -> int | None:
    """A pidfd of exactly this process; None when it is gone. Raises OSError where the kernel has no pidfds."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    if start_ticks(process.pid) != process.start:
        os.close(fd)
        return None
    return fd


def send(process: Process, signum: int) -> bool:
    """Send the signal to exactly this process; False when it is gone."""
    try:
        fd = open_process(process)
    except OSError:  # no pidfds here: check and send, with the small race between
        if start_ticks(process.pid) != process.start:
            return False
        return _sent(lambda: os.kill(process.pid, signum))
    if fd is None:
        return False
    try:
        return _sent(lambda: signal.pidfd_send_signal(fd, signum))
    finally:
        os.close(fd)


def _sent(act: Callable[[], None]) -> bool:
    try:
        act()
    except ProcessLookupError:
        return False
    return True


def end_with_parent(parent: int, signum: int = signal.SIGKILL) -> bool:
    """Have the kernel send this process the signal when its parent ends; False if `parent` has ended already."""
    import ctypes  # slows every command down that never needs it

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
    return os.getppid() == parent


def start_detached(
    command: Sequence[str], log_file: Path, *, what: str, drop: Sequence[str] = ("SHOAL_TOKEN",)
) -> subprocess.Popen[bytes]:
    """In a session of its own, so that it outlives its starter and what ends that; its output is appended to a file.
    `drop` names variables that it does not inherit. Raises Unavailable, calling it `what`."""
    environment = {name: value for name, value in os.environ.items() if name not in drop}
    try:
        with log_file.open("ab") as output:
            log_file.chmod(0o600)
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                cwd=log_file.parent, env=environment,
            )  # fmt: skip
    except OSError as error:
        raise Unavailable(f"the {what} cannot be started: {error.strerror}", where=str(log_file)) from error
