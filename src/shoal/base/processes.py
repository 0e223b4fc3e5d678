"""Processes: how one is known for certain, how one ends with its parent, and how one outlives its starter."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

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


def parent_of(pid: int, *, proc: Path = Path("/proc")) -> int:
    """The process's parent; 0 where there is none to be seen."""
    try:
        return int((proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def name_of(pid: int, *, proc: Path = Path("/proc")) -> str:
    """What the kernel calls the process; empty where there is none."""
    try:
        return (proc / str(pid) / "comm").read_text(errors="replace").removesuffix("\n")
    except OSError:
        return ""


def call_this(name: str) -> None:
    """Have the kernel call this process so, by 15 bytes of the name."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)


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


def carrying(marks: Collection[bytes], *, proc: Path = Path("/proc")) -> Iterator[tuple[int, Mapping[bytes, bytes]]]:
    """Living processes (of users whom we may inspect) that have all these `NAME=VALUE` in their environment, with that
    environment; this process is left out."""
    for entry in os.listdir(proc):  # noqa: PTH208 - twice as fast as Path.iterdir over thousands of processes
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            environ = (proc / entry / "environ").read_bytes()
        except OSError:  # gone, or another user's
            continue
        if all(mark in environ for mark in marks):
            items = environ.split(b"\0")
            if set(marks) <= set(items):
                yield int(entry), dict(item.partition(b"=")[::2] for item in items)


def kill_until_none(find: Callable[[], Iterable[Process]], *, timeout_s: float) -> bool:
    """SIGKILL whatever `find` names until it names nothing. Blocks; False when some were left after the timeout."""
    ends_at = time.monotonic() + timeout_s
    while True:
        found = list(find())
        if not found:
            return True
        if time.monotonic() > ends_at:
            return False
        for process in found:
            send(process, signal.SIGKILL)
        for process in found:
            _await_end(process, max(0.0, ends_at - time.monotonic()))


def _await_end(process: Process, timeout_s: float) -> None:
    try:
        fd = open_process(process)
    except OSError:
        time.sleep(min(0.01, timeout_s))
        return
    if fd is None:
        return
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll(timeout_s * 1000)
    finally:
        os.close(fd)


def end_with_parent(parent: int, signum: int = signal.SIGKILL) -> bool:
    """Have the kernel send this process the signal when its parent ends; False if `parent` has ended already."""
    import ctypes  # slows every command down that never needs it

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
    return os.getppid() == parent


def end_as(code: int) -> NoReturn:
    """End this process with the exit code, or by the signal (negative), of another. What is open is not flushed."""
    import resource

    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # one core is enough
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
        code = 128 - code  # process 1 of a container ends by no signal of its own
    os._exit(code)


def start_detached(
    command: Sequence[str], log_file: Path, *, what: str,
    drop: Collection[str] = ("SHOAL_TOKEN",), give: Mapping[str, str] | None = None, pass_fds: Collection[int] = (),
) -> subprocess.Popen[bytes]:  # fmt: skip
    """In a session of its own, so that it outlives its starter and what ends that; its output is appended to a file.
    `drop` names variables that it does not inherit, `give` has others. Raises Unavailable, calling it `what`."""
    environment = {name: value for name, value in os.environ.items() if name not in drop} | dict(give or {})
    try:
        with log_file.open("ab") as output:
            log_file.chmod(0o600)
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                cwd=log_file.parent, env=environment, pass_fds=pass_fds,
            )  # fmt: skip
    except OSError as error:
        raise Unavailable(f"the {what} cannot be started: {error.strerror}", where=str(log_file)) from error
