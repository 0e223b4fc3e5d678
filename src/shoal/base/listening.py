"""Sockets that listen: on each address that a name stands for, all on one port; or on a path of this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_BACKLOG = 2048
LONGEST_PATH = 107
"""Bytes: what the kernel takes as the path of a socket."""


def listen(addresses: Sequence[Any]) -> list[socket.socket]:
    """Sockets that listen on those of these addresses (of `getaddrinfo`) that this machine has, all on one port. Raises
    OSError, and then none is left open."""
    missing = OSError(errno.EADDRNOTAVAIL, "there is no such address")
    found: list[socket.socket] = []
    for family, kind, protocol, _, (host, port, *more) in addresses:
        try:
            listener = socket.socket(family, kind, protocol)
        except OSError as error:
            missing = error  # no IPv6 here, say
            continue
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((host, port or (found[0].getsockname()[1] if found else 0), *more))
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRNOTAVAIL:
                for other in found:
                    other.close()
                raise
            missing = error
            continue
        found.append(listener)
    if not found:
        raise missing
    return found


def listen_locally(path: Path, mode: int) -> socket.socket:
    """A socket that listens on a path. What a server that has ended left there is replaced.

    Raises OSError: EADDRINUSE where another server listens there, or where something else has that name; EPERM where
    others than its owner and root may put something in its place."""
    _check_folder(path.parent)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode) or _answers(path):
            raise OSError(errno.EADDRINUSE, "the path is taken")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(mode)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _check_folder(folder: Path) -> None:
    found = folder.stat()
    if found.st_uid not in (0, os.geteuid()) or (found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX):
        raise OSError(errno.EPERM, "others may write in its folder")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(1.0)
        try:
            asking.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # its backlog is full, say
            return True
    return True
