"""Launch of a variant: its extra parameter, the control block of `ticket`, and the parts of a grid.

Both variants take the parameters of the original and 32 bytes more, aligned to 8, behind them:

    u32 grid[3]   the grid of the original launch
    u32 base      slice: the first block of this launch
    u64 control   ticket: address of the control block in device memory
    u64 reserved  zero

Both are launched with a grid of one dimension and the original block size. A block's number is
x + grid[0] * (y + grid[1] * z). The control block is

    u32 stop      not zero: blocks that have claimed no number yet return at once
    u32 next      the first number that is not claimed; numbers below it are done when the launch has ended
    u32 claims[]  one for each block of the launch

so that the next launch takes `blocks - next` blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

Grid = tuple[int, int, int]

LAUNCH_BYTES = 32
LAUNCH_ALIGN = 8
MAX_BLOCKS = 2**31 - 1
"""The longest grid of one dimension; a larger original grid is not transformed."""

CLAIMS_AT = 8
"""Where the claims begin in the control block."""


def blocks_in(grid: Grid) -> int:
    blocks = grid[0] * grid[1] * grid[2]
    if not 0 < blocks <= MAX_BLOCKS:
        raise ValueError(f"a grid of {blocks} blocks: between 1 and {MAX_BLOCKS} can be transformed")
    return blocks


def launch_parameter(grid: Grid, *, base: int = 0, control: int = 0) -> bytes:
    return struct.pack("<4I2Q", *grid, base, control, 0)


def with_launch_parameter(parameters: bytes, launch: bytes) -> bytes:
    """The variant's parameters from the original's."""
    return parameters + bytes(-len(parameters) % LAUNCH_ALIGN) + launch


def control_bytes(grid: Grid) -> int:
    return CLAIMS_AT + 4 * blocks_in(grid)


def slices(grid: Grid, blocks: int) -> Iterator[tuple[int, int]]:
    """First block and number of blocks of each launch, at most `blocks` in each."""
    total = blocks_in(grid)
    for base in range(0, total, blocks):
        yield base, min(blocks, total - base)
