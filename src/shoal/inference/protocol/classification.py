"""Triton's classification extension: instead of an output, its highest values with their indices, as strings."""

from __future__ import annotations

import numpy as np

from shoal.inference.errors import BadRequest
from shoal.inference.tensors import encode_strings, to_array
from shoal.inference.types import DataType, Tensor

MOST_SCORES = 1 << 20
"""Elements of an output that are put in order, while all other requests wait."""

MOST_CLASSES = 1 << 16
"""Classes of all rows together: each becomes a string."""


def top_classes(tensor: Tensor, count: int) -> Tensor:
    """The `count` highest values along the last axis, each as "VALUE:INDEX".

    (batch, classes) becomes BYTES of (batch, min(count, classes)), highest first, ties in the order of their index.
    Further axes are passed over if their length is 1, as in (batch, classes, 1, 1). Raises BadRequest for strings, and
    for more scores or classes than are taken.
    """
    where = f"output {tensor.name!r:.80}"
    if tensor.datatype is DataType.BYTES:
        raise BadRequest("strings cannot be classified", where=where)
    if tensor.elements > MOST_SCORES:
        hint = "ask for the output itself, as binary data"
        raise BadRequest(f"{tensor.elements} scores, {MOST_SCORES} are the most to classify", where=where, hint=hint)
    shape = list(tensor.shape)
    while len(shape) > 2 and shape[-1] == 1:
        shape.pop()
    classes = shape.pop() if shape else 1
    scores = to_array(tensor).reshape(-1, classes) if tensor.elements else np.empty((0, classes))
    kept = min(count, classes)
    if kept * len(scores) > MOST_CLASSES:
        hint = "ask for fewer, or for the output itself, as binary data"
        raise BadRequest(f"{kept * len(scores)} classes, {MOST_CLASSES} are the most", where=where, hint=hint)
    best = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")[:, :kept]
    form = "{:f}:{}" if scores.dtype.kind == "f" else "{:d}:{}"
    told = [
        form.format(value, index)
        for row, indices in zip(scores, best, strict=True)
        for value, index in zip(row[indices].tolist(), indices.tolist(), strict=True)
    ]
    return Tensor(tensor.name, DataType.BYTES, (*shape, kept), encode_strings(told))
