"""Data sets as the daemon knows them: their objects, who reads them how fast, and how much of each is wanted.

Which chunks of a set are kept follows a fixed order, by hash, so that a larger share only adds and a smaller one only
removes, and two nodes agree on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 4096
MOST_OBJECTS = 2_000_000
"""Objects that are remembered of all sets, about 300 MB. Those beyond are read through."""


def order_of(key: str, number: int) -> float:
    """Where a chunk stands in the order of all chunks, from 0 up to 1."""
    digest = blake2b(f"{key}/{number}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big") / 2.0**56


@dataclass(slots=True)
class DataSet:
    """`objects` are sizes by key. `cut`: chunks up to there in the order are wanted; `kept` is the part that this is.
    `declared`: an input of some job, or warmed, so that it is filled without being read."""

    url: str
    objects: dict[str, int] = field(default_factory=dict)
    cut: float | None = None
    kept: float = 0.0
    pinned: bool = False
    listed: bool = False
    _sorted: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def add(self, key: str, size: int) -> None:
        if self.objects.get(key) != size:
            self.objects[key] = size
            self._sorted = None

    def discard(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            self._sorted = None

    def size(self, chunk_bytes: int, least: float) -> float:
        """Bytes of all chunks, each of at least `least`."""
        ends = self._ends(chunk_bytes, least)[1]
        return float(ends[-1]) if len(ends) else 0.0

    def keep(self, part: float, chunk_bytes: int, least: float) -> None:
        """This part of the bytes is wanted from now on."""
        self.kept = part
        orders, ends = self._ends(chunk_bytes, least)
        if not len(ends) or part > 0.9995:
            self.cut = 1.0
            return
        count = int(ends.searchsorted(part * ends[-1] * (1 + 1e-9), side="right"))
        self.cut = float(orders[count - 1]) if count else -1.0

    def wants(self, key: str, number: int) -> bool | None:
        """None before the first decision on the set."""
        return None if self.cut is None else order_of(key, number) <= self.cut

    def chunks(self, chunk_bytes: int) -> Iterator[tuple[str, int, int]]:
        """(key, number, bytes)"""
        for key, size in self.objects.items():
            for number in range(max(1, -(-size // chunk_bytes))):
                yield key, number, min(chunk_bytes, size - number * chunk_bytes)

    def _ends(self, chunk_bytes: int, least: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The order of all chunks and the bytes up to the end of each."""
        if self._sorted is None:
            import numpy as np

            rows = [
                (order_of(key, number), max(-(-size // BLOCK) * BLOCK, least))
                for key, number, size in self.chunks(chunk_bytes)
            ]
            table = np.array(sorted(rows)).reshape(-1, 2)
            self._sorted = table[:, 0], np.cumsum(table[:, 1])
        return self._sorted


_MOSTLY = 0.9
"""The part that is linked beyond which what is read of the rest says little."""


@dataclass(slots=True)
class Rate:
    """Bytes a second that one tenant reads of one set: a moving average that is right from its first round on, and what
    was declared. `epochs`: how often a job will still read it; None where that is not known. `standing`: declared by
    the server, which says so again each time."""

    average: float = 0.0
    weight: float = 0.0
    this_round: float = 0.0
    declared: float = 0.0
    epochs: float | None = None
    standing: bool = False

    def estimate(self, linked: float, seconds: float) -> None:
        """Nothing tells how often a link was read. Data is read evenly, so what was read of the rest tells; where that
        is little, the declaration stands."""
        if linked < _MOSTLY:
            self.this_round /= 1 - linked
        else:
            self.this_round = max(self.this_round, self.declared * seconds)

    def end_round(self, seconds: float, memory: float) -> None:
        self.average = (1 - memory) * self.average + memory * self.this_round / seconds
        self.weight = (1 - memory) * self.weight + memory
        self.this_round = 0.0

    @property
    def measured(self) -> float:
        return self.average / self.weight if self.weight else 0.0

    @property
    def idle(self) -> bool:
        return self.measured < 1.0 and not self.declared and not self.this_round
