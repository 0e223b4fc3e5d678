"""Cycle models of the two chips in "Serving Recurrent Neural Networks Efficiently with a Spatial Accelerator".

Plasticine: a loop over hidden units, `units` of them at once (hu). Each gate reduces the 2H elements of input and
state with `unroll` vectors (ru) of `vector` 8-bit numbers (rv). A fragment is lost in the reduction alone (1-D). A step
takes ceil(H / hu) turns of ceil(2H / (ru * rv)) cycles each, and the latency of the pipeline.

Nine rows of the table follow. The LSTM of 512 units does not: its time is that of hu = 5, ru = 4, but (hu, hu * ru) =
(6, 24) lies midway between (8, 16) and (4, 32), which other rows need. So no linear limit on units refuses it.

Brainwave: a matrix-vector product in tiles of 400 rows by 40 elements by 6, with a long pipeline: its time is nearly
the same for all sizes of the table, and fragments are lost in both dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from math import ceil
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Shape:
    """One mapping of a cell on Plasticine."""

    units: int
    unroll: int


@dataclass(frozen=True)
class Plasticine:
    """The variant of the paper: 24 x 24 tiles with 192 compute units, 1 GHz, numbers of 8 bits.

    The limits: each vector of each gate of a hidden unit has a compute unit of its own, and the rest of a hidden
    unit's work takes `other_units`. `unrolls`: vectors of input and state that a balanced tree sums in one cycle.
    `least_turn`: cycles in which the gates of a hidden unit pass through its one non-linear unit. `latency`: cycles
    from the first operand to the new state, by cell. `other_units`, `least_turn` and `latency` are read off the table.
    """

    compute_units: int = 192
    vector: int = 64
    clock_hz: float = 1e9
    unrolls: tuple[int, ...] = (1, 2, 4, 8)
    least_turn: int = 4
    other_units: int = 14
    latency: Mapping[str, int] = field(default_factory=lambda: {"lstm": 144, "gru": 142})

    def cycles(self, cell: str, hidden: int, shape: Shape) -> int:
        """Of one time step."""
        turn = max(self.least_turn, ceil(2 * hidden / (self.vector * shape.unroll)))
        return ceil(hidden / shape.units) * turn + self.latency[cell]

    def seconds(self, cell: str, hidden: int, steps: int, shape: Shape) -> float:
        return self.cycles(cell, hidden, shape) * steps / self.clock_hz

    def compute_needed(self, cell: str, shape: Shape) -> int:
        """Compute units of a mapping."""
        return shape.units * (GATES[cell] * shape.unroll + self.other_units)

    def best(self, cell: str, hidden: int) -> Shape:
        """The search: the fastest shape under the chip's limits, of equals the one with the fewest compute units."""
        every = [Shape(units, unroll) for units, unroll in product(range(1, 65), self.unrolls)]
        found = [one for one in every if self.compute_needed(cell, one) <= self.compute_units]
        return min(found, key=lambda one: (self.cycles(cell, hidden, one), self.compute_needed(cell, one), one.units))


@dataclass(frozen=True)
class Brainwave:
    """96,000 multipliers at 250 MHz. `step_cycles`: the latency of a step, by cell, read off the table."""

    tile_rows: int = 400
    tile_elements: int = 240
    clock_hz: float = 250e6
    step_cycles: Mapping[str, int] = field(default_factory=lambda: {"lstm": 737, "gru": 640})

    def cycles(self, cell: str, hidden: int) -> int:
        """Of one time step: the tiles of both matrices of all gates, unless the pipeline takes longer."""
        tiles = 2 * GATES[cell] * ceil(hidden / self.tile_rows) * ceil(hidden / self.tile_elements)
        return max(self.step_cycles[cell], tiles)

    def seconds(self, cell: str, hidden: int, steps: int) -> float:
        return self.cycles(cell, hidden) * steps / self.clock_hz


GATES = MappingProxyType({"lstm": 4, "gru": 3})
OPERATIONS = MappingProxyType({cell: 4 * gates for cell, gates in GATES.items()})
"""Of one hidden unit and element: a multiplication and an addition for each of two matrices and each gate."""


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """A row of the paper's table; latencies in milliseconds, as printed."""

    cell: str
    hidden: int
    steps: int
    cpu_ms: float
    gpu_ms: float
    brainwave_ms: float
    plasticine_ms: float


TABLE = (
    PrintedRow("lstm", 256, 150, 15.75, 1.69, 0.425, 0.0419),
    PrintedRow("lstm", 512, 25, 11.50, 0.60, 0.077, 0.0139),
    PrintedRow("lstm", 1024, 25, 107.65, 0.71, 0.074, 0.0292),
    PrintedRow("lstm", 1536, 50, 411.0, 4.38, 0.145, 0.1224),
    PrintedRow("lstm", 2048, 25, 429.36, 1.55, 0.074, 0.1060),
    PrintedRow("gru", 512, 1, 0.91, 0.39, 0.013, 0.0004),
    PrintedRow("gru", 1024, 1500, 3810.0, 33.77, 3.792, 1.4430),
    PrintedRow("gru", 1536, 375, 2730.0, 13.12, 0.951, 0.7463),
    PrintedRow("gru", 2048, 375, 5040.0, 17.70, 0.954, 1.2833),
    PrintedRow("gru", 2560, 375, 7590.0, 23.57, 0.993, 1.9733),
)
