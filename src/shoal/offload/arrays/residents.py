"""Results that stay on a device until somebody looks: pending ones, whose values are there already.

Such a result keeps what it is made of, as every pending one: where the device is lost, it is computed anew.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

if TYPE_CHECKING:
    from shoal.offload.arrays.lazy import Lazy
    from shoal.offload.arrays.program import Block


class Resident:
    """`kept` has blocks of `shape` with their values on the device, by where they begin and end; the others are in
    `host`. `elements` is the size of a block, `key` what the result is called in the statistics of looks."""

    def __init__(self, host: np.ndarray, shape: tuple[int, ...], elements: int, key: Any) -> None:
        self.host, self.shape, self.elements, self.key = host, shape, elements, key
        self.kept: dict[tuple[int, ...], tuple[Block, Any]] = {}
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        return self.host.nbytes

    @property
    def whole(self) -> bool:
        """Whether all of it is there."""
        return sum(elements_of(block) for block, _ in self.kept.values()) == self.host.size

    def keep(self, block: Block, value: Any) -> None:
        with self._lock:
            self.kept[_place(block)] = block, value

    def of(self, block: Block) -> Any:
        """The value of exactly this block; None where it is not there."""
        found = self.kept.get(_place(block))
        return None if found is None else found[1]

    def bring(self, page: Any, block: Block | None = None) -> None:
        """Copy what lies in this block, or everything, to the host."""
        with self._lock:
            some = [each for each, _ in self.kept.values() if block is None or _overlap(each, block)]
        for each in some:
            page.fetch(self.of(each), self.host.reshape(self.shape)[each])
            with self._lock:
                del self.kept[_place(each)]


def elements_of(block: Block) -> int:
    return math.prod(each.stop - each.start for each in block)


def _place(block: Block) -> tuple[int, ...]:
    return tuple(place for each in block for place in (each.start, each.stop))


def _overlap(one: Block, other: Block) -> bool:
    return all(a.start < b.stop and b.start < a.stop for a, b in zip(one, other, strict=True))


class Residents:
    """By pending result; one that is gone takes its values with it."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[ref[Lazy], Resident]] = {}

    def add(self, node: Lazy, resident: Resident) -> None:
        key = id(node)
        self._found[key] = (ref(node, lambda _: self._found.pop(key, None)), resident)

    def of(self, node: Lazy) -> Resident | None:
        found = self._found.get(id(node)) if self._found else None
        return None if found is None else found[1]

    def use(self, node: Lazy) -> None:
        """It is the last one that has to give way."""
        self._found[id(node)] = self._found.pop(id(node))

    def forget(self, node: Lazy) -> None:
        self._found.pop(id(node), None)

    def clear(self) -> None:
        """The device is lost, and all values with it."""
        self._found.clear()

    def oldest_first(self) -> Iterator[Lazy]:
        return iter([node for one, _ in list(self._found.values()) if (node := one()) is not None])


RESIDENTS = Residents()
