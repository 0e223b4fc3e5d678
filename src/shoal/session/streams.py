"""An agent's connections, and what it does with descriptors. Loaded by it by its path; see `frames`."""

# ruff: noqa: SIM105

from __future__ import annotations

import errno
import fcntl
import os
import struct
import termios
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Client:
    """One connection. `at` is the number of the next frame that it gets."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.fd: int = connection.fileno()
        self.came = bytearray()
        self.going = bytearray()
        self.name = ""
        self.known = False
        self.at = 0
        self.sent = self.acknowledged = 0
        self.moved_at = time.monotonic()
        self.untold = 0
        """Bytes that it typed and was not told to have arrived: that goes with the next output, or a little later."""


def resize(terminal: int, rows: int, columns: int) -> None:
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows or 24, columns or 80, 0, 0))
    except OSError:
        pass


def take_over(*streams: int) -> None:
    os.setsid()
    for target, fd in enumerate(streams):
        os.dup2(fd, target)


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
