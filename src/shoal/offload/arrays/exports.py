"""The memory layout of CPython's objects, used here alone for what captured arrays need of it.

An array that is not worth watching gets the class `ndarray` itself, which costs nothing any more.

The buffer protocol: memory is then read and written where nothing sees it. From Python 3.12 on, a class defines it by
`__buffer__`. Before, its slot is filled here, by the layout of CPython 3.11. There, without Shoal's native part, a
request that cannot be met (a part with gaps, a read-only array to be written) raises SystemError.
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

_KIND, _AS_BUFFER, _FLAGS, _FREE = 8, 160, 168, 320
"""On machines of 64 bits: where an object has the address of its class; a class that of its functions for buffers, its
flags, and the function that frees an object."""

_COLLECTED = 1 << 14
"""The flag of a class whose objects are collected (Py_TPFLAGS_HAVE_GC)."""

_GetBuffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
_Give = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)

_kept: list[Any] = []
"""Functions that types call for as long as the process lives."""


def _slot(kind: type) -> ctypes.c_void_p:
    functions = ctypes.c_void_p.from_address(id(kind) + _AS_BUFFER).value
    return ctypes.c_void_p.from_address(functions or 0)


_known = platform.python_implementation() == "CPython" and (struct.calcsize("P"), object.__basicsize__) == (8, 16)


def watch_buffers(give: Callable[[Any], Any], *kinds: type) -> None:
    """An object of these classes has the buffer of the array that `give` answers for it."""
    if sys.version_info >= (3, 12) or not _known:
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


def as_ndarray(kind: type) -> None:
    """Have objects of a subclass of `ndarray` without fields of its own allocated as those of `ndarray` are. Python's
    classes have their objects collected; an array refers to nothing that could be a cycle, and takes longer so."""
    if not _known:
        return
    own, plain = (id(each) for each in (kind, np.ndarray))
    flags = ctypes.c_ulong.from_address(own + _FLAGS)
    if kind.__basicsize__ == np.ndarray.__basicsize__ and flags.value == kind.__flags__:  # the layout is as it is known
        flags.value &= ~_COLLECTED
        ctypes.c_void_p.from_address(own + _FREE).value = ctypes.c_void_p.from_address(plain + _FREE).value


def become_plain(array: Any) -> None:
    """Make an array of such a subclass an `ndarray`, which assigning `__class__` refuses."""
    kind = type(array)
    if kind.__flags__ & _COLLECTED:
        return
    place = ctypes.c_void_p.from_address(id(array) + _KIND)
    if place.value == id(kind):
        place.value = id(np.ndarray)
        _unreferenced(kind)  # each object holds a reference to a class that was made at run time


_unreferenced = ctypes.pythonapi.Py_DecRef
_unreferenced.argtypes, _unreferenced.restype = [ctypes.py_object], None
