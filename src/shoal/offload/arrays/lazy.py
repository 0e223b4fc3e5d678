"""Results that are computed when somebody looks at them."""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any
from weakref import ref

import numpy as np

from shoal.offload.arrays.exports import watch_buffers
from shoal.offload.arrays.state import state
from shoal.offload.arrays.tracked import (
    ALONE,
    REFERENCED,
    Guarded,
    Tracked,
    escaping,
    memory,
    pending_classes,
    plain,
    strip,
    track,
)

Site = tuple[CodeType, int, "dict[str, Any] | None"]
"""The line of a call: its code, the position in it, and the module, whose warnings are counted by line; None where the
library that was called keeps silent about floating point errors."""

DEEPEST = 64
"""Operations in a chain before it is computed: a loop that nobody looks into needs no memory that grows."""

MOST_CONSUMERS = 256

sequence = itertools.count()


class _Fields:
    """What a pending result is made of."""

    __slots__ = (
        "__weakref__",
        "consumers",
        "depth",
        "dtype",
        "inputs",
        "level",
        "reduced",
        "sequence",
        "shape",
        "site",
        "ufunc",
        "value",
    )

    ufunc: Any
    inputs: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    value: Any
    consumers: list[ref[Lazy]]
    depth: int
    level: int
    """Rolled arrays one after the other on the way to it, each of which must be stored before the next is read."""
    reduced: bool
    site: Site
    sequence: int


class Filled(_Fields):
    """A pending result while its fields are set: an ordinary class, which takes a tenth of the time. Its class is
    changed to `Lazy` at once."""

    __slots__ = ()


class Lazy(_Fields):
    """The result of one elementwise operation, computed at the first look."""

    __slots__ = ()

    @property
    def pending(self) -> bool:
        return self.value is None

    def compute(self) -> Any:
        """The tracked array of its values."""
        if self.value is None:
            state.compute(self)
        return self.value

    def look(self) -> Any:
        """Its values for a reader who may keep them and write into them: nothing pending reads them later."""
        value = self.compute()
        memory.flush(value)
        return value

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return np.ndarray

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        frame = sys._getframe(1)
        if method == "__call__" and not options:
            result = state.capture(ufunc, inputs, frame)
            if result is not None:
                return result
        else:
            state.why = "options"
        return state.eager(ufunc, method, inputs, options, frame)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return state.call(func, types, args, kwargs, sys._getframe(1))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(plain(self.look()), dtype=dtype, copy=copy)

    def __buffer__(self, flags: int) -> Any:
        return escaping(self.compute()).__buffer__(flags)

    @property
    def __array_interface__(self) -> Any:
        return escaping(self.compute()).__array_interface__

    @property
    def __array_struct__(self) -> Any:
        return escaping(self.compute()).__array_struct__

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compute(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        """The program changes the array: its own fields are filled by `fields`."""
        value_array = self.compute()
        setattr(value_array, name, value)
        fields["shape"](self, value_array.shape)
        fields["dtype"](self, value_array.dtype)

    def __getitem__(self, key: Any) -> Any:
        return self.compute()[strip(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.compute()[strip(key)] = strip(value)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = 1
        for each in self.shape:
            size *= each
        return size

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __reduce_ex__(self, protocol: Any) -> Any:
        return plain(self.look()).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        return track(np.array(plain(self.look())))

    def copy(self, order: str = "C") -> Any:
        return self.compute().copy(order)

    def resize(self, *shape: Any, refcheck: bool = True) -> None:
        value = self.look()
        given = shape[0] if len(shape) == 1 else shape or None
        operator.index(refcheck)
        grows = given is not None and int(np.prod(given)) != self.size
        if grows and refcheck and (sys.getrefcount(self) > ALONE or sys.getrefcount(value) > ALONE):
            raise ValueError(REFERENCED)
        value.resize(*shape, refcheck=False)
        fields["shape"](self, value.shape)

    def _reduction(self, name: str, args: Any, options: Any) -> Any:
        if self.value is None and not args and all(each is None for each in options.values()):
            result = state.reduce(self, name)
            if result is not None:
                return result
        return getattr(self.compute(), name)(*args, **options)

    def sum(self, *args: Any, **options: Any) -> Any:
        return self._reduction("sum", args, options)

    def mean(self, *args: Any, **options: Any) -> Any:
        return self._reduction("mean", args, options)

    def min(self, *args: Any, **options: Any) -> Any:
        return self._reduction("min", args, options)

    def max(self, *args: Any, **options: Any) -> Any:
        return self._reduction("max", args, options)


fields: dict[str, Callable[[Any, Any], None]] = {
    name: getattr(Lazy, name).__set__ for name in _Fields.__slots__ if name != "__weakref__"
}
"""Sets a field of a pending result."""

pending_classes.add(Lazy)


def _exported(array: Any) -> Any:
    if type(array) is Lazy:
        return escaping(array.compute())
    escaping(array)
    return array


watch_buffers(_exported, Tracked, Guarded, Lazy)
