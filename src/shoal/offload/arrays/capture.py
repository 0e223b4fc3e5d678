"""Choice of the operations that are captured: large elementwise ones of the program itself, whose memory nobody else
can write.
"""

from __future__ import annotations

from math import prod
from typing import Any
from weakref import ref

import numpy as np

from shoal.offload.arrays.functions import Roll
from shoal.offload.arrays.lazy import DEEPEST, MOST_CONSUMERS, Filled, Lazy, Site, sequence
from shoal.offload.arrays.operators import add_operators
from shoal.offload.arrays.results import LargeFloat, LargeInt, result_dtype
from shoal.offload.arrays.state import error_state, is_program, own_files, state
from shoal.offload.arrays.tracked import Guarded, Tracked, memory


def capture(ufunc: Any, inputs: tuple[Any, ...], frame: Any) -> Lazy | None:
    """The pending result of an elementwise operation. None: it must be done at once, and `state.why` says why."""
    own = own_files.get(frame.f_code.co_filename)
    if not (is_program(frame) if own is None else own):
        return _stays("library")
    if error_state.get() is not state.ordinary:
        return _stays("error-state")
    key: list[Any] = [ufunc]
    taken: list[Any] = []
    shape: tuple[int, ...] | None = None
    deepest = 0
    pending: list[Lazy] = []
    leaves: list[tuple[Any, int]] = []
    for each in inputs:
        kind = type(each)
        if kind is Lazy:
            if each.value is None:
                own_shape = each.shape
                if each.depth >= DEEPEST or len(each.consumers) >= MOST_CONSUMERS:
                    each.compute()
            if each.value is None:
                pending.append(each)
                if each.depth > deepest:
                    deepest = each.depth
                key.append(each.dtype)
            else:
                each, kind = each.value, Tracked
        if kind is Tracked or kind is Guarded:
            root = memory.private_root(each)
            if not root:
                return _stays("shared-memory")
            leaves.append((each, root))
            own_shape = each.shape
            key.append(each.dtype)
        elif kind is float or kind is int or kind is bool or kind is complex:
            if kind is int and not 0 <= each <= 127:
                if not -(2**53) <= each <= 2**53:
                    return _stays("large-integer")
                kind = LargeInt
            elif kind is float and not -1e38 < each < 1e38:
                kind = LargeFloat
            key.append(kind)
            taken.append(each)
            continue
        elif isinstance(each, np.generic):
            key.append(each.dtype)
            taken.append(each)
            continue
        elif kind is np.ndarray:
            if each.size >= state.threshold:
                return _stays("plain-array")
            if not each.ndim:
                each = each[()]
                key.append(each.dtype)
                taken.append(each)
                continue
            each = each.copy()  # it is small, and the program may write into it
            own_shape = each.shape
            key.append(each.dtype)
        elif kind is not Lazy:
            return _stays("foreign-operand")
        taken.append(each)
        if shape is None:
            shape = own_shape
        elif shape != own_shape:
            try:
                shape = np.broadcast_shapes(shape, own_shape)
            except (ValueError, RuntimeError):  # the latter: more than 32 dimensions
                return _stays("types")  # the plain call raises the error
    dtype = result_dtype(tuple(key))
    if dtype is None or not shape:  # of an operation without dimensions NumPy gives a number
        return _stays("types")
    size = prod(shape)
    if size < state.threshold or (size < state.whole_numbers and dtype.kind in "iu" and not pending):
        return _stays("small")
    site = (frame.f_code, frame.f_lasti, frame.f_globals)
    level = 0
    for each in pending:
        if each.level > level:
            level = each.level
    if pending and type(ufunc) is Roll:
        level += 1
    result = defer(ufunc, tuple(taken), shape, dtype, site, deepest + 1, level)
    for producer in pending:
        producer.consumers.append(ref(result))
    for array, root in leaves:
        memory.guard(array, root, result)
    return result


def defer(
    ufunc: Any,
    inputs: tuple[Any, ...],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    site: Site,
    depth: int = 1,
    level: int = 0,
) -> Lazy:
    """A pending result, whose inputs nobody changes before it is computed."""
    result: Any = Filled()
    result.ufunc = ufunc
    result.inputs = inputs
    result.shape = shape
    result.dtype = dtype
    result.value = None
    result.reduced = False
    result.consumers = []
    result.depth = depth
    result.level = level
    result.site = site
    result.sequence = next(sequence)
    result.__class__ = Lazy
    return result  # type: ignore[no-any-return]


def _stays(reason: str) -> Lazy | None:
    state.why = reason
    return None


state.capture = capture
add_operators()
