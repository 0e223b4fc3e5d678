"""The minimum cut of a graph with real capacities, by a solver that counts in 32-bit integers.

The capacities are scaled so that a known cut fits into 29 bits. What the solver's flow leaves is a graph of its own,
with a much smaller cut: it is scaled anew and solved again, until the flow and the cut are equal to seven digits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

_LARGEST = 2**30 - 1
"""Of a capacity: with one the other way, the residual still fits into 32 bits."""

_EXACT = 1e-7
_ROUNDS = 4
"""Each gains about six digits."""


_STEPS = 16
"""From the source, after which SciPy's search is quicker than whole arrays at each step."""


@dataclass
class Arcs:
    """Arcs with capacities in seconds; infinite ones are never cut. The source is vertex 0, the sink vertex 1."""

    tail: list[int] = field(default_factory=list)
    head: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    vertices: int = 2
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)

    def add(self, tail: int, head: int, seconds: float) -> None:
        if seconds > 0:
            self.tail.append(tail)
            self.head.append(head)
            self.seconds.append(seconds)

    def extend(self, tails: np.ndarray, heads: np.ndarray, seconds: np.ndarray) -> None:
        self.parts.append((tails, heads, seconds))

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tails, heads and seconds of the arcs that cost something, each of shape (arcs,)."""
        parts = self.parts
        if self.tail:
            parts = [*parts, (np.array(self.tail), np.array(self.head), np.array(self.seconds, float))]
        tails, heads, seconds = (np.concatenate(each) for each in zip(*parts, strict=True))
        some = seconds > 0
        return tails[some], heads[some], seconds[some]

    def vertex(self) -> int:
        self.vertices += 1
        return self.vertices - 1


@dataclass(frozen=True)
class Cut:
    """Which vertices are on the source's side, shape (vertices,), and bounds of the minimum cut in seconds."""

    source_side: np.ndarray
    low: float
    high: float


def minimum_cut(arcs: Arcs, known: float) -> Cut:
    """`known` is the value of some cut, or more; it sets the scale."""
    size = arcs.vertices
    tail, head, capacity = arcs.arrays()
    finite = capacity[np.isfinite(capacity)].sum()
    known = min(known + 1e-12 * finite, finite) if known < inf else finite  # rounding may hide as much of it
    both = np.concatenate((tail * size + head, head * size + tail))  # each arc and the one the other way
    order = both.argsort(kind="stable")
    ordered = both[order]
    first = np.empty(both.size, bool)
    first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    keys = ordered[first]
    position = np.empty(both.size, np.int64)
    position[order] = first.cumsum() - 1
    full = left = np.bincount(position[: tail.size], capacity, minlength=keys.size)
    rows = keys // size
    columns = (keys - rows * size).astype(np.int32)
    starts = rows.searchsorted(np.arange(size + 1)).astype(np.int32)
    low, bound = 0.0, known
    best = Cut(np.arange(size) == 0, 0.0, inf)
    for _ in range(_ROUNDS):
        if bound <= 0 or bound == inf:  # nothing to cut, or no cut of finite arcs
            break
        scale = _LARGEST / 2 / bound
        whole = np.minimum(np.floor(np.minimum(left, 4 * bound) * scale), _LARGEST).astype(np.int32)
        matrix = csr_array((whole, columns, starts), shape=(size, size))
        result = maximum_flow(matrix, 0, 1, method="dinic")
        moved = result.flow.data  # in the order of the matrix, which has both ways of each arc
        assert moved.size == keys.size
        low += result.flow_value / scale
        side = _reached(whole - moved > 0, rows, columns, size)
        across = side[rows] & ~side[columns]
        high = float(full[across].sum())
        if high < best.high:
            best = Cut(side, low, high)
        bound = best.high - low
        if bound <= _EXACT * best.high:
            break
        left = left - moved / scale
        left = np.where(np.isinf(left), inf, np.maximum(left, 0.0))
    return Cut(best.source_side, min(low, best.high), best.high)


def _reached(open_: np.ndarray, rows: np.ndarray, columns: np.ndarray, size: int) -> np.ndarray:
    """The vertices to which a way of open arcs leads from the source."""
    tail, head = rows[open_], columns[open_]
    side = np.zeros(size, bool)
    side[0] = True
    count = 1
    for _ in range(_STEPS):
        side[head[side[tail]]] = True
        before, count = count, int(np.count_nonzero(side))
        if count == before:
            return side
    matrix = csr_array((np.ones(tail.size, np.int8), (tail, head)), shape=(size, size))
    side[breadth_first_order(matrix, 0, return_predecessors=False)] = True
    return side
