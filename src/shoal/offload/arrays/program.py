"""Pending results as one program: operations in order, over blocks, with scratch buffers that are used again.

After the liveness and register allocation of compilers (linear scan), with one register file for each type of element.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.offload.arrays.functions import Roll
from shoal.offload.arrays.lazy import Lazy, fields
from shoal.offload.arrays.residents import RESIDENTS
from shoal.offload.arrays.tracked import plain, track

_MOST_NODES = 256

_MOST_KEYS = 8192
_keys: dict[tuple[Any, ...], int] = {}
_numbers = itertools.count(1)
"""Programs by what they do. A number is never given twice."""

INPUT, SCRATCH, OUTPUT, CONSTANT = range(4)


@dataclass(frozen=True, slots=True)
class Operation:
    """`arguments` and `target` are (where, number); a constant has its value in place of the number."""

    ufunc: Any
    arguments: tuple[tuple[int, Any], ...]
    target: tuple[int, int]
    dtype: np.dtype[Any]
    node: Lazy


@dataclass(slots=True)
class Program:
    """What one evaluation does. `inputs` are plain arrays, and `rolls` the shifts with which some of them are read;
    `outputs` the pending results whose values are kept, and `wanted` that of them which is looked at; `scratch` the
    types of the buffers. `residents` are the inputs whose values are on a device. All results have one shape."""

    shape: tuple[int, ...]
    operations: list[Operation] = field(default_factory=list)
    inputs: list[np.ndarray] = field(default_factory=list)
    rolls: dict[int, Roll] = field(default_factory=dict)
    residents: dict[int, Lazy] = field(default_factory=dict)
    wanted: Lazy | None = None
    outputs: list[Lazy] = field(default_factory=list)
    scratch: list[np.dtype[Any]] = field(default_factory=list)
    _key: int = 0
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = math.prod(self.shape)

    @property
    def cut_shape(self) -> tuple[int, ...]:
        """The shape of which blocks are taken: one axis where that is possible."""
        flat = not self.rolls and all(each.shape == self.shape and each.flags.c_contiguous for each in self.inputs)
        return (self.size,) if flat else self.shape

    @property
    def bytes_touched(self) -> int:
        return sum(each.nbytes for each in self.inputs) + sum(each.nbytes for each in self.outputs)

    @property
    def key(self) -> int:
        """Equal for programs that do the same with other arrays, sizes and constants."""
        if not self._key:
            if len(_keys) >= _MOST_KEYS:
                _keys.clear()
            description = self._description()
            self._key = _keys.get(description, 0) or _keys.setdefault(description, next(_numbers))
        return self._key

    def _description(self) -> tuple[Any, ...]:
        kinds = tuple((each.dtype.char, each.ndim, each.shape == self.shape) for each in self.inputs)
        steps = tuple(
            (
                one.ufunc,
                tuple((w, type(v) if w == CONSTANT else v) for w, v in one.arguments),
                one.target,
                one.dtype.char,
            )
            for one in self.operations
        )
        return (len(self.shape), kinds, steps)


def build(root: Lazy, *, keep_root: bool = True) -> Program:
    """The program that computes the root, and with it the pending results that share work with it or that it needs.
    A result that only other results hold is never stored."""
    nodes = _connected(root)
    order = sorted(nodes.values(), key=lambda each: each.sequence)
    del nodes
    inner = Counter(id(each) for node in order for each in node.inputs if type(each) is Lazy)
    kept: set[int] = set()
    held: set[int] = set()
    for node in order:
        # beside those of other results: the list, the variable, and the argument
        spare = sys.getrefcount(node) - 3 - inner[id(node)]
        if spare > 0 and node is not root:
            kept.add(id(node))
        if spare > _readers(node) - inner[id(node)]:
            held.add(id(node))
    if keep_root:
        kept.add(id(root))
    order = _without_detours(order, root, kept, held)
    for node in order:
        if type(node.ufunc) is Roll and id(node) in kept:
            roll(node)
    program = _allocate(root.shape, [node for node in order if node.value is None], kept)
    program.wanted = root if keep_root else None
    return program


def _readers(node: Lazy) -> int:
    """References to it by pending results."""
    readers = {id(found): found for one in node.consumers if (found := one()) is not None and found.value is None}
    return sum(each is node for reader in readers.values() for each in reader.inputs)


def _without_detours(order: list[Lazy], root: Lazy, kept: set[int], held: set[int]) -> list[Lazy]:
    """Less those that would be stored for later results only, though what they are made of is stored as well."""
    needed = {id(root)}
    read: dict[int, int] = {}
    for node in reversed(order):
        for each in node.inputs:
            if type(each) is Lazy:
                read[id(each)] = read.get(id(each), 0) + 1
                if id(node) in needed:
                    needed.add(id(each))
    left: set[int] = set()
    for node in reversed(order):
        pending = [each for each in node.inputs if type(each) is Lazy and each.value is None]
        late = id(node) in kept and id(node) not in held and id(node) not in needed and not read.get(id(node))
        if late and all(id(each) in kept or RESIDENTS.of(each) for each in pending):
            left.add(id(node))
            for each in pending:
                read[id(each)] -= 1
    return [node for node in order if id(node) not in left]


def roll(node: Lazy) -> None:
    """Compute a rolled array on its own."""
    found = node.ufunc.whole(plain(computed(node.inputs[0])))
    fields["value"](node, track(found))
    fields["inputs"](node, ())


def computed(value: Any) -> Any:
    """The array of a pending result; everything else as it is."""
    return value.compute() if type(value) is Lazy else value


def _connected(root: Lazy) -> dict[int, Lazy]:
    nodes: dict[int, Lazy] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in nodes or node.value is not None or (node is not root and RESIDENTS.of(node)):
            continue
        nodes[id(node)] = node
        for each in node.inputs:
            if type(each) is Lazy and each.value is None:
                if each.shape == root.shape and type(node.ufunc) is not Roll:
                    waiting.append(each)
                else:
                    each.compute()
        if len(nodes) < _MOST_NODES:
            for one in node.consumers:
                reader = one()
                if reader is not None and reader.value is None and _joins(reader, root):
                    waiting.append(reader)
    return {key: node for key, node in nodes.items() if node.value is None}


def _joins(reader: Lazy, root: Lazy) -> bool:
    """Whether it is computed in the same blocks, from nothing that would have to be computed for it alone."""
    if reader.shape != root.shape or reader.level > root.level or type(reader.ufunc) is Roll:
        return False
    return all(type(each) is not Lazy or each.value is not None or each.shape == root.shape for each in reader.inputs)


def _allocate(shape: tuple[int, ...], order: list[Lazy], kept: set[int]) -> Program:
    program = Program(shape)
    last: dict[int, int] = {}
    for position, node in enumerate(order):
        for each in node.inputs:
            if type(each) is Lazy:
                last[id(each)] = position
    place: dict[int, tuple[int, Any]] = {}
    free: dict[str, list[int]] = {}
    for position, node in enumerate(order):
        if type(node.ufunc) is Roll:
            place[id(node)] = (INPUT, len(program.inputs))
            program.rolls[len(program.inputs)] = node.ufunc
            program.inputs.append(plain(computed(node.inputs[0])))
            continue
        arguments = tuple(_argument(program, each, place) for each in node.inputs)
        done = {where: each.dtype for each in node.inputs if type(each) is Lazy and last[id(each)] == position
                for where in (place.get(id(each)),) if where is not None and where[0] == SCRATCH}  # fmt: skip
        in_place = isinstance(node.ufunc, np.ufunc)  # reads each element before it writes it
        if in_place:
            _release(free, done)
        if id(node) in kept:
            target = (OUTPUT, len(program.outputs))
            program.outputs.append(node)
        else:
            spare = free.setdefault(node.dtype.char, [])
            if not spare:
                spare.append(len(program.scratch))
                program.scratch.append(node.dtype)
            target = (SCRATCH, spare.pop())
        if not in_place:
            _release(free, done)
        place[id(node)] = target
        program.operations.append(Operation(node.ufunc, arguments, target, node.dtype, node))
    return program


def _release(free: dict[str, list[int]], done: dict[tuple[int, Any], np.dtype[Any]]) -> None:
    for where, dtype in done.items():
        free.setdefault(dtype.char, []).append(where[1])


def _argument(program: Program, value: Any, place: dict[int, tuple[int, Any]]) -> tuple[int, Any]:
    if type(value) is Lazy:
        found = place.get(id(value))
        if found is not None:
            return found
        if value.value is None and (resident := RESIDENTS.of(value)) is not None:
            RESIDENTS.use(value)
            found = place[id(value)] = (INPUT, len(program.inputs))
            program.residents[found[1]] = value
            program.inputs.append(resident.host)
            return found
        value = value.value
    if not isinstance(value, np.ndarray):
        return (CONSTANT, value)
    found = place.get(id(value))
    if found is None:
        found = place[id(value)] = (INPUT, len(program.inputs))
        program.inputs.append(plain(value))
    return found


Block = tuple[slice, ...]


def blocks(shape: tuple[int, ...], elements: int) -> Iterator[Block]:
    """Blocks of at most about this many elements, in memory order: the last axes whole, one axis cut, the first ones
    taken one by one."""
    inner, axis = 1, len(shape)
    while axis > 0 and inner * shape[axis - 1] <= elements:
        axis -= 1
        inner *= shape[axis]
    if axis == 0:
        yield tuple(slice(0, length) for length in shape)
        return
    axis -= 1
    step = max(1, elements // inner)
    rest = tuple(slice(0, length) for length in shape[axis + 1 :])
    for first in np.ndindex(*shape[:axis]):
        lead = tuple(slice(i, i + 1) for i in first)
        for start in range(0, shape[axis], step):
            yield (*lead, slice(start, min(start + step, shape[axis])), *rest)


def part(array: np.ndarray, block: Block, shift: Roll | None = None) -> np.ndarray:
    """The part of an input that a block needs; axes of length one are repeated by NumPy."""
    if shift is not None:
        return shift.part(array, block)
    own = block[len(block) - array.ndim :]
    return array[tuple(each if length != 1 else slice(None) for each, length in zip(own, array.shape, strict=True))]
