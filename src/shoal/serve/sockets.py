"""Sockets to which replicas connect: a socket in the gateway's own folder, and another one for replicas in a sandbox.

The second is in a folder that holds nothing else, and such replicas see that folder alone. They run as another user; a
token says who they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.base.listening import LONGEST_PATH


def sandboxed(folder: Path) -> Path:
    """The socket for replicas in a sandbox, of the gateway of this folder."""
    return folder / "replicas" / "gateway.sock"


@contextmanager
def address_of(path: Path) -> Iterator[str]:
    """An address for the socket at this path, however long it is: by way of a descriptor of its folder."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
