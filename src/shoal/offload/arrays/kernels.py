"""Whole programs as one compiled kernel: made by LLVM within milliseconds, and kept on disk.

A kernel says of each block whether a result is not finite; NumPy does such a block again, with its warnings. Where many
blocks are so, a kernel takes its place that tells faults from NaN and infinities in the inputs.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import platform
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.base.code_cache import CodeCache
from shoal.offload.arrays.functions import Roll
from shoal.offload.arrays.program import Block, Program
from shoal.offload.arrays.recipe import Recipe, along_last_axis, constants_of, recipe_of
from shoal.offload.trust import Trust, agree, special_values

if TYPE_CHECKING:
    from shoal.base.machine_code import LoadedCode

TOLERANCE = {"d": 1e-12, "f": 1e-5, "l": 0.0, "i": 0.0, "?": 0.0}
"""Relative, of a whole chain, and of the largest value on the way to a result."""

IMPORT_S, COMPILE_S = 0.12, 0.05
"""Seconds to import llvmlite, and to compile a kernel of a few operations and compare it."""

_SAMPLES = 2048
_ROW = 1024
"""Values that are added one after the other in a lane's own sum, at most: the error of a total grows with it."""

_OFTEN = 0.25
"""Share of faulty blocks from which the precise kernel is worth its checks."""


class Kernel:
    """Compiled code, and the layout of its arguments."""

    def __init__(self, recipe: Recipe, code: LoadedCode, lanes: int) -> None:
        from shoal.offload.arrays.kernel_text import ENTRY

        self.recipe, self.lanes, self._code = recipe, lanes, code
        self._run = code.function(ENTRY, ctypes.c_int64, ctypes.c_void_p)
        arrays = len(recipe.inputs) + len(recipe.outputs)
        self._size = 3 + 2 * arrays + len(recipe.constants)
        self._kind = ctypes.c_double if recipe.steps[-1].char == "d" else ctypes.c_float

    def call(
        self, rows: int, count: int, arrays: Sequence[tuple[int, int]], constants: Sequence[int], totals: list[float]
    ) -> bool:
        """Whether a result was not finite. `arrays` are (address, bytes from row to row); `totals` gets the sum."""
        words = (ctypes.c_int64 * self._size)(rows, count, *(word for each in arrays for word in each), *constants)
        if self.recipe.total:
            lanes = (self._kind * self.lanes)()
            words[self._size - 1] = ctypes.addressof(lanes)
            faulty = self._run(ctypes.addressof(words))
            totals.extend(lanes)
        else:
            faulty = self._run(ctypes.addressof(words))
        return bool(faulty)


def _layout(array: np.ndarray, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """The address, and the bytes from element to element along each axis of the result; 0 where it is repeated."""
    strides = tuple(stride if length > 1 else 0 for length, stride in zip(array.shape, array.strides, strict=True))
    return array.__array_interface__["data"][0], (0,) * (len(shape) - array.ndim) + strides


def _offset(at: Sequence[int], strides: Sequence[int]) -> int:
    return sum(i * stride for i, stride in zip(at, strides, strict=True))


class BoundKernel:
    """A kernel with the arrays of one evaluation."""

    def __init__(self, kernel: Kernel, constants: bytes) -> None:
        self.kernel = kernel
        self._constants = np.frombuffer(constants, np.int64).tolist()
        self._layout: list[tuple[int, tuple[int, ...]]] = []
        self._rolled: list[tuple[int, np.ndarray, Roll]] = []

    def bind(self, arrays: Sequence[np.ndarray], shape: tuple[int, ...], rolls: Mapping[int, Roll]) -> None:
        """`arrays` are the inputs and the outputs; they must live as long as the evaluation."""
        self._layout = [_layout(each, shape) for each in arrays]
        self._rolled = [(number, arrays[number], roll) for number, roll in rolls.items()]

    def run(self, block: Block) -> tuple[bool, float]:
        """One block: whether a result was not finite, and the total."""
        totals: list[float] = []
        faulty = False
        starts = [each.start for each in block]
        lengths = [each.stop - each.start for each in block]
        layout = self._layout
        if self._rolled:
            layout = list(layout)
            parts = [(number, roll.part(array, block)) for number, array, roll in self._rolled]
            for number, each in parts:
                base, strides = _layout(each, tuple(lengths))
                layout[number] = (base - _offset(starts, strides), strides)
        if len(block) == 1:
            for rows, first, length in self._cuts(lengths[0]):
                words = [(base + (starts[0] + first) * own[0], length * own[0]) for base, own in layout]
                faulty |= self.kernel.call(rows, length, words, self._constants, totals)
        else:
            for lead in np.ndindex(*lengths[:-2]):
                at = [start + more for start, more in zip(starts, (*lead, 0, 0), strict=True)]
                words = [(base + _offset(at, own), own[-2]) for base, own in layout]
                faulty |= self.kernel.call(lengths[-2], lengths[-1], words, self._constants, totals)
        return faulty, float(np.add.reduce(np.array(totals))) if totals else 0.0

    def _cuts(self, count: int) -> list[tuple[int, int, int]]:
        """(rows, first element, elements of a row): a sum is made of sums of rows."""
        if not self.kernel.recipe.total or count < 2 * _ROW:
            return [(1, 0, count)]
        rows = count // _ROW - 1
        return [(rows, 0, _ROW), (1, rows * _ROW, count - rows * _ROW)]


class Kernels:
    """The kernels of this process, and those on disk."""

    def __init__(self, folder: Path, trust: Trust, *, allowed: bool, strict: bool) -> None:
        self._trust, self._strict = trust, strict
        self.allowed = allowed and platform.machine() in ("x86_64", "aarch64") and _installed()
        self._cache = CodeCache(folder / "kernels")
        self._recipes: dict[Any, Recipe | None] = {}
        self._made: dict[Recipe, Kernel | None] = {}
        self._making: set[Recipe] = set()
        self._lock = threading.Lock()
        self._precise: set[Recipe] = set()

    def recipe(self, program: Program, *, total: bool) -> Recipe | None:
        """What a kernel of the program does; None where there can be none."""
        if not self.allowed:
            return None
        along = tuple(along_last_axis(each, program.shape) for each in program.inputs)
        key = (program.key, total, along)
        if key not in self._recipes:
            if len(self._recipes) > 4096:
                self._recipes.clear()
            found = recipe_of(program, along, total=total)
            self._recipes[key] = None if found is None or (self._strict and not found.exact) else found
        recipe = self._recipes[key]
        return replace(recipe, precise=True) if recipe in self._precise and recipe is not None else recipe

    def price(self, recipe: Recipe) -> float:
        """Seconds to make it ready; 0 for one that is, infinity for one that cannot be made."""
        if recipe in self._made:
            return 0.0 if self._made[recipe] is not None else float("inf")
        return COMPILE_S + (0.0 if "llvmlite" in sys.modules else IMPORT_S)

    def start(self, recipe: Recipe) -> None:
        """Make it in the background."""
        with self._lock:
            if self._making or recipe in self._made:
                return
            self._making.add(recipe)
        threading.Thread(target=self._finish, args=(recipe,), daemon=True).start()

    def _finish(self, recipe: Recipe) -> None:
        try:
            self.make(recipe)
        finally:
            self._making.discard(recipe)

    def make(self, recipe: Recipe) -> None:
        """Compile and compare it."""
        try:
            kernel = self._load(recipe)
        except Exception:  # whatever LLVM says: blocks do the work
            kernel = None
        if kernel is not None and not self._equal(kernel):
            kernel = None
        self._made[recipe] = kernel

    def bound(self, recipe: Recipe, program: Program) -> BoundKernel | None:
        """The kernel for one evaluation; None where it is not ready, or does not take these constants."""
        kernel = self._made.get(recipe)
        if kernel is None or program.shape[-1] < kernel.lanes:
            return None
        constants = constants_of(program, recipe)
        return None if constants is None else BoundKernel(kernel, constants)

    def observe(self, recipe: Recipe, faulty: int, pieces: int) -> None:
        """A kernel whose faults are often only those of the inputs gives its place to the precise one."""
        if faulty > _OFTEN * pieces:
            if recipe.precise:
                self._made[recipe] = None
            else:
                self._precise.add(recipe)

    def _load(self, recipe: Recipe) -> Kernel | None:
        import llvmlite.binding as llvm

        from shoal.base.machine_code import VERSION, LoadedCode, machine_for, optimised
        from shoal.offload.arrays.kernel_text import functions_of, lanes_of, module_text
        from shoal.offload.arrays.recipe import address

        features = llvm.get_host_cpu_features()
        bits = 512 if features.get("avx512f") else 256 if features.get("avx2") else 128
        lanes = lanes_of(recipe, bits)
        functions = functions_of(recipe, lanes)
        if functions is None:
            return None
        for name in functions:
            llvm.add_symbol(name, address(name))
        triple, cpu, flags = llvm.get_process_triple(), llvm.get_host_cpu_name(), features.flatten()
        text = f'target triple = "{triple}"\n{module_text(recipe, bits)}'
        if bits == 512:
            flags += ",-prefer-256-bit"

        def compiled() -> bytes:
            machine = machine_for(triple, cpu, flags)
            return bytes(machine.emit_object(optimised(text, machine)))

        key = hashlib.sha256("\0".join((text, cpu, flags, VERSION)).encode()).hexdigest()
        code = LoadedCode(self._cache.get(key, compiled), triple, machine_for(triple, cpu, flags))
        return Kernel(recipe, code, lanes)

    def _equal(self, kernel: Kernel) -> bool:
        """Whether it gives what NumPy gives, for special values and random ones."""
        recipe = kernel.recipe
        inputs = [sample(char, number, special=not recipe.total) for number, (char, _) in enumerate(recipe.inputs)]
        constants = [_constant(char, number) for number, char in enumerate(recipe.constants)]
        count = _SAMPLES
        given = [each if along else each[:1] for each, (_, along) in zip(inputs, recipe.inputs, strict=True)]
        with np.errstate(all="ignore"):
            expected, largest = _reference(recipe, given, constants)
        outputs = [np.empty(count, recipe.steps[number].char) for number in recipe.outputs]
        words = np.zeros(len(constants), np.int64)
        for number, value in enumerate(constants):
            words[number : number + 1].view(np.int8)[: value.itemsize] = np.frombuffer(value.tobytes(), np.int8)
        bound = BoundKernel(kernel, words.tobytes())
        bound.bind([*given, *outputs], (count,), {})
        _, total = bound.run((slice(0, count),))
        good = all(
            agree(np.broadcast_to(expected[number], count), found, TOLERANCE[found.dtype.char], largest)
            for number, found in zip(recipe.outputs, outputs, strict=True)
        )
        if recipe.total:
            last = np.broadcast_to(expected[-1], count).astype(float)
            scale = float(np.abs(last).sum() + np.max(largest) * count)
            good &= abs(total - float(last.sum())) <= TOLERANCE[recipe.steps[-1].char] * scale
        key = ("compiled", "-".join(dict.fromkeys(step.name for step in recipe.steps)), f"{hash(recipe) & 0xFFFF:x}")
        self._trust.settle(key, good)
        return good


def _installed() -> bool:
    return importlib.util.find_spec("llvmlite") is not None


def sample(char: str, seed: int, *, special: bool) -> np.ndarray:
    """Random values, and special ones, which meet others in each input."""
    rng = np.random.Generator(np.random.PCG64(seed))
    if char == "?":
        return rng.random(_SAMPLES) < 0.5
    if char in "li":
        return rng.integers(-1000, 1000, _SAMPLES).astype(char)
    values = rng.random(_SAMPLES) * 3
    if special:
        some = np.repeat(special_values(char), 16)
        values[: some.size] = rng.permutation(some)
    return values.astype(char)


def _constant(char: str, number: int) -> Any:
    return np.dtype(char).type((0.5, 2, 1.25, 3)[number % 4])


def _reference(recipe: Recipe, inputs: list[np.ndarray], constants: list[Any]) -> tuple[list[Any], Any]:
    """What NumPy and SciPy give for each step, and for each element the largest finite value on the way."""
    from scipy import special

    found: list[Any] = []
    sources: dict[str, Sequence[Any]] = {"input": inputs, "step": found, "constant": constants}
    largest: Any = 0.0
    for step in recipe.steps:
        function: Callable[..., Any] = getattr(np, step.name, None) or getattr(special, step.name)
        values = [
            np.asarray(sources[each.source][each.number]).astype(char)
            for each, char in zip(step.arguments, step.loop, strict=True)
        ]
        result = function(*values)
        found.append(result)
        if step.char in "df":
            largest = np.maximum(largest, np.where(np.isfinite(result), np.abs(result), 0.0))
    return found, largest
