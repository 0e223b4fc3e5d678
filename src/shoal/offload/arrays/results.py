"""The type of an operation's result, as NumPy says it, asked once for each combination of types."""

from __future__ import annotations

from typing import Any

import numpy as np

KINDS = "?bhilqBHILQfdFD"
"""Types of elements that are captured: booleans, integers, and floating point numbers that the processor has."""


class LargeInt(int):
    """Stands for a Python integer that not every type of integers can hold."""


class LargeFloat(float):
    """Stands for a Python float that single precision cannot hold."""


SCALARS: dict[type, Any] = {bool: True, int: 1, float: 1.0, complex: 1j}
"""Of a Python scalar only the kind counts (NEP 50), but for a large integer beside an array of integers."""

_known: dict[tuple[Any, ...], np.dtype[Any] | None] = {}


def result_dtype(key: tuple[Any, ...]) -> np.dtype[Any] | None:
    """`key` is a ufunc, and for each argument its dtype, or the class of a Python scalar. None: it is not captured."""
    try:
        return _known[key]
    except KeyError:
        found = _ask(key)
        if found is not None or getattr(np, key[0].__name__, None) is key[0]:  # np.frompyfunc makes any number of them
            _known[key] = found
        return found


def _ask(key: tuple[Any, ...]) -> np.dtype[Any] | None:
    ufunc, *kinds = key
    if ufunc.nout != 1 or ufunc.signature is not None or ufunc.nin != len(kinds):
        return None
    if any(isinstance(kind, np.dtype) and kind.char not in KINDS for kind in kinds):
        return None
    exact = not any(isinstance(kind, np.dtype) and kind.kind in "fc" for kind in kinds)
    if LargeFloat in kinds:
        if any(isinstance(kind, np.dtype) and kind.char in "fF" for kind in kinds):
            return None  # the conversion of the number warns, not the operation
        kinds = [float if kind is LargeFloat else kind for kind in kinds]
    if exact and (LargeInt in kinds or ufunc is np.power):
        return None  # an error or not, that depends on the values
    sample = [
        np.ones(1, kind) if isinstance(kind, np.dtype) else SCALARS[kind] for kind in kinds if kind is not LargeInt
    ]
    sample += [1] * kinds.count(LargeInt)
    try:
        with np.errstate(all="ignore"):
            found = ufunc(*sample)
    except Exception:  # the plain call says it better, at the user's line
        return None
    return found.dtype if isinstance(found, np.ndarray) and found.dtype.char in KINDS else None


POWERS = {1: np.positive, -1: np.reciprocal, 0.5: np.sqrt, 2: np.square}
"""What NumPy's `**` calls for a scalar exponent of an array of floating point numbers, instead of `power`."""
