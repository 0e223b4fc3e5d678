"""Recipe of a compiled kernel: a program of array operations in single assignment form, without its arrays.

Equal recipes are one kernel: the values of constants, the size, and the addresses are arguments of its code.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shoal.offload.arrays.functions import where as where_function
from shoal.offload.arrays.program import CONSTANT, INPUT, Program

TYPES = {"d": 8, "f": 4, "l": 8, "i": 4, "?": 1}
"""Types of elements that kernels know, with their bytes."""

ARITHMETIC = frozenset(("add", "subtract", "multiply", "divide", "negative", "positive", "absolute", "square",
                        "reciprocal", "sqrt", "maximum", "minimum", "floor", "ceil", "trunc", "rint"))  # fmt: skip
COMPARISONS = frozenset(("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"))
LOGIC = frozenset(("logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or",
                   "bitwise_xor", "invert", "isnan", "isfinite", "isinf"))  # fmt: skip

_WORDS = {"d": "<d", "f": "<f4x", "l": "<q", "i": "<i4x", "?": "<?7x"}
"""How a constant of each type is laid into 64 bits."""

_INTEGERS = frozenset(("add", "subtract", "multiply", "negative", "square", "maximum", "minimum"))

_PROPAGATE = frozenset(("add", "subtract", "multiply", "negative", "positive", "absolute", "square", "sqrt", "log",
                        "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos", "sinh", "cosh",
                        "arccosh", "arcsinh", "cbrt"))  # fmt: skip
"""Of a NaN or an infinity they make another: a fault before them shows after them."""

_FAULTLESS = frozenset(("maximum", "minimum", "floor", "ceil", "trunc", "rint", "where", "erf", "erfc"))
"""They raise no floating point warning."""


@dataclass(frozen=True, slots=True)
class Argument:
    """`source` is "input", "step" or "constant", with its number; `char` is the type of the value there."""

    source: str
    number: int
    char: str


@dataclass(frozen=True, slots=True)
class Step:
    """`loop` has the types in which the operation takes its arguments, `char` that of its result. `checked`: a result
    that is not finite is a fault, which NumPy must be asked about. `silent`: the library that was called keeps silent
    about faults."""

    name: str
    loop: str
    char: str
    arguments: tuple[Argument, ...]
    checked: bool = False
    silent: bool = False


@dataclass(frozen=True)
class Recipe:
    """`inputs` are (type, whether it varies along the last axis); `outputs` the steps whose results are stored, `total`
    whether the last one is summed. `precise`: faults are told from NaN and infinities in the inputs."""

    inputs: tuple[tuple[str, bool], ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    constants: str
    total: bool = False
    precise: bool = False

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.inputs, self.steps, self.outputs, self.constants, self.total, self.precise))

    @cached_property
    def digest(self) -> str:
        """Equal in every process."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    @property
    def exact(self) -> bool:
        """Whether the results are NumPy's bit by bit: only operations that the processor rounds correctly."""
        return not self.total and all(step.name not in NAMES for step in self.steps)


def recipe_of(program: Program, along: Sequence[bool | None], *, total: bool) -> Recipe | None:
    """The recipe of a program; None where a kernel could differ from NumPy. `along` is of each input."""
    inputs = []
    for each, varies in zip(program.inputs, along, strict=True):
        if each.dtype.char not in TYPES or varies is None:
            return None
        inputs.append((each.dtype.char, varies))
    where: dict[tuple[int, Any], int] = {}
    steps: list[Step] = []
    constants: list[str] = []
    for one in program.operations:
        arguments: list[Argument] = []
        types: list[Any] = []
        for kind, value in one.arguments:
            if kind == CONSTANT:
                arguments.append(Argument("constant", 0, ""))
                types.append(value.dtype if isinstance(value, np.generic) else type(value))
            elif kind == INPUT:
                arguments.append(Argument("input", value, inputs[value][0]))
                types.append(program.inputs[value].dtype)
            else:
                number = where[kind, value]
                arguments.append(Argument("step", number, steps[number].char))
                types.append(np.dtype(steps[number].char))
        loop = _loop(one.ufunc, types, one.dtype)
        if loop is None or not _known(one.ufunc, loop, one.dtype.char):
            return None
        for position, argument in enumerate(arguments):
            if argument.source == "constant":
                arguments[position] = Argument("constant", len(constants), loop[position])
                constants.append(loop[position])
        where[one.target] = len(steps)
        steps.append(Step(one.ufunc.__name__, loop, one.dtype.char, tuple(arguments), silent=one.node.site[2] is None))
    stored = {id(node): number for number, node in enumerate(program.outputs)}
    outputs = sorted(
        (stored[id(one.node)], number) for number, one in enumerate(program.operations) if id(one.node) in stored
    )
    if total and steps[-1].char not in "df":
        return None
    kept = tuple(number for _, number in outputs)
    return Recipe(tuple(inputs), tuple(_checked(steps)), kept, "".join(constants), total)


def constants_of(program: Program, recipe: Recipe) -> bytes | None:
    """The values of the constants, eight bytes each; None where one is not finite or does not fit."""
    values = [value for one in program.operations for kind, value in one.arguments if kind == CONSTANT]
    words = []
    for char, value in zip(recipe.constants, values, strict=True):
        number = value.item() if isinstance(value, np.generic) else value
        if isinstance(number, complex) or not math.isfinite(number):
            return None
        try:
            words.append(struct.pack(_WORDS[char], number))
        except (struct.error, OverflowError):
            return None
    return b"".join(words)


def along_last_axis(array: np.ndarray, shape: Sequence[int]) -> bool | None:
    """Whether an input varies along the last axis of a result; None where its values there are not side by side."""
    if not array.dtype.isnative or not array.flags.aligned:
        return None
    if array.ndim == 0 or array.shape[-1] != shape[-1] or shape[-1] == 1:
        return False
    return True if array.strides[-1] == array.itemsize else None


def _loop(ufunc: Any, types: list[Any], result: np.dtype[Any]) -> str | None:
    """The types in which NumPy would take the arguments."""
    if not isinstance(ufunc, np.ufunc):  # `where`
        return f"?{result.char * 2}"
    given = [np.dtype("?") if each is bool else each for each in types]
    try:
        found = ufunc.resolve_dtypes((*given, None))
    except TypeError:
        return None
    if found[-1].char != result.char:
        return None
    return "".join(each.char for each in found[:-1])


def _genuine(ufunc: Any, name: str) -> bool:
    """Whether it is NumPy's or SciPy's function of this name: another library may have its own."""
    modules = (np, sys.modules.get("scipy.special"))
    return ufunc is where_function or any(getattr(each, name, None) is ufunc for each in modules)


def _known(ufunc: Any, loop: str, char: str) -> bool:
    name = ufunc.__name__
    if not set(loop + char) <= set(TYPES) or not _genuine(ufunc, name):
        return False
    kinds = {"f" if each in "df" else each for each in loop}
    if name in NAMES:
        return kinds == {"f"}
    if name in ARITHMETIC:
        return kinds == {"f"} or (kinds <= {"l", "i"} and name in _INTEGERS)
    if name in LOGIC:
        return char == "?" and ((name[:3] != "bit" and name != "invert") or kinds == {"?"})
    return name in COMPARISONS or name == "where"


def _checked(steps: list[Step]) -> list[Step]:
    """The steps with their checks: as few as show every fault."""
    covered: set[int] = set()
    found = list(steps)
    readers: dict[int, list[int]] = {}
    for number, step in enumerate(steps):
        for each in step.arguments:
            if each.source == "step":
                readers.setdefault(each.number, []).append(number)
    for number in reversed(range(len(steps))):
        step = steps[number]
        if step.silent or step.char not in "df" or step.name in _FAULTLESS:
            continue
        if any(reader in covered and steps[reader].name in _PROPAGATE for reader in readers.get(number, ())):
            covered.add(number)
            continue
        covered.add(number)
        found[number] = Step(step.name, step.loop, step.char, step.arguments, checked=True)
    return found


NAMES: Mapping[str, str] = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "cbrt": "cbrt",
    "erf": "erf", "erfc": "erfc", "power": "pow", "arctan2": "atan2", "hypot": "hypot",
}  # fmt: skip
"""NumPy's and SciPy's names, and those of C."""

_REGISTERS = {128: "b", 256: "d", 512: "e"}


def symbol(name: str, char: str, lanes: int) -> str:
    """The name of a function for this number of values of a type; empty where the ABI has no register of that size."""
    register = _REGISTERS.get(lanes * (64 if char == "d" else 32))
    if register is None:
        return ""
    arguments = "vv" if name in ("power", "arctan2", "hypot") else "v"
    return f"_ZGV{register}N{lanes}{arguments}_{NAMES[name]}{'f' if char == 'f' else ''}"


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libmvec.so.1")
    except OSError:
        return None


@functools.cache
def address(name: str) -> int:
    """Where a function is in this process; 0 where the library does not have it."""
    library = _library()
    if not name or library is None:
        return 0
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0
