"""An agent's connections, and what it does with descriptors. Loaded by it by its path; see `frames`."""

# ruff: noqa: S606, SIM105

from __future__ import annotations

import _socket as sockets
import errno
import fcntl
import os
import struct
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Any, NoReturn

    from shoal.session.frames import SHORT
else:
    import _signal as signal

    from frames import SHORT

PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
"""Signals for a session are signals for its command."""
_SIGNALLED = 128


class Client:
    """One connection. `at` is the number of the next frame that it gets."""

    def __init__(self, connection: Any, now: float) -> None:
        self.connection = connection
        self.fd: int = connection.fileno()
        self.came = bytearray()
        self.going = bytearray()
        self.most = SHORT
        self.name = ""
        self.known = False
        self.server = ""
        """Which run of the server made it, where it says."""
        self.at = 0
        self.sent = self.acknowledged = 0
        self.moved_at = now
        self.untold = 0
        """Bytes that it typed and was not told to have arrived: that goes with the next output, or a little later."""


def listen(name: str, most: int) -> tuple[Any, str, int]:
    """A socket of this name in `SHOAL_RUN`, its path, and the umask from before. It is made by way of a descriptor: the
    directory's path may be longer than the address of a socket."""
    folder = os.open(os.environ["SHOAL_RUN"], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    path = f"/proc/self/fd/{folder}/{name}"
    listener = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM | sockets.SOCK_CLOEXEC | sockets.SOCK_NONBLOCK)
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        pass
    umask = os.umask(0o077)
    listener.bind(path)
    listener.listen(most)
    return listener, path, umask


def end_as(status: int | None) -> int:
    """The exit code of a command with this wait status; killed by the signal that killed it. None: it hung up."""
    if status is None:
        return _SIGNALLED + int(signal.SIGHUP)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
        return _SIGNALLED - code
    return code


def resize(terminal: int, rows: int, columns: int) -> None:
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows or 24, columns or 80, 0, 0))
    except OSError:
        pass


def start_at_terminal(argv: list[str], umask: int, rows: int, columns: int) -> tuple[int, int]:
    """The process, and this side of its terminal."""
    main, side = os.openpty()
    resize(main, rows, columns)
    os.set_inheritable(main, False)
    pid = os.fork()
    if pid == 0:
        _become(argv, umask, lambda: os.login_tty(side))
    os.close(side)
    os.set_blocking(main, False)
    return pid, main


def start_at_pipes(argv: list[str], umask: int) -> tuple[int, int, int, int]:
    """The process, and this side of its input, output and errors."""
    (read_in, given), (out, write_out), (errors, write_errors) = (os.pipe2(os.O_CLOEXEC) for _ in range(3))
    pid = os.fork()
    if pid == 0:
        _become(argv, umask, lambda: _take_over(read_in, write_out, write_errors))
    for fd in (read_in, write_out, write_errors):
        os.close(fd)
    for fd in (given, out, errors):
        os.set_blocking(fd, False)
    return pid, given, out, errors


def _become(argv: list[str], umask: int, take_streams: Callable[[], None]) -> NoReturn:
    try:
        take_streams()
        signal.set_wakeup_fd(-1)
        for one in (*PASSED_ON, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(one, signal.SIG_DFL)
        os.umask(umask)
        os.execvp(argv[0], argv)
    except FileNotFoundError:
        os.write(2, f"shoal: {argv[0]}: command not found\n".encode())
        os._exit(127)
    except OSError as problem:
        os.write(2, f"shoal: {argv[0]}: {problem.strerror}\n".encode())
    finally:
        os._exit(126)


def _take_over(*streams: int) -> None:
    os.setsid()
    for target, fd in enumerate(streams):
        os.dup2(fd, target)


def pass_on(signum: int, pid: int, terminal: int | None) -> None:
    """Signal a command, and what is in front at its terminal."""
    groups, wanted = {pid}, [signum]
    if terminal is not None:
        try:
            groups.add(os.tcgetpgrp(terminal))
        except OSError:
            pass
        if signum == signal.SIGTERM:
            wanted.append(signal.SIGHUP)
    groups.discard(0)  # of a terminal that nobody has taken yet: it would mean this process's own group
    for group in groups:
        for one in wanted:
            try:
                os.killpg(group, one)
            except OSError:
                pass


def drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def write_all(fd: int, data: bytes) -> None:
    """Into the job's log; a full disk costs the log and nothing else."""
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPIPE):
            raise
