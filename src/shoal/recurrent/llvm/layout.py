"""Layout of a layer in memory: one block of constants, one block for each state, one of scratch for each row.

All offsets are known when a kernel is compiled. A row's record has the addresses that a step reads and moves on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from shoal.recurrent.llvm.dots import Dot, dot_of
from shoal.recurrent.llvm.target import Target
from shoal.recurrent.nest.interpret import Weights
from shoal.recurrent.nest.ir import Convert, Mean, Nest, Reduce, walk
from shoal.recurrent.numbers import GROUP, NumberType, quantise, quantise_groups, to_bf16

ALIGN = 64


class Row(IntEnum):
    """The fields of a row's record, each 8 bytes."""

    STATE = 0
    """The states of the step before; after a step it has changed places with NEXT."""
    NEXT = 1
    X = 2
    """The input vector of this step, in the type that dot products read; a step moves it on by X_STEP bytes."""
    X_STEP = 3
    Y = 4
    """Where the output of this step goes."""
    Y_STEP = 5
    PROJECTED = 6
    """The hoisted products of this step."""
    SCRATCH = 7
    SOURCE = 8
    """The input vectors in fp32, where they must be converted first."""
    SOURCE_STEP = 9


ROW_BYTES = 8 * 16


class Call(IntEnum):
    """The fields of what a kernel is called with, each 8 bytes."""

    STEPS = 0
    ROWS = 1
    RECORDS = 2
    CONSTANTS = 3


@dataclass
class Group:
    """The weights of one reduction in the constants. `block`: bytes of one block of `lanes` units, all gates."""

    reduce: Reduce
    units: int
    groups: int
    offset: int
    block: int
    scales: int
    scale_block: int


@dataclass
class Layout:
    """Offsets in bytes. See the module."""

    nest: Nest
    kind: NumberType
    target: Target
    dot: Dot = field(init=False)
    groups: dict[Reduce, Group] = field(init=False, default_factory=dict)
    parameters: dict[str, int] = field(init=False, default_factory=dict)
    masks: dict[int, int] = field(init=False, default_factory=dict)
    states: dict[str, int] = field(init=False, default_factory=dict)
    scratch: dict[str, int] = field(init=False, default_factory=dict)
    converted: dict[tuple[str, str], int] = field(init=False, default_factory=dict)
    """Of (kind, name): where the converted vector begins, in the state or in the scratch."""
    means: dict[int, int] = field(init=False, default_factory=dict)
    projected: dict[str, tuple[int, int, int]] = field(init=False, default_factory=dict)
    """Of a hoisted dot: its group's offset, the bytes of a block, and its own offset in the block."""

    def __post_init__(self) -> None:
        self.dot = dot_of(self.kind, self.target)
        sizes, lanes = self.nest.sizes, self.target.lanes
        at = 0
        for name in self.nest.cell.parameters:
            self.parameters[name] = at
            at += self.padded(max(sizes.hidden, sizes.projection)) * 4
        for size in {sizes.hidden, sizes.projection} - {0}:
            self.masks[size] = at
            at += self.padded(size) * 4
        for reduce in self.reduces():
            at = _aligned(at)
            units = sizes.of(reduce.dots[0].space)
            blocks, gates = self.padded(units) // lanes, len(reduce.dots)
            groups = -(-reduce.operand.size // self.dot.pack)
            block = groups * gates * self.dot.bytes
            scale_block = gates * lanes * 8 if self.kind is NumberType.INT8 else 0
            self.groups[reduce] = Group(reduce, units, groups, at, block, at + blocks * block, scale_block)
            at += blocks * (block + scale_block)
        self.constant_bytes = _aligned(at)
        self._lay_rows()

    def _lay_rows(self) -> None:
        nest, cell = self.nest, self.nest.cell
        at = 0
        for name in cell.states:
            self.states[name] = at
            at += _aligned(self.padded(nest.sizes.of(cell.spaces[name])) * 4)
        converts = [one.vector for one in walk(nest.phases) if isinstance(one, Convert)] if self.dot.converts else []
        for vector in converts:
            if vector.kind == "state":
                self.converted["state", vector.name] = at
                at += _aligned(self.dot.vector_bytes(vector.size))
        self.state_bytes = at
        at = 0
        for _, name, space in nest.kept:
            self.scratch[name] = at
            at += _aligned(self.padded(nest.sizes.of(space)) * 4)
        for vector in converts:
            if vector.kind == "scratch":
                self.converted["scratch", vector.name] = at
                at += _aligned(self.dot.vector_bytes(vector.size))
        for node in (one for one in walk(nest.phases) if isinstance(one, Mean)):
            self.means[id(node.node)] = at
            at += ALIGN
        self.scratch_bytes = max(at, ALIGN)
        at = 0
        for reduce in nest.hoisted:
            blocks = self.padded(nest.sizes.of(reduce.dots[0].space)) // self.target.lanes
            block = len(reduce.dots) * self.target.lanes * 4
            for index, dot in enumerate(reduce.dots):
                self.projected[dot.name] = (at, block, index * self.target.lanes * 4)
            at += blocks * block
        self.projected_bytes = at

    def padded(self, units: int) -> int:
        return -(-units // self.target.lanes) * self.target.lanes

    def reduces(self) -> list[Reduce]:
        """In an order that no schedule changes: kernels of one layer share their constants."""
        found = [one for one in walk(self.nest.phases) if isinstance(one, Reduce)]
        return sorted(found, key=lambda one: (one.stage, one.operand.kind, one.operand.name))

    @property
    def input_bytes(self) -> int:
        """One converted input vector; 0 where fp32 is read in place."""
        return _aligned(self.dot.vector_bytes(self.nest.sizes.input)) if self.dot.converts else 0

    def pack(self, weights: Weights) -> NDArray[np.uint8]:
        """The block of constants. Raises KeyError for a weight that is missing."""
        made = np.zeros(self.constant_bytes, np.uint8)
        for name, offset in self.parameters.items():
            values = weights.parameters[name]
            made[offset : offset + 4 * len(values)].view(np.float32)[:] = values
        for size, offset in self.masks.items():
            made[offset : offset + 4 * size] = 255
        for group in self.groups.values():
            self._pack_group(group, weights, made)
        return made

    def _pack_group(self, group: Group, weights: Weights, made: NDArray[np.uint8]) -> None:
        lanes, dots = self.target.lanes, group.reduce.dots
        units, elements = self.padded(group.units), group.groups * self.dot.pack
        blocks, gates = units // lanes, len(dots)
        for gate, dot in enumerate(dots):
            matrix = weights.matrices[dot.name]
            if self.kind is NumberType.INT4:
                place = made[group.offset : group.offset + blocks * group.block]
                place.reshape(blocks, group.groups, gates, -1)[:, :, gate] = self._nibbles(matrix, units)
                continue
            padded: NDArray[np.generic]
            if self.kind is NumberType.INT8:
                integers, scales = quantise(matrix)
                padded = np.zeros((units, elements), np.int8)
                padded[: len(integers), : integers.shape[1]] = integers
                self._pack_scales(group, gate, scales, integers, made)
            else:
                values = to_bf16(matrix) if self.kind is NumberType.BF16 else matrix
                padded = np.zeros((units, elements), values.dtype)
                padded[: len(values), : values.shape[1]] = values
            # [block, lane, group, element of the group] becomes [block, group, lane, element of the group]
            tiles = padded.reshape(blocks, lanes, group.groups, self.dot.pack).transpose(0, 2, 1, 3)
            place = made[group.offset : group.offset + blocks * group.block].reshape(
                blocks, group.groups, gates, self.dot.bytes
            )
            place[:, :, gate] = np.ascontiguousarray(tiles).view(np.uint8).reshape(blocks, group.groups, self.dot.bytes)

    def _nibbles(self, matrix: NDArray[np.generic], units: int) -> NDArray[np.uint8]:
        """[block, group, bytes]: two elements in a byte, those of the second in its upper half; then the scales."""
        lanes = self.target.lanes
        integers, scales = quantise_groups(matrix)
        raised = np.full((units, *integers.shape[1:]), 8, np.uint8)
        raised[: len(integers)] += integers.view(np.uint8)
        quads = raised.reshape(units // lanes, lanes, -1, GROUP // 4, 4).transpose(0, 2, 3, 1, 4)
        both = quads[:, :, 0::2] | quads[:, :, 1::2] << 4
        table = np.zeros((units, scales.shape[1]), np.float32)
        table[: len(scales)] = scales
        tiles = np.ascontiguousarray(table.reshape(units // lanes, lanes, -1).transpose(0, 2, 1))
        count = tiles.shape[:2]
        return np.concatenate([both.reshape(*count, -1), tiles.view(np.uint8).reshape(*count, -1)], axis=2)

    def _pack_scales(
        self, group: Group, gate: int, scales: NDArray[np.float32], integers: NDArray[np.int8], made: NDArray[np.uint8]
    ) -> None:
        lanes = self.target.lanes
        units = self.padded(group.units)
        blocks = units // lanes
        table = np.zeros((units, 2), np.float32)
        table[: len(scales), 0] = scales
        table[: len(scales), 1] = (128 * integers.astype(np.int32).sum(axis=1, dtype=np.int32)).view(np.float32)
        tiles = table.reshape(blocks, lanes, 2).transpose(0, 2, 1)
        place = made[group.scales : group.scales + blocks * group.scale_block].reshape(blocks, -1, 8 * lanes)
        place[:, gate] = np.ascontiguousarray(tiles).view(np.uint8).reshape(blocks, 8 * lanes)


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
