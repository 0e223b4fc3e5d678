"""Captured arrays that a program gives to pandas: it stores plain ones, which its compiled code takes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from pandas.core import construction

from shoal.offload.arrays.lazy import Lazy
from shoal.offload.arrays.tracked import Guarded, Tracked, memory, plain

_CAPTURED = frozenset((Lazy, Tracked, Guarded))

_NAME = "sanitize_array"
_CONVERTING = ("array", "to_datetime", "to_timedelta")
"""Functions of pandas that give their argument to its compiled code, or keep it."""


def _plainly(original: Callable[..., Any], array: Any, *args: Any, **options: Any) -> Any:
    """Call with the plain array. Where the result may share its memory, writes into that are not seen from now on."""
    own = array.look() if type(array) is Lazy else array
    memory.flush(own)
    bare = plain(own)
    result = original(bare, *args, **options)
    if type(result) is not np.ndarray or np.may_share_memory(result, bare):
        memory.escape(own)
    return result


def _stored(original: Any) -> Any:
    """In place of a function whose first argument may be an array."""

    @passed_by
    @functools.wraps(original)
    def convert(*args: Any, **options: Any) -> Any:
        if args and type(args[0]) in _CAPTURED:
            return _plainly(original, *args, **options)
        return original(*args, **options)

    return convert


def _held(original: Any) -> Any:
    @passed_by
    @functools.wraps(original)
    def __init__(self: Any, values: Any, *args: Any, **options: Any) -> None:
        if type(values) in _CAPTURED:
            _plainly(functools.partial(original, self), values, *args, **options)
        else:
            original(self, values, *args, **options)

    return __init__


def install() -> Callable[[], None]:
    """Wrap where pandas takes arrays in; answers what takes the wrappers out."""
    original, wrapper = construction.sanitize_array, _stored(construction.sanitize_array)
    extension: Any = pd.arrays.NumpyExtensionArray
    constructor, functions = extension.__init__, {name: getattr(pd, name) for name in _CONVERTING}
    _exchange(original, wrapper)
    extension.__init__ = _held(constructor)
    for name, function in functions.items():
        setattr(pd, name, _stored(function))

    def undo() -> None:
        _exchange(wrapper, original)
        extension.__init__ = constructor
        for name, function in functions.items():
            setattr(pd, name, function)

    return undo


def _exchange(present: Any, wanted: Any) -> None:
    """In every module of pandas, each of which has a name of its own for the function."""
    for name, module in list(sys.modules.items()):
        if name.startswith("pandas.") and vars(module).get(_NAME) is present:
            setattr(module, _NAME, wanted)


F = TypeVar("F")


def passed_by(function: F) -> F:
    """The same function, whose frames count as those of pandas."""
    assert isinstance(function, FunctionType)
    function.__code__ = function.__code__.replace(co_filename=pd.__file__)
    return function
