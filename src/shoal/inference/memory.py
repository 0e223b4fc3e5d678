"""Memory of models, as the kernel counts it."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from shoal.base import memory

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_now() -> int:
    """Bytes of this process's own memory that are resident: without file mappings and shared memory, as those of
    libraries and arenas."""
    return _resident("self")


def resident(pid: int) -> int:
    """The same of another process; 0 when it is gone."""
    try:
        return _resident(str(pid))
    except OSError:
        return 0


def _resident(process: str) -> int:
    _, resident, shared, *_ = Path("/proc", process, "statm").read_text().split()
    return (int(resident) - int(shared)) * _PAGE


def give_back() -> None:
    """Return freed memory to the kernel; without this an unloaded model's memory stays with the allocator."""
    gc.collect()
    memory.give_back()
