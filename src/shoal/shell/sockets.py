"""Sockets of the machine whose paths may be longer than the 107 bytes that a name of one has."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path


def connect(path: Path) -> socket.socket:
    """Raises OSError."""
    return _named(path, lambda link, name: link.connect(name))


def listen(path: Path, mode: int) -> socket.socket:
    """In the place of what an earlier process left. Raises OSError."""

    def bind(link: socket.socket, name: str) -> None:
        path.unlink(missing_ok=True)
        link.bind(name)
        path.chmod(mode)
        link.listen(512)

    return _named(path, bind)


def _named(path: Path, act: Callable[[socket.socket, str], None]) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
        try:
            act(link, f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except BaseException:
        link.close()
        raise
    return link
