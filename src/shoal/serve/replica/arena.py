"""The memory in which tensors pass between gateway and replica, and its division into regions.

The gateway makes the file, maps it, and sends it over the socket. Its size is sealed: a replica that cut it short would
else crash the gateway at its next look (SIGBUS).
"""

from __future__ import annotations

import fcntl
import mmap
import os
from bisect import bisect_left
from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector load."""


class Arena:
    """A mapped memory file; `view` is all of it."""

    def __init__(self, fd: int, size: int) -> None:
        self._map = mmap.mmap(fd, size)
        self.size = size
        self.view = memoryview(self._map)

    @classmethod
    def create(cls, size: int) -> tuple[Arena, int]:
        """A new arena and its file descriptor, which the caller sends and closes. Pages cost memory once touched."""
        fd = os.memfd_create("shoal-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            return cls(fd, size), fd
        except BaseException:
            os.close(fd)
            raise


@dataclass(frozen=True, slots=True)
class ArenaSpan:
    """`size` bytes from `offset`; `size` is as it was asked for."""

    offset: int
    size: int


class Allocator:
    """Regions of a range of bytes, first fit: few regions are in use at a time, and the lowest bytes, which were used
    last, are the ones still in the caches. Offsets are multiples of `ALIGNMENT`."""

    def __init__(self, size: int) -> None:
        self.size = size - size % ALIGNMENT
        self._free = [(0, self.size)] if self.size else []

    def allocate(self, size: int) -> ArenaSpan | None:
        """None if no hole is large enough."""
        rounded = _rounded(size)
        for at, (start, end) in enumerate(self._free):
            if end - start >= rounded:
                if end - start == rounded:
                    del self._free[at]
                else:
                    self._free[at] = (start + rounded, end)
                return ArenaSpan(start, size)
        return None

    def free(self, region: ArenaSpan) -> None:
        """Give back a region of this allocator, once."""
        start, end = region.offset, region.offset + _rounded(region.size)
        at = bisect_left(self._free, (start, end))
        if at < len(self._free) and self._free[at][0] == end:
            end = self._free.pop(at)[1]
        if at > 0 and self._free[at - 1][1] == start:
            at -= 1
            start = self._free.pop(at)[0]
        self._free.insert(at, (start, end))


def _rounded(size: int) -> int:
    return max(size + -size % ALIGNMENT, ALIGNMENT)
