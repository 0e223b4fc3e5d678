"""Ordinary arrays whose operations are seen."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.offload.arrays.exports import as_ndarray, become_plain
from shoal.offload.arrays.memory import Memory, base_of
from shoal.offload.arrays.results import KINDS
from shoal.offload.arrays.state import state

_SMALL_VIEWS = 32
"""Small views of one array between two operations that are captured, as a loop over rows makes, after which it is made
a plain one."""

_CHEAP, _MOST_CHEAP = 4, 64
"""Operations of whole numbers on one array that were not captured, after which it is made a plain one; and arrays that
are counted at a time."""


class _CountedMethod:
    def references(self) -> int:
        return sys.getrefcount(self)


def _references_of_self() -> int:
    counted = _CountedMethod()
    return counted.references()


ALONE = _references_of_self()
"""What an object's reference count is within its method, when one variable holds it."""

REFERENCED = (
    "cannot resize an array that references or is referenced\nby another array in this way.\n"
    "Use the np.resize function or refcheck=False"
)


class Tracked(np.ndarray[Any, Any]):
    """An ordinary array whose operations are seen."""

    __slots__ = ()

    def __array_finalize__(self, parent: Any) -> None:
        if isinstance(parent, Tracked) and memory.add_view(parent, self) >= _SMALL_VIEWS:
            memory.keep_live_views(id(memory.root(parent)))
            if self.size < state.threshold:
                memory.flush(parent)
                become_plain(parent)
                become_plain(self)

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

    def __reduce_ex__(self, protocol: Any) -> Any:
        return plain(self).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        return track(np.array(plain(self)))

    def view(self, *args: Any, **options: Any) -> Any:
        memory.flush(self)
        found = np.ndarray.view(self, *args, **options)
        if type(found) is np.ndarray:
            memory.expose(self)
        elif not isinstance(found, Tracked):
            memory.escape(self)  # a subclass holds this array, and not its root
        return found

    def __buffer__(self, flags: int) -> Any:
        return escaping(self).__buffer__(flags)

    @property
    def data(self) -> Any:
        return escaping(self).data

    @property
    def ctypes(self) -> Any:
        return escaping(self).ctypes

    @property
    def flat(self) -> Any:
        return escaping(self).flat

    @flat.setter
    def flat(self, value: Any) -> None:
        escaping(self).flat = value

    @property
    def __array_interface__(self) -> Any:
        return escaping(self).__array_interface__

    @property
    def __array_struct__(self) -> Any:
        return escaping(self).__array_struct__

    def __dlpack__(self, **options: Any) -> Any:
        return escaping(self).__dlpack__(**options)

    def resize(self, *shape: Any, refcheck: bool = True) -> None:
        """In place, though its memory is that of the root: the values move into memory of its own."""
        memory.flush(self)
        given = shape[0] if len(shape) == 1 else shape or None
        operator.index(refcheck)  # another type is refused, as by NumPy
        size = self.size if given is None else int(np.prod(given))
        owner = base_of(self)
        whole = type(owner) is np.ndarray and base_of(owner) is None and owner.size == self.size
        if size == self.size or not (whole or type(owner) is bytes):
            np.ndarray.resize(self, *shape, refcheck=refcheck)  # its own memory, another shape, or an error
            return
        if refcheck and sys.getrefcount(self) > ALONE:
            raise ValueError(REFERENCED)
        moved = plain(self).copy()
        moved.resize(given, refcheck=False)
        self.__setstate__(moved.__reduce__()[2])

    def __repr__(self) -> str:
        return repr(plain(self))

    def __str__(self) -> str:
        return str(plain(self))

    @property
    def base(self) -> Any:
        """As NumPy has it: the root that a tracked array stands for is not told."""
        found = np.ndarray.base.__get__(self)
        return None if type(found) is np.ndarray and found.base is None and found.size == self.size else found


def _fresh(name: str) -> Callable[..., Any]:
    """A method of arrays whose result has memory of its own."""

    def method(self: Any, *args: Any, **options: Any) -> Any:
        taken, named = strip(args), strip(options)
        own = plain(self)
        result = getattr(own, name)(*taken, **named)
        if result is own:
            return self
        for each, given in (*zip(args, taken, strict=True), *((options[key], named[key]) for key in options)):
            if result is given:
                return each  # the caller's own array, which was written
        return track(result)

    method.__name__ = name
    return method


for _name in (
    "__copy__", "copy", "astype", "flatten", "take", "repeat", "compress", "cumsum", "cumprod", "round", "dot",
    "choose", "trace", "argmax", "argmin",
):  # fmt: skip
    setattr(Tracked, _name, _fresh(_name))


def escaping(array: Any) -> Any:
    """The plain array, for a reader whose own writes are not seen."""
    memory.flush(array)
    memory.escape(array)
    return plain(array)


class Guarded(Tracked):
    """A tracked array that pending results read: they are computed before it is written, or seen past this class."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        memory.flush(self)
        np.ndarray.__setitem__(self, strip(key), strip(value))

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "__class__":
            memory.flush(self)
        np.ndarray.__setattr__(self, name, value)


def _flushing(name: str) -> Any:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        memory.flush(self)
        return getattr(np.ndarray, name)(self, *strip(args), **strip(options))

    method.__name__ = name
    return method


for _name in (
    "sort", "fill", "partition", "put", "byteswap", "setfield", "setflags", "getfield", "__setstate__",
):  # fmt: skip
    setattr(Guarded, _name, _flushing(_name))

memory = Memory(Tracked, Guarded)
for _kind in (Tracked, Guarded):
    as_ndarray(_kind)


def plain(array: Any) -> Any:
    """The same memory as an array of the plain class."""
    return np.ndarray.view(array, np.ndarray)


def track(result: Any) -> Any:
    """A large result as a tracked array; everything else as it is. Its memory must be known to nobody else."""
    if type(result) is not np.ndarray or result.size < state.threshold:
        return result
    return result.view(Tracked) if result.base is None and result.dtype.char in KINDS else result


_cheap: dict[int, int] = {}


def calm(array: Any) -> None:
    """One more operation of whole numbers was not worth its capture: after a few, the array is made a plain one."""
    if type(array) is Tracked:
        key = id(array)
        count = _cheap[key] = _cheap.get(key, 0) + 1
        if count >= _CHEAP:
            become_plain(array)
        if count >= _CHEAP or len(_cheap) > _MOST_CHEAP:
            _cheap.clear()


def strip(value: Any) -> Any:
    """Captured arrays as plain ones that hold their values, also within tuples, lists and dictionaries."""
    kind = type(value)
    if kind is Tracked or kind is Guarded:
        if kind is Guarded:
            memory.flush(value)
        return plain(value)
    if kind in pending_classes:
        return plain(value.look())
    if kind is tuple:
        return tuple(map(strip, value))
    if kind is list:
        return list(map(strip, value)) if any(isinstance(each, np.ndarray | list | tuple) for each in value) else value
    if kind is dict:
        return {key: strip(each) for key, each in value.items()}
    return value


pending_classes: set[type] = set()
"""The class of pending results, which is made of this module's."""
