"""Several threads for one call: rows of a batch, directions of a layer, and layers on one another as a wavefront.

Kernels let other threads of Python run. The parts share no memory that they write, so no thread waits for another
within a part, and a core that is taken away costs time alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from shoal.recurrent.layers.layer import LayerSpec
from shoal.recurrent.network.graph import Recurrence, Segment

LEAST_OPERATIONS = 10_000_000
"""Of one part: handing it to a thread takes as long as some million operations."""
_CHUNKS = 8
"""Of a sequence in a wavefront: with n layers, n - 1 of them begin late by one chunk each."""


class Threads:
    """At most `count` at once; they start when they are first needed."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    def run(self, parts: Sequence[Callable[[], None]]) -> None:
        """All parts; the first error of one is raised when all have ended."""
        if self.count == 1 or len(parts) < 2:
            for part in parts:
                part()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count - 1, thread_name_prefix="recurrent")
        waiting = [self._pool.submit(part) for part in parts[1:]]
        try:
            parts[0]()
        finally:
            errors = [one.exception() for one in waiting]
        for error in errors:
            if error is not None:
                raise error


def operations(spec: LayerSpec, steps: int, rows: int) -> int:
    """Of the dot products of a layer."""
    return 2 * steps * rows * sum(one.size for one in spec.weights.matrices.values())


def slices(rows: int, parts: int) -> list[slice]:
    """The rows in this number of parts of about one size, none empty."""
    parts = max(1, min(rows, parts))
    ends = [rows * part // parts for part in range(parts + 1)]
    return [slice(first, last) for first, last in pairwise(ends)]


def chains(steps: Sequence[Segment | Recurrence]) -> list[list[int]]:
    """The steps in runs: layers one on another, each of which can go on from chunk to chunk, are one run."""
    found: list[list[int]] = []
    for at, step in enumerate(steps):
        before = steps[at - 1] if at else None
        joined = isinstance(step, Recurrence) and isinstance(before, Recurrence) and step.x == before.y
        if joined and all(
            isinstance(one, Recurrence) and one.streams and not one.batch_first for one in (step, before)
        ):
            found[-1].append(at)
        else:
            found.append([at])
    return found


def waves(layers: int, chunks: int) -> list[list[tuple[int, int]]]:
    """(layer, chunk) of what may run at once, in order: a chunk of a layer waits for that chunk of the layer below, and
    for the chunk before."""
    return [
        [(layer, turn - layer) for layer in range(layers) if 0 <= turn - layer < chunks]
        for turn in range(layers + chunks - 1)
    ]


def chunks_of(steps: int) -> list[slice]:
    """A sequence in chunks."""
    return slices(steps, _CHUNKS)
