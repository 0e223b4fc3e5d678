"""The best content of a cache for one vector of values: the oracle of all policies, and of the certificate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from shoal.cache.policy.problem import TINY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shoal.cache.policy.problem import Array

_FEW_NODES = 2_000

_ENUMERATED = 22
"""Items of which every packing of a half is enumerated: 2,048 of each."""

NODES = 200_000
"""Branches that an exact search may open, about a second: sizes that are nearly alike have very many packings. Then the
best one found is the answer, and `bound` says how much better another may be."""


@dataclass(frozen=True, slots=True)
class Packing:
    """`parts` (K,) of the items, `value` what they are worth, `bound` what no other packing exceeds."""

    parts: Array
    value: float
    bound: float


class Oracle(Protocol):
    def best(self, value: Array) -> Packing:
        """The items of most value (K,), none of no value."""
        ...


class Filler:
    """The fractional knapsack: any part of an item may be taken."""

    def __init__(self, size: Array, capacity: float) -> None:
        self._size = size
        self._capacity = capacity

    def best(self, value: Array) -> Packing:
        parts = fill(value, self._size, self._capacity)
        total = float(value @ parts)
        return Packing(parts, total, total)


def fill(value: Array, size: Array, capacity: float) -> Array:
    """The fractional knapsack: parts (K,), 0 to 1, of the items of most total value, by density. Items of no value are
    left out."""
    parts = np.zeros(len(value))
    worth = np.flatnonzero(value > 0)
    order = worth[np.argsort(-value[worth] / size[worth], kind="stable")]
    ends = np.cumsum(size[order])
    full = int(np.searchsorted(ends, capacity, side="right"))
    parts[order[:full]] = 1.0
    if full < len(order):
        left = capacity - (ends[full - 1] if full else 0.0)
        parts[order[full]] = left / size[order[full]]
    return parts


class Packer:
    """The 0/1 knapsack, exact, for many vectors of values of the same items (K,) and capacity.

    Few items: every packing of each half of them is known, and the best partner in the other half is found by its size
    (Horowitz and Sahni, 1974), 30 us a vector for 20 items. More, or not `enumerated`: depth-first branch and bound in
    the order of density, bounded by the fractional knapsack; after `nodes` nodes it ends with the best so far.
    """

    def __init__(
        self, size: Array, capacity: float, wanted: NDArray[np.intp] | None = None, nodes: int = NODES, *,
        enumerated: bool = True,
    ) -> None:  # fmt: skip
        """`wanted` are the items that may have a value; all of them unless given."""
        self._size = size
        self._capacity = capacity
        self._nodes = nodes
        usable = np.arange(len(size)) if wanted is None else wanted
        self._usable = usable[size[usable] <= capacity]
        self._all_fit = bool(size[self._usable].sum() <= capacity)
        self._halves: _Halves | None = None
        if enumerated and not self._all_fit and len(self._usable) <= _ENUMERATED:
            self._halves = _Halves(size[self._usable], capacity)

    def best(self, value: Array) -> Packing:
        taken = np.zeros(len(value))
        own = value[self._usable]
        worth = own > TINY * own.max(initial=0.0)
        usable = self._usable[worth]
        if self._all_fit or self._size[usable].sum() <= self._capacity:
            taken[usable] = 1.0
            total = float(value @ taken)
            return Packing(taken, total, total)
        if self._halves is not None:
            taken[self._usable] = self._halves.best(own * worth) * worth
            total = float(value @ taken)
            return Packing(taken, total, total)
        usable = usable[np.argsort(-value[usable] / self._size[usable], kind="stable")]
        best, chosen, bound = _search(value[usable].tolist(), self._size[usable].tolist(), self._capacity, self._nodes)
        if bound > best:
            self._nodes = max(self._nodes // 4, _FEW_NODES)  # sizes that are hard once are hard again
        taken[usable[chosen]] = 1.0
        return Packing(taken, best, max(best, bound))


class _Halves:
    """All packings of two halves of the items, and for each of the first the largest of the second that still fits."""

    def __init__(self, size: Array, capacity: float) -> None:
        self._middle = len(size) // 2
        one, other = _subsets(self._middle), _subsets(len(size) - self._middle)
        one_size, other_size = one @ size[: self._middle], other @ size[self._middle :]
        fits = one_size <= capacity
        order = np.argsort(other_size, kind="stable")
        self._one, self._other = one[fits], other[order]
        self._last: Any = np.searchsorted(other_size[order], capacity - one_size[fits], side="right") - 1

    def best(self, value: Array) -> Array:
        one, other = self._one @ value[: self._middle], self._other @ value[self._middle :]
        first = int((one + np.maximum.accumulate(other)[self._last]).argmax())
        second = int(other[: self._last[first] + 1].argmax())
        return np.concatenate([self._one[first], self._other[second]])


@cache
def _subsets(count: int) -> Array:
    """(2 ** count, count) of 0 and 1."""
    return ((np.arange(2**count)[:, None] >> np.arange(count)) & 1).astype(np.float64)


def _search(values: list[float], sizes: list[float], capacity: float, nodes: int) -> tuple[float, list[int], float]:
    """The value found, its items, and a bound for what was not searched (0 where all was)."""
    count, best = len(values), -1.0
    found: tuple[object, int] | None = None
    # A node: the next item, the capacity left, the value so far, and the items so far as a linked list.
    stack: list[tuple[int, float, float, tuple[object, int] | None]] = [(0, capacity, 0.0, None)]
    while stack:
        at, left, value, chain = stack.pop()
        if value > best:
            best, found = value, chain
        if at == count:
            continue
        bound, next_at, room = value, at, left
        while next_at < count and sizes[next_at] <= room:
            room -= sizes[next_at]
            bound += values[next_at]
            next_at += 1
        if next_at < count:
            bound += values[next_at] * room / sizes[next_at]
        if bound <= best * (1 + TINY):
            continue
        nodes -= 1
        if nodes < 0:
            open_nodes = [(at, left, value), *((node[0], node[1], node[2]) for node in stack)]
            return best, _items(found), max(_relaxed(values, sizes, *one) for one in open_nodes)
        stack.append((at + 1, left, value, chain))
        if sizes[at] <= left:
            stack.append((at + 1, left - sizes[at], value + values[at], (chain, at)))
    return best, _items(found), 0.0


def _relaxed(values: list[float], sizes: list[float], at: int, left: float, value: float) -> float:
    rest = np.array(values[at:]), np.array(sizes[at:])
    return value + float(rest[0] @ fill(*rest, left))


def _items(chain: tuple[object, int] | None) -> list[int]:
    found = []
    while chain is not None:
        before, at = chain
        found.append(at)
        chain = before  # type: ignore[assignment]
    return found
