"""NumPy in threads, by blocks that fit into a core's cache: the split and merge of Mozart (SOSP'19)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from shoal.offload.arrays.functions import Roll
from shoal.offload.arrays.program import CONSTANT, INPUT, SCRATCH, Block, Program, blocks, part
from shoal.offload.arrays.residents import elements_of
from shoal.offload.arrays.threads import THREADS

Function = Callable[..., Any]
Fault = tuple[int, str]
"""The number of an operation, and what NumPy's warning says of it: "divide by zero"."""

_local = threading.local()


class BlockKernel(Protocol):
    """Does whole blocks of a program: compiled code, or a device."""

    def bind(self, arrays: Sequence[np.ndarray], shape: tuple[int, ...], rolls: Mapping[int, Roll]) -> None:
        """`arrays` are the inputs and the outputs; they must live as long as the evaluation."""
        ...

    def run(self, block: Block) -> tuple[bool, float]:
        """One block: whether NumPy must do it, and the total where one is wanted."""
        ...


@dataclass(frozen=True, slots=True)
class Reducer:
    """What is made of each block of a result that is not stored: `of_block` from its values, `of_total` from their sum
    and number, where the sum is all that counts."""

    name: str
    of_block: Callable[[np.ndarray], Any]
    of_total: Callable[[float, int], Any] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The faults of an evaluation, the reducer's results, and how many blocks NumPy did after a kernel."""

    faults: set[Fault]
    parts: list[Any]
    again: int
    pieces: int


@dataclass(frozen=True, slots=True)
class Chunks:
    """How a program is cut. One thread and one block of everything is what plain NumPy does."""

    threads: int
    elements: int

    def run(
        self,
        program: Program,
        outputs: list[np.ndarray],
        replaced: Mapping[Any, Function],
        reducer: Reducer | None = None,
        kernel: BlockKernel | None = None,
    ) -> Outcome:
        """Fill the outputs. `replaced` has functions to call in place of ufuncs; a kernel does a whole block, and NumPy
        those in which a result is not finite. The reducer is applied to each block of the last operation; its results
        come in the order of the blocks."""
        inputs = program.inputs
        shape = program.cut_shape
        if shape != program.shape:
            inputs = [each.reshape(-1) for each in inputs]
            outputs = [each.reshape(-1) for each in outputs]
        pieces = list(blocks(shape, self.elements))
        found: set[Fault] = set()
        partial: list[Any] = [None] * len(pieces)
        again: list[int] = []
        steps = [(replaced.get(one.ufunc, one.ufunc), one.arguments, one.target) for one in program.operations]
        if kernel is not None:
            kernel.bind([*inputs, *outputs], shape, program.rolls)

        of_total = None if reducer is None else reducer.of_total

        def work(number: int) -> None:
            block = pieces[number]
            if kernel is not None:
                faulty, total = kernel.run(block)
                if not faulty and not math.isnan(total):
                    if of_total is not None:
                        partial[number] = of_total(total, elements_of(block))
                    return
                again.append(number)
            taken = [part(each, block, program.rolls.get(i)) for i, each in enumerate(inputs)]
            last = _one(block, steps, taken, outputs, program.scratch, self.elements, found)
            if reducer is not None:
                partial[number] = reducer.of_block(last)

        THREADS.share(work, range(len(pieces)), min(self.threads, len(pieces)))
        return Outcome(found, partial, len(again), len(pieces))

    def run_one(self, ufunc: Any, inputs: tuple[Any, ...], target: np.ndarray, faults: set[str]) -> None:
        """One operation into an array of the program. Where an error ends it, blocks of the target are written and
        others are not, as in plain NumPy."""

        def work(block: Block) -> None:
            values = [part(each, block) if type(each) is np.ndarray else each for each in inputs]
            with np.errstate(divide="call", over="call", invalid="call", call=lambda kind, _: faults.add(kind)):
                ufunc(*values, out=target[block])

        pieces = list(blocks(target.shape, self.elements))
        THREADS.share(work, pieces, min(self.threads, len(pieces)))


def _one(
    block: Block,
    steps: list[tuple[Function, tuple[tuple[int, Any], ...], tuple[int, int]]],
    taken: list[np.ndarray],
    outputs: list[np.ndarray],
    scratch: list[np.dtype[Any]],
    elements: int,
    found: set[Fault],
) -> np.ndarray:
    shape = tuple(each.stop - each.start for each in block)
    size = math.prod(shape)
    buffers = [each[:size].reshape(shape) for each in _buffers(scratch, max(elements, size))]
    written = [each[block] for each in outputs]
    number = 0
    out = np.empty(0)

    def noticed(kind: str, _: int) -> None:
        found.add((number, kind))

    with np.errstate(divide="call", over="call", invalid="call", under="ignore", call=noticed):
        for number, step in enumerate(steps):  # noqa: B007  (`noticed` reads it)
            function, arguments, (where, position) = step
            out = buffers[position] if where == SCRATCH else written[position]
            values = [
                value if kind == CONSTANT
                else taken[value] if kind == INPUT
                else buffers[value] if kind == SCRATCH
                else written[value]
                for kind, value in arguments
            ]  # fmt: skip
            function(*values, out=out)
    return out


def _buffers(scratch: list[np.dtype[Any]], elements: int) -> list[np.ndarray]:
    """Of this thread, kept between evaluations: fresh memory costs more than the operations on it."""
    kept: dict[str, list[np.ndarray]] = _local.__dict__.setdefault("kept", {})
    used: dict[str, int] = {}
    found = []
    for dtype in scratch:
        some = kept.setdefault(dtype.char, [])
        number = used.get(dtype.char, 0)
        used[dtype.char] = number + 1
        if number < len(some) and some[number].size < elements:
            some[number] = np.empty(elements, dtype)
        elif number == len(some):
            some.append(np.empty(elements, dtype))
        found.append(some[number])
    if elements > _KEPT:
        kept.clear()
    return found


_KEPT = 1 << 17
"""Elements of the buffers that a thread keeps; larger ones are of plain evaluations."""
