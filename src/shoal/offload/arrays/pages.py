"""Memory of large arrays that is used again.

The C library gives freed blocks of more than 32 MiB back to the system at once. The next array has fresh pages, and
the first touch of each takes about a microsecond: for an addition that is half of the time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
_LARGEST = 512 << 20
_SHARE = 16
"""The part of the machine's memory that is kept, at most."""
_USUAL = 32 << 20
"""The most that glibc's own adaptation comes to."""


def keep_memory() -> Callable[[], None]:
    """Keep freed memory, up to a limit, for later arrays. Answers what ends that. Without glibc nothing happens."""
    kept = min(_LARGEST, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _SHARE)
    _limit(kept, kept)
    return lambda: _limit(_USUAL, 2 * _USUAL)


def _limit(block: int, free: int) -> None:
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, block)
        mallopt(_M_TRIM_THRESHOLD, free)
