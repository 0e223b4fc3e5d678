"""Operations that a class of the program or of another library decides about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from shoal.offload.arrays.exports import as_ndarray
from shoal.offload.arrays.lazy import Lazy
from shoal.offload.arrays.tracked import Guarded, Tracked, memory, strip

_ORDINARY = np.ndarray.__array_ufunc__
_CAPTURED = (Tracked, Guarded, Lazy)


class Lent(np.ndarray[Any, Any]):
    """An array that is an output of such an operation, while that goes on."""

    __slots__ = ()


as_ndarray(Lent)


def decides(operand: Any) -> bool:
    """Whether NumPy asks the class of this operand what an operation gives."""
    kind = type(operand)
    return kind not in _CAPTURED and getattr(kind, "__array_ufunc__", _ORDINARY) is not _ORDINARY


def ask(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What such a class gives for an operation with outputs: it sees the caller's own objects, and not plain arrays."""
    outs = options["out"]
    with _lent(outs) as own:
        known = {id(each): given for each, given in zip(outs, own, strict=True)}
        taken = [known[id(each)] if id(each) in known else strip(each) for each in inputs]
        named = {key: own if key == "out" else strip(value) for key, value in options.items()}
        return own_outputs(outs, own, getattr(ufunc, method)(*taken, **named))


@contextmanager
def _lent(outs: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Outputs whose class decides nothing meanwhile. A plain array of their memory may be kept by who sees them."""
    own = tuple(each.compute() if type(each) is Lazy else each for each in outs)
    lent = [each for each in own if type(each) in (Tracked, Guarded)]
    for each in lent:
        memory.flush(each)
        memory.escape(each)
        each.__class__ = Lent
    try:
        yield own
    finally:
        for each in lent:
            each.__class__ = Tracked


def own_outputs(outs: Any, given: Any, result: Any) -> Any:
    """The caller's own arrays in place of those that were written for them, as NumPy returns them."""
    own = {id(lent): each for each, lent in zip(outs, given, strict=True)} if type(outs) is tuple else {}
    if type(result) is tuple:
        return tuple(own.get(id(each), each) for each in result)
    return own.get(id(result), result)
