"""Gives memory that this process has freed back to the system."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Give back to the system what the C library keeps of freed memory; nothing where it cannot. Takes milliseconds for
    hundreds of megabytes, and is meant for a thread. What Python's own allocator keeps stays: the next objects use it.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU C library alone
    if trim is not None:
        trim(0)
