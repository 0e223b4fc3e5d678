"""Expressions of numeric and boolean Series, computed at the first look.

Everything in pandas reaches a Series' data through `_mgr`. In a pending Series that is a property, which computes, and
turns the object into an ordinary Series. What an expression reads is held by shallow copies: copy-on-write, as pandas
has it, keeps their values whatever is written into the original.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
import pandas as pd

from shoal.offload.arrays.capture import defer
from shoal.offload.arrays.chunks import Reducer
from shoal.offload.arrays.functions import where
from shoal.offload.arrays.lazy import Lazy
from shoal.offload.arrays.results import result_dtype
from shoal.offload.arrays.state import is_program, state
from shoal.offload.arrays.tracked import plain, strip
from shoal.offload.frames.entry import passed_by

_TYPES = "d?lq"
"""Double precision, booleans and 64-bit integers, as NumPy holds them."""

_DEEPEST = 64

_OPERATORS = {
    "__add__": (np.add, False), "__radd__": (np.add, True), "__sub__": (np.subtract, False),
    "__rsub__": (np.subtract, True), "__mul__": (np.multiply, False), "__rmul__": (np.multiply, True),
    "__truediv__": (np.divide, False), "__rtruediv__": (np.divide, True), "__lt__": (np.less, False),
    "__le__": (np.less_equal, False), "__gt__": (np.greater, False), "__ge__": (np.greater_equal, False),
    "__eq__": (np.equal, False), "__ne__": (np.not_equal, False), "__and__": (np.bitwise_and, False),
    "__or__": (np.bitwise_or, False),
}  # fmt: skip
"""The method, the function of NumPy, and whether the operands are swapped."""

_LOGICAL = {np.bitwise_and, np.bitwise_or}
_COMPARISONS = {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal}

_Parts = Callable[[Lazy, Reducer], "list[Any] | None"]


class PendingSeries(pd.Series):  # type: ignore[misc]
    """A Series whose values are not computed yet. It becomes an ordinary one at the first look."""

    _metadata: list[str] = []  # noqa: RUF012  (as pandas declares it)

    @property
    def _constructor(self) -> Any:
        return pd.Series

    @property
    def _mgr(self) -> Any:
        own = self.__dict__
        lazy = own.pop("_pending", None)
        if lazy is not None:
            values = plain(lazy.look())
            manager = pd.Series(values, index=own.pop("_labels"), copy=False)._mgr
            self.__class__ = pd.Series
            own["_mgr"] = manager
        return own["_mgr"]

    @_mgr.setter
    def _mgr(self, manager: Any) -> None:
        self.__dict__.pop("_pending", None)
        self.__dict__.pop("_labels", None)
        self.__class__ = pd.Series
        self.__dict__["_mgr"] = manager

    def __len__(self) -> int:
        return len(self.__dict__["_labels"])

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As an ordinary Series, which it is from this look on."""
        assert self._mgr is not None
        return pd.Series.__reduce_ex__(self, protocol)


def _pending(lazy: Lazy, labels: Any, name: Any) -> PendingSeries:
    made: Any = object.__new__(PendingSeries)
    made.__dict__.update(_pending=lazy, _labels=labels, _attrs={}, _name=name)
    made.__dict__["_flags"] = pd.Flags(made, allows_duplicate_labels=True)
    return made  # type: ignore[no-any-return]


def _taken(value: Any) -> tuple[Any, np.dtype[Any]] | None:
    """A Series as an operand: a pending result, or an array that copy-on-write protects, with its type."""
    if type(value) is PendingSeries:
        lazy = value.__dict__.get("_pending")
        if lazy is not None:
            if lazy.depth >= _DEEPEST:
                lazy.compute()
                return (plain(lazy.look()), lazy.dtype)
            return lazy, lazy.dtype
    if type(value) is not pd.Series or value.attrs or not value.flags.allows_duplicate_labels:
        return None
    kept = value.copy(deep=False)  # a reference to the block: who writes into the original now gets a copy
    array = kept._values
    if not isinstance(array, np.ndarray) or array.dtype.char not in _TYPES or array.dtype.byteorder == ">":
        return None
    return _Held.of(array, kept), array.dtype


class _Held(np.ndarray[Any, Any]):
    """An array with the Series that keeps pandas from writing into it."""

    series: Any

    @staticmethod
    def of(array: np.ndarray, series: Any) -> Any:
        made = array.view(_Held)
        made.series = series
        return made


def _labels(value: Any) -> Any:
    return value.__dict__["_labels"] if type(value) is PendingSeries else value.index


def _fits(one: Any, other: Any) -> bool:
    first, second = _labels(one), _labels(other)
    return first is second or (
        type(first) is pd.RangeIndex and type(second) is pd.RangeIndex and bool(first.equals(second))
        and first.name == second.name
    )  # fmt: skip


def _size(value: Any) -> int:
    return len(_labels(value))


def _is_series(value: Any) -> bool:
    return type(value) is PendingSeries or type(value) is pd.Series


def _expression(ufunc: Any, operands: tuple[Any, ...], frame: Any) -> Any:
    """The pending Series of an elementwise function; None where pandas must do it."""
    series = [each for each in operands if _is_series(each)]
    if _size(series[0]) < state.threshold or not is_program(frame):
        return None
    if any(not _fits(series[0], each) for each in series[1:]):
        return None
    inputs: list[Any] = []
    key: list[Any] = [ufunc]
    depth = 0
    for each in operands:
        if _is_series(each):
            taken = _taken(each)
            if taken is None:
                return None
            inputs.append(taken[0])
            key.append(taken[1])
            if type(taken[0]) is Lazy:
                depth = max(depth, taken[0].depth)
        elif type(each) is float or (type(each) is int and -(2**53) < each < 2**53):
            inputs.append(each)
            key.append(np.dtype("l") if type(each) is int else float)
        else:
            return None
    if not _same_as_numpy(ufunc, [each for each in key[1:] if isinstance(each, np.dtype)]):
        return None
    dtype = result_dtype(tuple(key))
    if dtype is None or dtype.char not in _TYPES:
        return None
    held = tuple(inputs)
    site = (frame.f_code, frame.f_lasti, None)
    lazy = defer(ufunc, held, (_size(series[0]),), dtype, site, depth + 1)
    for each in held:
        if type(each) is Lazy:
            each.consumers.append(ref(lazy))
    names = {_name(each) for each in series}
    return _pending(lazy, _labels(series[0]), names.pop() if len(names) == 1 else None)


def _name(series: Any) -> Any:
    return series.__dict__["_name"]


def _same_as_numpy(ufunc: Any, types: list[np.dtype[Any]]) -> bool:
    """Whether pandas does what NumPy does, for these types of elements."""
    kinds = {each.kind for each in types}
    if ufunc in _LOGICAL:
        return kinds == {"b"}
    return "b" not in kinds if ufunc is not where else True


def _wrapped(original: Any, ufunc: Any, swapped: bool) -> Any:
    @passed_by
    @functools.wraps(original)
    def method(self: Any, other: Any) -> Any:
        if (_is_series(self) and _size(self) >= state.threshold) and (type(other) in (int, float) or _is_series(other)):
            operands = (other, self) if swapped else (self, other)
            if hash_of_name(self) and (not _is_series(other) or hash_of_name(other)):
                found = _expression(ufunc, operands, sys._getframe(1))
                if found is not None:
                    return found
        return original(self, other)

    return method


def hash_of_name(series: Any) -> bool:
    """Whether the name is one that can be compared."""
    return series.__dict__.get("_name") is None or type(series.__dict__["_name"]) in (str, int)


def _choice(original: Any, where_true: bool) -> Any:
    """`mask` and `where` with a pending or plain condition and a number."""

    @passed_by
    @functools.wraps(original)
    def method(self: Any, cond: Any = None, other: Any = np.nan, **options: Any) -> Any:
        plainly = not options and type(other) in (float, int) and _is_series(cond) and _is_series(self)
        if plainly and _size(self) >= state.threshold and hash_of_name(self):
            taken, condition = _taken(self), _taken(cond)
            if taken is not None and condition is not None and taken[1].char == "d" and condition[1].char == "?":
                number = float(other)
                operands = (cond, self, number) if where_true else (cond, number, self)
                found = _expression(where, operands, sys._getframe(1))
                if found is not None:
                    found.__dict__["_name"] = _name(self)
                    return found
        return original(self, cond, other, **options) if cond is not None else original(self, **options)

    return method


def _reduction(original: Any, name: str, parts: _Parts) -> Any:
    """`sum` and `mean` without missing values, and without the Series itself."""
    reducer = Reducer(name, _sum_and_count, lambda total, size: (total, size))

    @passed_by
    @functools.wraps(original)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        lazy = self.__dict__.get("_pending") if type(self) is PendingSeries and not args and not options else None
        if lazy is not None and lazy.dtype.char == "d":
            found = parts(lazy, reducer)
            if found is not None:
                total = np.add.reduce(np.array([each[0] for each in found]))
                if name == "sum":
                    return total
                count = sum(each[1] for each in found)
                return total / count if count else np.float64(np.nan)
        return original(self, *args, **options)

    return method


def _sum_and_count(block: np.ndarray) -> tuple[Any, int]:
    with np.errstate(all="ignore"):
        total = np.add.reduce(block)
    if np.isnan(total):
        missing = np.isnan(block)
        return np.add.reduce(block, where=~missing), block.size - int(missing.sum())
    return total, block.size


def _constructor(original: Any) -> Any:
    """Frames and Series hold plain arrays: captured ones are computed first."""

    @passed_by
    @functools.wraps(original)
    def construct(self: Any, data: Any = None, *args: Any, **options: Any) -> None:
        if isinstance(data, np.ndarray | dict | list):
            data = strip(data)
        original(self, data, *args, **options)

    return construct


def copy_on_write() -> bool:
    """Whether pandas never changes what a shallow copy holds: always from 3.0 on, by an option before."""
    return int(pd.__version__.partition(".")[0]) >= 3 or bool(pd.options.mode.copy_on_write is True)


def install(parts: _Parts, *, strict: bool) -> Callable[[], None]:
    """Wrap the methods of `pd.Series`; answers what takes the wrappers out."""
    originals = {name: getattr(pd.Series, name) for name in (*_OPERATORS, "mask", "where", "sum", "mean")}
    own = {name for name in originals if name in vars(pd.Series)}
    for name, (ufunc, swapped) in _OPERATORS.items():
        setattr(pd.Series, name, _wrapped(originals[name], ufunc, swapped))
    pd.Series.mask = _choice(originals["mask"], False)
    pd.Series.where = _choice(originals["where"], True)
    constructors = [(kind, kind.__init__) for kind in (pd.Series, pd.DataFrame)]
    for kind, original in constructors:
        kind.__init__ = _constructor(original)
    if not strict:
        for name in ("sum", "mean"):
            setattr(pd.Series, name, _reduction(originals[name], name, parts))

    def undo() -> None:
        for kind, constructor in constructors:
            kind.__init__ = constructor
        for name, original in originals.items():
            if name in own:
                setattr(pd.Series, name, original)
            elif name in vars(pd.Series):
                delattr(pd.Series, name)

    return undo
