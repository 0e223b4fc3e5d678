"""String columns that say the same few values again and again: each value is worked on once.

`read_csv`, `take` and `merge` of pandas share one object of Python between equal strings. Objects are told apart by
their addresses, several times faster than strings are hashed. An elementwise function of the column is then that of its
distinct objects, by pandas' own code, taken for each row; so the results are pandas' own.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from pandas.arrays import StringArray

from shoal.offload.arrays.state import is_program, state
from shoal.offload.frames.entry import passed_by
from shoal.offload.profile import PROFILE

_SAMPLE = 16384
_SHARE = 4
"""Rows for each distinct value, at least: below that the detour costs as much as it saves."""

_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_PURE = (str, int, bool, float, type(None), slice, re.Pattern)
"""What a function of pandas may have been given: not a function of the program, which may count its calls."""

Distinct = tuple[Any, "np.ndarray[Any, Any]"]
"""The distinct values, and for each row the number of its value."""


def distinct(array: Any, factorize: Callable[..., Any] | None) -> Distinct | None:
    """None where there are too many. `factorize` tells equal strings that are different objects: it takes longer."""
    objects = array._ndarray
    size = objects.size
    if size < state.threshold or objects.ndim != 1 or not objects.flags.c_contiguous or not size:
        return None
    step = max(1, size // _SAMPLE)
    addresses = np.ctypeslib.as_array((ctypes.c_int64 * size).from_address(objects.ctypes.data))
    some = addresses[::step]
    if _few(len(set(some.tolist())), some.size):
        codes, found = pd.factorize(addresses)
        if not _few(found.size, size):
            return None
        first = np.empty(found.size, np.intp)
        first[codes[::-1]] = np.arange(size - 1, -1, -1)
        return array.take(first), codes
    if factorize is None or not _few(len(set(objects[::step].tolist())), some.size):
        return None
    codes, values = factorize(array, use_na_sentinel=False)
    return (values, codes) if _few(len(values), size) else None


def _few(found: int, size: int) -> bool:
    return found * _SHARE <= size


def _pure(function: Any) -> bool:
    """Whether a function that pandas applies to each string has nothing of the program in it."""
    cells = getattr(function, "__closure__", None) or ()
    values = (*(cell.cell_contents for cell in cells), *(getattr(function, "__defaults__", None) or ()))
    return all(isinstance(each, _PURE) for each in values)


def _told(name: str, began: float, size: int) -> None:
    frame: Any = sys._getframe(2)
    while frame is not None and not is_program(frame):
        frame = frame.f_back
    if frame is not None:
        PROFILE.add((frame.f_code, frame.f_lasti), name, "distinct", "distinct", time.perf_counter() - began, size * 8)


def _mapped(original: Any, factorize: Any) -> Any:
    @passed_by
    @functools.wraps(original)
    def apply(self: Any, f: Any, *args: Any, **options: Any) -> Any:
        dtype = options.get("dtype", args[1] if len(args) > 1 else None)
        of_objects = dtype is not None and np.dtype(object) == dtype  # lists of a row belong to that row
        began = time.perf_counter()
        found = None if of_objects or not _pure(f) else distinct(self, factorize)
        if found is None:
            return original(self, f, *args, **options)
        values, codes = found
        result = original(values, f, *args, **options).take(codes)
        _told("str", began, len(self))
        return result

    return apply


def _compared(original: Any) -> Any:
    @passed_by
    @functools.wraps(original)
    def compare(self: Any, other: Any, op: Any) -> Any:
        found = None
        began = time.perf_counter()
        if type(other) is str and op.__name__ in _COMPARISONS:
            found = distinct(self, None)
        if found is None:
            return original(self, other, op)
        values, codes = found
        result = original(values, other, op).take(codes)
        _told(op.__name__, began, len(self))
        return result

    return compare


def _factorized(original: Any) -> Any:
    @passed_by
    @functools.wraps(original)
    def factorize(self: Any, use_na_sentinel: bool = True) -> Any:
        began = time.perf_counter()
        found = distinct(self, None)
        if found is None:
            return original(self, use_na_sentinel=use_na_sentinel)
        values, codes = found
        of_values, uniques = original(values, use_na_sentinel=use_na_sentinel)
        result = of_values.take(codes), uniques
        _told("factorize", began, len(self))
        return result

    return factorize


def _unique(original: Any) -> Any:
    @passed_by
    @functools.wraps(original)
    def unique(self: Any) -> Any:
        found = distinct(self, None)
        return original(self if found is None else found[0])

    return unique


def install() -> Callable[[], None]:
    """Wrap the methods of pandas' string arrays; answers what takes the wrappers out."""
    methods = vars(StringArray)
    factorize = StringArray.factorize
    wrapped = {
        "_str_map": lambda original: _mapped(original, factorize),
        "_cmp_method": _compared,
        "factorize": _factorized,
        "unique": _unique,
    }
    own = {name: methods[name] for name in wrapped if name in methods}
    originals = {name: getattr(StringArray, name) for name in wrapped if hasattr(StringArray, name)}
    for name, original in originals.items():
        setattr(StringArray, name, wrapped[name](original))

    def undo() -> None:
        for name in originals:
            if name in own:
                setattr(StringArray, name, own[name])
            else:
                delattr(StringArray, name)

    return undo
