"""Random array programs: the same steps are run with capture and without, and everything visible is compared."""

from __future__ import annotations

import operator
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

DTYPES = ("f8", "f8", "f4", "i8", "i4", "u1", "i1", "?", "c16", "f2")
SHAPES = ((5,), (3, 5), (3, 5), (2, 3, 5), (4,))
SCALARS = (2, 0, -1, 3.5, 0.5, True, 300, 1e300, np.float32(1.5), np.int8(3), np.float64("nan"), 2 + 1j)
BINARY: tuple[Callable[..., Any], ...] = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.lt, operator.ge, operator.eq, operator.ne, operator.and_, operator.or_, operator.xor, np.maximum,
    np.minimum, np.hypot, np.arctan2, np.copysign, np.logaddexp, np.left_shift,
)  # fmt: skip
UNARY: tuple[Callable[..., Any], ...] = (
    operator.neg, operator.pos, abs, operator.invert, np.sqrt, np.exp, np.log, np.sin, np.isnan, np.sign, np.floor,
    np.square, np.logical_not, np.real, np.angle,
)  # fmt: skip
IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.itruediv)  # NumPy leaves garbage where `**=` fails


def _message(warning: Warning | str) -> str:
    return str(warning).replace("greater", "less")


class Run:
    """One run of the program of a seed. `say` gets what the program can see."""

    def __init__(self, seed: int, length: int) -> None:
        self.rng, self.length = random.Random(seed), length
        self.draws = np.random.default_rng(seed)
        self.said: list[Any] = []
        self.arrays: list[Any] = []
        self.heard: set[str] = set()
        """Messages of warnings. A comparison that the other operand's class answers has the reflected name."""
        self.lost = False
        """Whether a result was dropped before anybody looked at it: its warnings may never come."""

    def run(self) -> list[Any]:
        for _ in range(3):
            self.create()
        for _ in range(self.length):
            step = self.rng.choice((
                self.create, self.binary, self.binary, self.binary, self.unary, self.unary, self.scalar, self.scalar,
                self.in_place, self.view, self.write, self.write, self.look, self.out, self.where, self.reduce,
                self.method, self.alias, self.forget,
            ))  # fmt: skip
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                try:
                    step()
                except (TypeError, ValueError, OverflowError, IndexError) as error:
                    self.said.append(
                        (type(error).__name__, "".join(sorted(str(error))))
                    )  # a subclass compares in its own order
            self.heard |= {_message(each.message) for each in heard if each.category is RuntimeWarning}
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            for each in self.arrays:
                self.say(each)
        self.heard |= {_message(each.message) for each in heard}
        self.said.append(self.draws.random())
        return self.said

    def say(self, value: Any) -> None:
        array = np.asarray(value)
        self.said.append((array.dtype.str, array.shape, array.flags.writeable, array.tobytes()))

    def pick(self) -> Any:
        return self.rng.choice(self.arrays)

    def add(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self.arrays.append(value)
        else:
            self.said.append(repr(value))

    def create(self) -> None:
        shape, dtype = self.rng.choice(SHAPES), np.dtype(self.rng.choice(DTYPES))
        values = self.draws.uniform(-4, 4, shape)
        if dtype.kind == "f" and self.rng.random() < 0.5:
            values.reshape(-1)[:4] = (np.nan, np.inf, -0.0, 5e-324)
        if dtype.kind in "u?":
            values = abs(values)
        made = np.zeros(shape, dtype)
        with np.errstate(all="ignore"):
            made[...] = values
        self.add(made)

    def binary(self) -> None:
        self.add(self.rng.choice(BINARY)(self.pick(), self.pick()))

    def scalar(self) -> None:
        pair = (self.pick(), self.rng.choice(SCALARS))
        self.add(self.rng.choice(BINARY)(*(pair if self.rng.random() < 0.7 else pair[::-1])))

    def unary(self) -> None:
        self.add(self.rng.choice(UNARY)(self.pick()))

    def in_place(self) -> None:
        position = self.rng.randrange(len(self.arrays))
        target, self.lost = self.arrays[position], True
        self.arrays[position] = self.rng.choice(IN_PLACE)(
            target, self.rng.choice((self.pick(), self.rng.choice(SCALARS)))
        )

    def view(self) -> None:
        array = self.pick()
        self.add(self.rng.choice((
            lambda: array[1:], lambda: array[::-1], lambda: array.T, lambda: array.reshape(-1),
            lambda: array[..., None], lambda: array[array == array], lambda: np.asarray(array),
            lambda: array.ravel(), lambda: array.view(np.ndarray), lambda: np.transpose(array), lambda: array.copy(),
            lambda: array.real,
        ))())  # fmt: skip

    def write(self) -> None:
        array, value = self.pick(), self.rng.choice((0, 1, self.pick()))
        key: Any = self.rng.choice((slice(None), slice(0, 1), Ellipsis, 0, slice(None, None, 2)))
        step = self.rng.choice(("set", "set", "fill", "sort", "copyto", "put", "flat", "overlap"))
        if step == "set":
            array[key] = value
        elif step == "fill":
            array.fill(3)
        elif step == "sort":
            array.sort()
        elif step == "copyto":
            np.copyto(array, value, casting="unsafe")
        elif step == "put":
            np.put(array, [0, 1], [7, 8])
        elif step == "flat":
            array.flat[1] = 2
        else:
            array[1:] += array[:-1]

    def look(self) -> None:
        array = self.pick()
        self.said.append(self.rng.choice((
            lambda: repr(array), lambda: str(array), lambda: repr(array.tolist()), lambda: bool(array.any()),
            lambda: len(array), lambda: array.dtype.str, lambda: array.shape, lambda: repr(array.flat[0]),
            lambda: array.size, lambda: isinstance(array, np.ndarray), lambda: array.ndim,
            lambda: [str(each) for each in array],
        ))())  # fmt: skip

    def out(self) -> None:
        first, second, target = self.pick(), self.pick(), self.pick()
        options = {"where": self.pick() != 0} if self.rng.random() < 0.2 else {}
        function = self.rng.choice((np.add, np.multiply, np.subtract))
        given = target[::-1] if self.rng.random() < 0.3 else target
        result = function(first, second, out=given, **options)
        assert result is given

    def where(self) -> None:
        self.add(np.where(self.pick() > 0, self.pick(), self.rng.choice((0.0, 1, self.pick()))))

    def reduce(self) -> None:
        array = self.pick()
        self.add(self.rng.choice((
            lambda: array.max(), lambda: np.min(array), lambda: array.sum(axis=0), lambda: np.add.accumulate(array),
            lambda: array.argmax(), lambda: np.cumsum(array), lambda: array.all(),
        ))())  # fmt: skip

    def method(self) -> None:
        array = self.pick()
        self.add(self.rng.choice((
            lambda: array.astype("f4"), lambda: array.clip(0, 1), lambda: np.concatenate([array, array]),
            lambda: array.conj(), lambda: np.clip(array, -1, 1), lambda: np.sort(array),
            lambda: np.zeros_like(array), lambda: array.round(), lambda: np.tile(array, 2),
            lambda: np.roll(array, 1), lambda: array.tobytes(), lambda: np.diff(array),
        ))())  # fmt: skip

    def alias(self) -> None:
        self.arrays.append(self.pick())

    def forget(self) -> None:
        if len(self.arrays) > 3:
            self.lost = True
            del self.arrays[self.rng.randrange(len(self.arrays))]
