"""Common sub-expressions: steps that several groups begin with, on the same columns, are run once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal.cascade.steps.base import Block, Step

if TYPE_CHECKING:
    from shoal.cascade.program import Group

Keys = tuple[int | None, ...]
"""By step of a group: a number for what all steps up to it make, or None where no other group needs that."""
Rows = NDArray[np.intp] | None
"""Rows of a run; None: all."""


def keys_of(groups: Sequence[Group]) -> list[Keys]:
    nodes: list[tuple[object, Step]] = []  # of a tree: from where, by which step
    paths, uses = [], dict[int, int]()
    for group in groups:
        at: object = (group.columns, group.one)
        path = []
        for step in group.steps:
            node = next(
                (n for n, (before, other) in enumerate(nodes) if before == at and same(other, step)), len(nodes)
            )
            if node == len(nodes):
                nodes.append((at, step))
            uses[node] = uses.get(node, 0) + 1
            path.append(node)
            at = node
        paths.append(path)
    return [tuple(node if uses[node] > 1 else None for node in path) for path in paths]


def same(one: Any, other: Any) -> bool:
    """Whether two steps, or values of theirs, do the same."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    return bool(one == other) or (one != one and other != other)


class Shared:
    """What such steps made in one run, and of which rows."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Rows, Block]] = {}

    def get(self, key: int | None, rows: Rows, make: Callable[[], Block]) -> Block:
        """Rows only become fewer from stage to stage."""
        if key is None:
            return make()
        if key not in self._made:
            block = make()
            if not hasattr(block, "shape"):
                return block
            self._made[key] = rows, block
        of, block = self._made[key]
        if rows is None or (of is not None and len(of) == len(rows)):
            return block
        return block[rows if of is None else np.searchsorted(of, rows)]
