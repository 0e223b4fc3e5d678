"""Sockets that listen on a TCP port of this machine, and the processes that hold them, as the kernel tells in /proc."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_LISTEN = "0A"
_ANY4, _LOOPBACK4 = "00000000", "0100007F"
_ANY6, _LOOPBACK6 = "0" * 32, "0" * 24 + "01000000"
_MAPPED = "0000000000000000FFFF0000"


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket. `loopback` are the machine's own addresses at which it would take a connection."""

    inode: int
    loopback: tuple[str, ...]


def listening(port: int, *, proc: Path = Path("/proc")) -> list[Listener]:
    """The sockets of this process's network that listen on the port, at an address of the loopback."""
    found = []
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / name).read_text().splitlines()[1:]:
                listener = _listener(line.split(), port)
                if listener is not None:
                    found.append(listener)
    return found


def _listener(fields: list[str], port: int) -> Listener | None:
    address, _, number = fields[1].partition(":")
    if fields[3] != _LISTEN or int(number, 16) != port:
        return None
    if address in (_ANY4, _LOOPBACK4, _MAPPED + _ANY4, _MAPPED + _LOOPBACK4):
        return Listener(int(fields[9]), ("127.0.0.1",))
    if address == _LOOPBACK6:
        return Listener(int(fields[9]), ("::1",))
    if address == _ANY6:  # of IPv4 as well, unless it says otherwise, which is not told here
        return Listener(int(fields[9]), ("127.0.0.1", "::1"))
    return None


def sockets_of(pids: Iterable[int], *, proc: Path = Path("/proc")) -> frozenset[int]:
    """The inodes of the sockets that these processes hold, as far as they may be inspected."""
    found = set()
    for pid in pids:
        folder = proc / str(pid) / "fd"
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            with contextlib.suppress(OSError):
                target = os.readlink(folder / name)  # noqa: PTH115
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
    return frozenset(found)
