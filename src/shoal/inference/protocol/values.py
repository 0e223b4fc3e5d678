"""Forms of a tensor on the wire, and its contents as JSON values.

The inside of BYTES contents is not looked at here: `shoal.inference.tensors.check_request` does, which knows the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from shoal.inference.errors import BadRequest
from shoal.inference.tensors import decode_strings, encode_strings, numpy_dtype
from shoal.inference.types import Buffer, DataType

MOST_DIMENSIONS = 64
"""As in numpy."""

MOST_ELEMENTS = 1 << 48
"""More than any body holds; so that sizes stay numbers that can be written down."""

MOST_STRINGS = 1 << 18
"""Elements of a BYTES tensor: they are read one by one, while all other requests wait."""

MOST_TYPED = 1 << 22
"""Numbers of a tensor that travel one by one, as values of JSON or of a message's typed contents."""

_DATATYPES = {kind.value: kind for kind in DataType}
_FLOATS = frozenset({DataType.FP16, DataType.FP32, DataType.FP64})
_INTEGERS = frozenset({int})
_JSON_TYPES = {
    DataType.BOOL: frozenset({bool}),
    DataType.BYTES: frozenset({str}),
    **{kind: frozenset({int, float}) for kind in _FLOATS},
}


def read_datatype(value: object, where: str) -> DataType:
    kind = _DATATYPES.get(value) if type(value) is str else None
    if kind is None:
        raise BadRequest(f"{value!r:.40} is no datatype", where=where, hint=f"use one of {', '.join(_DATATYPES)}")
    return kind


def read_shape(value: object, kind: DataType, where: str) -> tuple[int, ...]:
    """A list of lengths, none of them negative."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise BadRequest("the shape must be a list of integers", where=where)
    if len(value) > MOST_DIMENSIONS:
        raise BadRequest(f"a shape has at most {MOST_DIMENSIONS} dimensions, this one {len(value)}", where=where)
    for length in value:
        if type(length) is not int or length < 0:
            raise BadRequest(f"{length!r:.40} is no length of a dimension", where=where, hint="0 or a positive integer")
    most = MOST_STRINGS if kind is DataType.BYTES else MOST_ELEMENTS
    if prod([length or 1 for length in value]) > most:  # lengths of 0 must not hide lengths that nothing can hold
        raise BadRequest(
            f"a tensor of {kind} has at most {most} elements", where=where, hint="lengths of 0 count as 1 here"
        )
    return tuple(value)


def from_json(values: object, kind: DataType, shape: tuple[int, ...], where: str) -> bytes:
    """Contents out of JSON values, either flat or nested as the shape says."""
    if kind is DataType.BF16:
        raise BadRequest("BF16 cannot be sent as JSON", where=where, hint="send it as binary data")
    flat = _flat(values, shape, where)
    allowed = _JSON_TYPES.get(kind, _INTEGERS)
    if not set(map(type, flat)) <= allowed:
        wrong = next(value for value in flat if type(value) not in allowed)
        raise BadRequest(f"{wrong!r:.40} is no {kind}", where=where)
    if kind is DataType.BYTES:
        return encode_strings(flat)
    data = pack_numbers(flat, kind, where)
    if kind in _FLOATS and not np.isfinite(np.frombuffer(data, numpy_dtype(kind))).all():
        raise BadRequest(f"a value is out of the range of {kind}", where=where)
    return data


def to_json(data: Buffer, kind: DataType, shape: tuple[int, ...], where: str) -> Any:
    """Flat values that `orjson` writes (with OPT_SERIALIZE_NUMPY).

    Raises BadRequest for what JSON has no words for: BF16, NaN, infinities, and strings that are not UTF-8.
    """
    hint = "ask for it with binary_data"
    if kind is DataType.BYTES:
        try:
            return [element.decode() for element in decode_strings(data, prod(shape), where=where)]
        except UnicodeDecodeError:
            raise BadRequest("an element is not UTF-8 and cannot be sent as JSON", where=where, hint=hint) from None
    if kind is DataType.BF16:
        raise BadRequest("BF16 cannot be sent as JSON", where=where, hint=hint)
    array = np.frombuffer(data, numpy_dtype(kind))
    if array.size > MOST_TYPED:
        raise BadRequest(f"{array.size} elements are too many to be written as JSON", where=where, hint=hint)
    if kind in _FLOATS and not np.isfinite(array).all():
        raise BadRequest("NaN or infinity cannot be sent as JSON", where=where, hint=hint)
    return array if array.flags.aligned else array.copy()


def pack_numbers(values: Sequence[Any], kind: DataType, where: str) -> bytes:
    """Contents out of numbers that are known to be of the right Python type. Integers out of range raise BadRequest,
    reals become infinite."""
    try:
        with np.errstate(over="ignore"):
            return np.array(values, numpy_dtype(kind)).tobytes()
    except OverflowError:
        raise BadRequest(f"a value is out of the range of {kind}", where=where) from None


def _flat(values: object, shape: tuple[int, ...], where: str) -> list[Any]:
    if type(values) is not list:
        raise BadRequest("data must be a list", where=where)
    level: list[Any] = values
    if list in set(map(type, level)):
        nested = bool(shape) and len(level) == shape[0]
        for length in shape[1:]:
            nested = nested and set(map(type, level)) <= {list} and set(map(len, level)) <= {length}
            if nested:
                level = list(chain.from_iterable(level))
        if not nested:
            raise BadRequest(
                f"data is nested, but not as shape {list(shape)} says", where=where, hint="or send it flat"
            )
    if len(level) != prod(shape):
        needed = prod(shape)
        raise BadRequest(f"shape {list(shape)} takes {needed} elements, but {len(level)} are given", where=where)
    return level
