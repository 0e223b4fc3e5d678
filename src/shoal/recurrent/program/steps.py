"""Steps of a program. All numbers lie in one array, the arena; places are offsets of fp32 numbers in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shoal.recurrent.cells.symbols import Expression
from shoal.recurrent.layers.layer import Array, LayerSpec

ZERO = 0
"""The place of a number that is always zero: what fills up borders is read from there."""
ALIGNED = 16
"""Numbers of one cache line: each region of the arena begins at a multiple of it, with room behind it."""


class Unsupported(Exception):
    """A part that a program cannot have; ONNX Runtime runs it."""


@dataclass(frozen=True)
class Map:
    """out[i] = value of the numbers at tables[0][i], tables[1][i] ...: moves and element-wise work. In `value` the
    operands are the parameters "0", "1" ..."""

    out: int
    tables: tuple[Array, ...]
    value: Expression

    @property
    def count(self) -> int:
        return len(self.tables[0])


@dataclass(frozen=True)
class Product:
    """A cell without memory at each of some positions: a convolution, or a matrix product, with what follows unit by
    unit. Position i reads `sizes.input` numbers from x + i * x_step on, and writes its units from out + i * wide on."""

    layer: LayerSpec
    positions: int
    x: int
    x_step: int
    out: int
    wide: int


@dataclass(frozen=True)
class Recur:
    """Steps of a recurrent layer. `state` and `following`: its two copies of the states; an odd number of steps ends in
    the second."""

    layer: LayerSpec
    steps: int
    x: int
    x_step: int
    out: int
    wide: int
    state: int
    following: int


@dataclass
class Plan:
    """A whole program. `inputs` and `outputs`: where each begins, and its shape."""

    size: int
    steps: list[Map | Product | Recur] = field(default_factory=list)
    constants: dict[int, Array] = field(default_factory=dict)
    inputs: Mapping[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    outputs: Mapping[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
