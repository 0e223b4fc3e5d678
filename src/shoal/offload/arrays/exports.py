"""The buffer protocol of captured arrays: their memory is then read and written where nothing sees it.

From Python 3.12 on, a class defines it by `__buffer__`. Before, its slot is filled here, by the layout of CPython 3.11.
There, without Shoal's native part, a request that cannot be met (a part with gaps, a read-only array to be written)
raises SystemError.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NATIVE = Path(__file__).parent.parent / "_native" / "libshoaloffload.so"

_AS_BUFFER = 160
"""Where a type has the address of its functions for buffers, on machines of 64 bits."""

_GetBuffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
_Give = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)

_kept: list[Any] = []
"""Functions that types call for as long as the process lives."""


def _slot(kind: type) -> ctypes.c_void_p:
    functions = ctypes.c_void_p.from_address(id(kind) + _AS_BUFFER).value
    return ctypes.c_void_p.from_address(functions or 0)


def watch_buffers(give: Callable[[Any], Any], *kinds: type) -> None:
    """An object of these classes has the buffer of the array that `give` answers for it."""
    if sys.version_info >= (3, 12) or platform.python_implementation() != "CPython" or struct.calcsize("P") != 8:
        return
    get = _native(give) or _callback(give)
    for kind in kinds:
        _slot(kind).value = ctypes.cast(get, ctypes.c_void_p).value


def _native(give: Callable[[Any], Any]) -> Any:
    """A function of Shoal's native part that lets NumPy's errors through; None where it was not built."""

    def given(array: Any) -> Any:
        try:
            return give(array)
        except BaseException:  # a callback from C cannot raise
            return None

    try:
        library = ctypes.PyDLL(str(NATIVE))
    except OSError:
        return None
    parts = _slot(np.ndarray), _Give(given), ctypes.pythonapi.Py_DecRef, ctypes.py_object(None)
    _kept.append(parts)
    library.shoal_buffers_set(*parts)
    return library.shoal_buffers_get


def _callback(give: Callable[[Any], Any]) -> Any:
    original = _GetBuffer(_slot(np.ndarray).value or 0)

    def get(given: Any, view: int, flags: int) -> int:
        try:
            return int(original(give(given), view, flags))
        except BaseException:  # a callback from C cannot raise
            return -1

    callback = _GetBuffer(get)
    _kept.append(callback)
    return callback
