"""One guard for each host, whichever user starts it and wherever it keeps its files.

Two guards would set the same cgroups, and the first to end would take the other's limits away. The lock is an abstract
socket address: the kernel gives it to one process, of any user, and frees it when that process ends however it ends.
Containers with a network of their own have addresses of their own.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from shoal.core import Conflict
from shoal.host.linux.fs import LINUX, Kernel, start_time

VARIABLE = "SHOAL_GUARD_LOCK"
"""Another name for the lock: for tests that run guards side by side."""
_NAME = "shoal-guard"
_EVERY_S = 0.05
_MOST_BYTES = 100
"""An address has 107."""


class HostLock:
    """Held until `close`, and by processes that were given its descriptors: a dead guard's watchdog, until it has taken
    everything back. Raises Conflict with the pid and folder of a guard that lives, or of one whose watchdog does not
    end in `wait_s`."""

    def __init__(
        self,
        folder: Path,
        *,
        kernel: Kernel = LINUX,
        environ: Mapping[str, str] = os.environ,
        wait_s: float = 3.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        name = environ.get(VARIABLE) or _NAME
        lock = _bound(name)
        holder = _holder(kernel, name) if lock is None else None
        for _ in range(round(wait_s / _EVERY_S)):
            if lock is not None or (holder and start_time(kernel, holder[0])):
                break
            sleep(_EVERY_S)  # its watchdog still takes back what it left
            lock = _bound(name)
        if lock is None:
            who = f"pid {holder[0]}, files in {holder[1]}" if holder else "its pid is not known (see `ss -xp`)"
            raise Conflict(
                f"another guard works on this host: {who}",
                where=str(folder),
                hint="one guard serves a host: name all groups in its configuration, or stop it first",
            )
        label = _bound(_cut(f"{name}/{os.getpid()}/{folder.absolute()}"))
        self._sockets = [one for one in (lock, label) if one is not None]

    @property
    def fds(self) -> tuple[int, ...]:
        return tuple(one.fileno() for one in self._sockets)

    def close(self) -> None:
        for one in self._sockets:
            one.close()
        self._sockets = []


def _cut(text: str) -> str:
    data = text.encode()
    return text if len(data) <= _MOST_BYTES else data[:_MOST_BYTES].decode("utf-8", "ignore") + "..."


def _bound(name: str) -> socket.socket | None:
    """A socket with this abstract address; None where another process has it."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        made.bind(f"\0{name}")
    except OSError:
        made.close()
        return None
    return made


def _holder(kernel: Kernel, name: str) -> tuple[int, str] | None:
    """Its pid and folder, as the second address says that every guard takes."""
    try:
        lines = kernel.read("/proc/net/unix").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, found, who = line.partition(f"@{name}/")
        pid, slash, folder = who.partition("/")
        if found and slash and pid.isdigit():
            return int(pid), folder
    return None
