"""The buffer protocol of captured arrays: their memory is then read and written where nothing sees it.

From Python 3.12 on, a class defines it by `__buffer__`. Before, its slot is filled here, by the layout of CPython 3.11.
There, a request that cannot be met (a part with gaps, a read-only array to be written) raises SystemError.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

_AS_BUFFER = 160
"""Where a type has the address of its functions for buffers, on machines of 64 bits."""

_GetBuffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)

_kept: list[Any] = []
"""Functions that types call for as long as the process lives."""


def _slot(kind: type) -> ctypes.c_void_p:
    functions = ctypes.c_void_p.from_address(id(kind) + _AS_BUFFER).value
    return ctypes.c_void_p.from_address(functions or 0)


def watch_buffers(kind: type, give: Callable[[Any], Any]) -> None:
    """An object of this class has the buffer of the array that `give` answers for it."""
    if sys.version_info >= (3, 12) or platform.python_implementation() != "CPython" or struct.calcsize("P") != 8:
        return
    original = _GetBuffer(_slot(np.ndarray).value or 0)

    def get(given: Any, view: int, flags: int) -> int:
        try:
            return int(original(give(given), view, flags))
        except BaseException:  # a callback from C cannot raise
            return -1

    callback = _GetBuffer(get)
    _kept.append(callback)
    _slot(kind).value = ctypes.cast(callback, ctypes.c_void_p).value
