"""Elementwise functions of NumPy that are no ufuncs, in the form of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


class _Where:
    """`np.where` with three arguments. It reads an argument after it wrote the target, so they never share a buffer."""

    __name__ = "where"
    nin, nout, signature = 3, 1, None

    def __call__(self, condition: Any, yes: Any, no: Any, out: Any = None) -> Any:
        if out is None:
            return np.where(condition, yes, no)
        np.copyto(out, no)
        np.copyto(out, yes, where=np.asarray(condition, bool))
        return None


where = _Where()


@dataclass(frozen=True)
class Roll:
    """`np.roll` along one axis. It is never computed on its own where only elementwise operations read it: they read
    the array itself, from a shifted place."""

    shift: int
    axis: int
    __name__ = "roll"
    nin, nout, signature = 1, 1, None

    def __call__(self, value: Any) -> Any:
        return value

    def whole(self, array: np.ndarray) -> np.ndarray:
        return np.roll(array, self.shift, self.axis)

    def part(self, array: np.ndarray, block: tuple[slice, ...]) -> np.ndarray:
        """A block of the result: a view where it does not pass the end of the array."""
        length = array.shape[self.axis]
        own = block[self.axis]
        start = (own.start - self.shift) % length
        over = start + own.stop - own.start - length
        if over <= 0:
            return array[self._along(block, slice(start, start + own.stop - own.start))]
        pieces = [array[self._along(block, each)] for each in (slice(start, length), slice(0, over))]
        return np.concatenate(pieces, axis=self.axis)

    def _along(self, block: tuple[slice, ...], own: slice) -> tuple[slice, ...]:
        return (*block[: self.axis], own, *block[self.axis + 1 :])


def roll_of(arguments: tuple[Any, ...], options: dict[str, Any]) -> Roll | None:
    """The roll that a call of `np.roll` asks for; None where NumPy must do it."""
    names = dict(zip(("a", "shift", "axis"), arguments, strict=False)) | options
    array, shift, axis = (names.get(name) for name in ("a", "shift", "axis"))
    if type(shift) is not int or len(names) != len(arguments) + len(options) or array is None:
        return None
    if axis is None and array.ndim == 1:
        axis = 0
    if type(axis) is not int or not -array.ndim <= axis < array.ndim or not array.size:
        return None
    return Roll(shift, axis % array.ndim)


def in_place_views(target: np.ndarray, inputs: tuple[Any, ...]) -> bool:
    """Whether a block of the target is only read by the same block: each input is the target itself, or elsewhere."""
    for each in inputs:
        if type(each) is not np.ndarray or not np.may_share_memory(each, target):
            continue
        same = each.shape == target.shape and each.strides == target.strides and each.dtype == target.dtype
        if not same or each.__array_interface__["data"][0] != target.__array_interface__["data"][0]:
            return False
    return True
