"""Memory that kernels read and write: aligned, zeroed, in large pages where it is large."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LARGE = 1 << 20
_LARGE_PAGE = 2 << 20


def zeroed(size: int) -> NDArray[np.uint8]:
    """`size` bytes that begin at a multiple of 64."""
    if size >= _LARGE:
        pages = mmap.mmap(-1, size + _LARGE_PAGE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        whole = np.frombuffer(pages, np.uint8)
        start = -whole.ctypes.data % _LARGE_PAGE
        return whole[start : start + size]
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def address(array: NDArray[Any]) -> int:
    """Where the array's first element lies."""
    return int(array.ctypes.data)
