"""The operators of captured arrays."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np

from shoal.offload.arrays.lazy import DEEPEST, MOST_CONSUMERS, Filled, Lazy, sequence
from shoal.offload.arrays.results import POWERS, result_dtype
from shoal.offload.arrays.state import error_state, is_program, own_files, state
from shoal.offload.arrays.tracked import Guarded, Tracked, plain, strip, track
from shoal.offload.profile import PROFILE


class _CountedOperator:
    def __iadd__(self, other: Any) -> Any:
        return sys.getrefcount(self)


def _references_of_an_operand() -> int:
    """What an object's reference count is within its in-place operator, when one variable holds it."""
    counted = _CountedOperator()
    counted += 1
    return counted  # type: ignore[return-value]


_ALONE = _references_of_an_operand()


def _at_once(name: str, ufunc: Any, self: Any, inputs: tuple[Any, ...], other: Any, frame: Any) -> Any:
    """The operator for operands that are not captured. Another class of operand, which may be one of arrays with
    operators of its own, gets a plain array beside it: Python asks whose turn it is."""
    kind = type(other)
    if other is None or kind in _CAPTURED or isinstance(other, np.number | np.bool | int | float | complex):
        return state.eager(ufunc, "__call__", inputs, {}, frame)
    if kind is np.ndarray and other.dtype.kind in "biufc":
        return state.eager(ufunc, "__call__", inputs, {}, frame)
    PROFILE.add((frame.f_code, frame.f_lasti), ufunc.__name__, "plain", "foreign-operand", 0.0)
    array = strip(self)
    operands = (array, other) if inputs[0] is self else (other, array)
    act = divmod if name == "divmod" else getattr(operator, f"__{name}__")
    result = act(*operands)
    return track(result) if is_program(frame) else result


_CAPTURED = (Lazy, Tracked, Guarded)


def _forward(name: str, ufunc: Any) -> Callable[[Any, Any], Any]:
    def forward(self: Any, other: Any) -> Any:
        frame = sys._getframe(1)
        result = state.capture(ufunc, (self, other), frame)
        return _at_once(name, ufunc, self, (self, other), other, frame) if result is None else result

    return forward


def _backward(name: str, ufunc: Any) -> Callable[[Any, Any], Any]:
    def backward(self: Any, other: Any) -> Any:
        frame = sys._getframe(1)
        result = state.capture(ufunc, (other, self), frame)
        return _at_once(name, ufunc, self, (other, self), other, frame) if result is None else result

    return backward


def _binary(name: str, ufunc: Any) -> None:
    known: dict[type, dict[int, np.dtype[Any]]] = {float: {}, int: {}}
    """The type of the result, by the class of a number and the identity of the pending one's type: most operations of a
    program go on with a chain. The types are NumPy's own, which stay."""
    of_floats, of_ints = known[float], known[int]

    def forward(self: Lazy, other: Any) -> Any:
        frame = sys._getframe(1)
        kind = type(other)
        code, consumers = frame.f_code, self.consumers
        dtype = (of_floats if kind is float else of_ints).get(id(self.dtype))
        if (
            dtype is None
            or (kind is not float and kind is not int)
            or self.value is not None
            or own_files.get(code.co_filename) is not True
            or error_state.get() is not state.ordinary
            or self.depth >= DEEPEST
            or len(consumers) >= MOST_CONSUMERS
            or not (-1e38 < other < 1e38 if kind is float else 0 <= other <= 127)
        ):
            if kind in known and self.dtype is np.dtype(self.dtype.char):
                found = result_dtype((ufunc, self.dtype, kind))
                if found is not None:
                    known[kind][id(self.dtype)] = found
            taken = state.capture(ufunc, (self, other), frame)
            return _at_once(name, ufunc, self, (self, other), other, frame) if taken is None else taken
        result: Any = Filled()
        result.ufunc = ufunc
        result.inputs = self, other
        result.shape = self.shape
        result.dtype = dtype
        result.value = None
        result.reduced = False
        result.consumers = []
        result.depth = self.depth + 1
        result.level = self.level
        result.site = code, frame.f_lasti, frame.f_globals
        result.sequence = next(sequence)
        result.__class__ = Lazy
        consumers.append(ref(result))
        return result

    def in_place(self: Lazy, other: Any) -> Any:
        if sys.getrefcount(self) <= _ALONE and self.value is None:
            result = state.capture(ufunc, (self, other), sys._getframe(1))
            if result is not None:
                if result.dtype == self.dtype and result.shape == self.shape:
                    return result
                del result
        value = self.compute()
        result = getattr(operator, f"i{name}")(value, other)
        return self if result is value else result

    setattr(Lazy, f"__{name}__", forward)
    setattr(Lazy, f"__i{name}__", in_place)


def _unary(name: str, ufunc: Any) -> None:
    def apply(self: Lazy) -> Any:
        result = state.capture(ufunc, (self,), sys._getframe(1))
        return getattr(self.compute(), f"__{name}__")() if result is None else result

    setattr(Lazy, f"__{name}__", apply)


def power(self: Any, other: Any) -> Any:
    frame = sys._getframe(1)
    kind = type(other)
    inputs: tuple[Any, ...] = (self,)
    ufunc: Any = None
    if (kind is int or kind is float) and self.dtype.kind in "fc":
        ufunc = POWERS.get(other)
    elif kind is int and other == 2 and self.dtype.kind in "iu":
        ufunc = np.square
    if ufunc is None:
        ufunc, inputs = np.power, (self, other)
    result = state.capture(ufunc, inputs, frame)
    return _at_once("pow", ufunc, self, inputs, other, frame) if result is None else result


def _looking(name: str) -> Callable[..., Any]:
    def method(self: Lazy, *args: Any) -> Any:
        return getattr(np.ndarray, name)(plain(self.look()), *strip(args))

    method.__name__ = name
    return method


_BINARY: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift,
}  # fmt: skip
_COMPARISONS: dict[str, Any] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_LIKE_BINARY: dict[str, Any] = {"matmul": np.matmul, "divmod": np.divmod}
_UNARY: dict[str, Any] = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}
_LOOKING = (
    "__bool__", "__int__", "__float__", "__complex__", "__index__", "__contains__", "__iter__", "__repr__", "__str__",
    "__format__", "__imatmul__", "__delitem__",
)  # fmt: skip


def add_operators() -> None:
    """Give captured arrays the operators of arrays. Those of NumPy would not let a subclass of `ndarray` go first."""
    lazy: Any = Lazy
    for name, ufunc in (*_BINARY.items(), *_LIKE_BINARY.items(), *_COMPARISONS.items()):
        for kind in (Tracked, Lazy):
            setattr(kind, f"__{name}__", _forward(name, ufunc))
            if name not in _COMPARISONS:
                setattr(kind, f"__r{name}__", _backward(name, ufunc))
    for name, ufunc in _BINARY.items():
        _binary(name, ufunc)
    for name, ufunc in _UNARY.items():
        _unary(name, ufunc)
    for name in _LOOKING:
        setattr(lazy, name, _looking(name))
    lazy.__pow__ = power
    setattr(Tracked, "__pow__", power)  # noqa: B010 - its type has another
    lazy.__hash__ = None
