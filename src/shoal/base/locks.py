"""Locks on files: held by one process, and free as soon as it has ended, however it ended."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

_PACE_S = 0.05
"""A file's lock cannot be waited for with a limit, so it is asked for at this pace."""


def lock_file(path: Path, *, wait_s: float = 0.0, sleep: Callable[[float], None] = time.sleep) -> int | None:
    """The descriptor that holds the lock until it is closed; None when another holds it for longer than `wait_s`. The
    file is made where there is none, for its owner only. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    waited_s = 0.0
    while not _taken(descriptor, fcntl.LOCK_EX):
        if waited_s >= wait_s:
            os.close(descriptor)
            return None
        sleep(_PACE_S)
        waited_s += _PACE_S
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether a process holds the file's lock now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _taken(descriptor, fcntl.LOCK_SH)  # shared: two that only ask do not find each other
    finally:
        os.close(descriptor)


def _taken(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
