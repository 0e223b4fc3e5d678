"""Signs of changes for the engine: a fifo for what supervisors tell, pidfds for their deaths. Hints, never truth."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from shoal.base.processes import open_process, start_ticks
from shoal.engine.local.gangs import Rank

RECHECK_S = 1.0
"""How often the engine looks by itself, should a hint have been lost (or the kernel have no pidfds)."""


class Fifo:
    """Calls `hear(gang name)` for every line that a supervisor writes."""

    def __init__(self, path: Path, hear: Callable[[str], None]) -> None:
        self._path = path
        self._hear = hear
        self._fd: int | None = None
        self._rest = b""

    def open(self) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self._path, 0o600)
        # Read and write: with a writer of its own the fifo never ends, however many supervisors come and go.
        self._fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        asyncio.get_running_loop().add_reader(self._fd, self._read)

    def close(self) -> None:
        if self._fd is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _read(self) -> None:
        assert self._fd is not None
        with contextlib.suppress(BlockingIOError):
            *names, self._rest = (self._rest + os.read(self._fd, 65536)).split(b"\n")
            for name in dict.fromkeys(names):
                self._hear(name.decode(errors="replace"))


def watch_supervisor(rank: Rank, died: Callable[[], None]) -> None:
    """Call `died` once when the rank's supervisor is gone. Without pidfds nothing happens: `alive` tells on recheck."""
    if rank.supervisor is None:
        return
    try:
        fd = open_process(rank.supervisor)
    except OSError:
        return
    if fd is None:
        forget_supervisor(rank)
        return
    rank.pidfd = fd

    def gone() -> None:
        forget_supervisor(rank)
        died()

    asyncio.get_running_loop().add_reader(fd, gone)


def unwatch(rank: Rank) -> None:
    if rank.pidfd is not None:
        asyncio.get_running_loop().remove_reader(rank.pidfd)
        os.close(rank.pidfd)
        rank.pidfd = None


def forget_supervisor(rank: Rank) -> None:
    """It is dead: reap it if it was our own child."""
    unwatch(rank)
    if rank.supervisor is not None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(rank.supervisor.pid, os.WNOHANG)
        rank.supervisor = None


def check_supervisor(rank: Rank) -> None:
    """Notice a death where no pidfd can tell of it."""
    if rank.supervisor is not None and rank.pidfd is None and start_ticks(rank.supervisor.pid) != rank.supervisor.start:
        forget_supervisor(rank)
