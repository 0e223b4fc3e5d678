"""Tensors as bytes and as arrays, requests put together and answers taken apart, and requests checked against a model.

Everything here is a pure function. Requests are put together as bytes, without a look inside: in a row-major layout the
rows of one tensor follow those of another. BF16 tensors, which numpy lacks, are FP32 arrays in Python, widened
exactly and rounded to the nearest even on the way back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from shoal.inference.errors import BadRequest, ModelFailed
from shoal.inference.runtime import Array
from shoal.inference.types import EXPLAIN, Buffer, DataType, InferRequest, ModelMetadata, Tensor, TensorSpec

_NUMPY: dict[DataType, np.dtype[Any]] = {
    DataType.BOOL: np.dtype("?"),
    DataType.UINT8: np.dtype("u1"), DataType.UINT16: np.dtype("<u2"),
    DataType.UINT32: np.dtype("<u4"), DataType.UINT64: np.dtype("<u8"),
    DataType.INT8: np.dtype("i1"), DataType.INT16: np.dtype("<i2"),
    DataType.INT32: np.dtype("<i4"), DataType.INT64: np.dtype("<i8"),
    DataType.FP16: np.dtype("<f2"), DataType.FP32: np.dtype("<f4"), DataType.FP64: np.dtype("<f8"),
    DataType.BF16: np.dtype("<f4"), DataType.BYTES: np.dtype(object),
}  # fmt: skip

_DATATYPES = {(dtype.kind, dtype.itemsize): name for name, dtype in _NUMPY.items() if name is not DataType.BF16}

_LENGTH = struct.Struct("<I")


def numpy_dtype(datatype: DataType) -> np.dtype[Any]:
    """What an array of this type has in Python: `object` (of `bytes`) for BYTES, float32 for BF16."""
    return _NUMPY[datatype]


def datatype_of(array: Array) -> DataType:
    """Raises ModelFailed for a type that the protocol cannot carry."""
    if array.dtype.kind in "SU":
        return DataType.BYTES
    found = _DATATYPES.get((array.dtype.kind, array.dtype.itemsize))
    if found is None:
        raise ModelFailed(f"an array of {array.dtype} has no datatype in the protocol", hint="cast it in the model")
    return found


def to_array(tensor: Tensor) -> Array:
    """A read-only view of the tensor's bytes (a copy for BYTES and BF16). Raises BadRequest if they do not fit it."""
    check_contents(tensor)
    datatype = tensor.datatype
    if datatype is DataType.BYTES:
        strings = np.empty(tensor.elements, object)
        strings[:] = decode_strings(tensor.data, tensor.elements, where=f"input {tensor.name!r}")
        return strings.reshape(tensor.shape)
    data = memoryview(tensor.data).toreadonly()
    if datatype is DataType.BF16:
        halves = np.ndarray(tensor.shape, "<u2", data)
        return (halves.astype("<u4") << 16).view("<f4")
    return np.ndarray(tensor.shape, _NUMPY[datatype], data)


def to_tensor(name: str, array: Array, datatype: DataType | None = None) -> Tensor:
    """`datatype` only where the array's own type does not say it: BF16. Raises ModelFailed as `datatype_of` does."""
    kind = datatype if datatype is DataType.BF16 else datatype_of(array)
    return Tensor(name, kind, array.shape, contents(array, kind))


def contents(array: Array, datatype: DataType) -> Buffer:
    """The array in the protocol's layout; no copy if it already lies so."""
    if datatype is DataType.BYTES:
        return encode_strings(array.ravel())
    if datatype is DataType.BF16:
        return _to_bf16(array)
    flat = np.ascontiguousarray(array, _NUMPY[datatype]).reshape(-1)
    return flat.view(np.uint8).data if flat.size else b""


def _to_bf16(array: Array) -> Buffer:
    bits = np.ascontiguousarray(array, "<f4").reshape(-1).view("<u4")
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")
    nan = np.isnan(array).reshape(-1)
    rounded[nan] = (bits[nan] >> 16).astype("<u2") | 0x40  # rounding would turn some of them into infinity
    raw: bytes = rounded.tobytes()
    return raw


def decode_strings(data: Buffer, count: int, *, where: str) -> list[bytes]:
    """The elements of a BYTES tensor. Raises BadRequest unless there are exactly `count` and nothing is left."""
    view, size = memoryview(data), len(data)
    elements: list[bytes] = []
    at = 0
    while at < size:
        if at + 4 > size:
            raise BadRequest(f"{size - at} bytes are left over at byte {at}: too few for a length", where=where)
        (length,) = _LENGTH.unpack_from(view, at)
        at += 4
        if at + length > size:
            raise BadRequest(f"the element at byte {at} claims {length} bytes, {size - at} are left", where=where)
        if len(elements) == count:
            raise BadRequest(f"more than {count} elements, which is what its shape says", where=where)
        elements.append(bytes(view[at : at + length]))
        at += length
    if len(elements) != count:
        raise BadRequest(f"{len(elements)} elements, its shape says {count}", where=where)
    return elements


def encode_strings(elements: Iterable[bytes | str]) -> bytes:
    """`elements` one after the other, each with its length in front; text as UTF-8."""
    parts: list[bytes] = []
    for element in elements:
        raw = element if isinstance(element, bytes) else str(element).encode()
        parts += (_LENGTH.pack(len(raw)), raw)
    return b"".join(parts)


def as_text(array: Array, where: str) -> Array:
    """An array of `bytes` as one of `str`. Raises BadRequest for what is not UTF-8."""
    text = np.empty(array.size, object)
    try:
        text[:] = [element.decode() for element in array.flat]
    except UnicodeDecodeError as error:
        raise BadRequest(f"an element is not UTF-8: {error.reason}", where=where) from error
    return text.reshape(array.shape)


def check_contents(tensor: Tensor) -> None:
    """Raises BadRequest unless the tensor has exactly as many bytes as its shape and type need. The inside of BYTES
    is not looked at: see `check_request`."""
    check_size(tensor.datatype, tensor.shape, len(tensor.data), f"input {tensor.name!r:.80}")


def check_size(kind: DataType, shape: Sequence[int], size: int, where: str) -> None:
    """Raises BadRequest unless a tensor of this type and shape has `size` bytes. One of BYTES may have any number."""
    if kind.size is not None and (needed := prod(shape) * kind.size) != size:
        raise BadRequest(f"{kind} of shape {list(shape)} takes {needed} bytes, but {size} are given", where=where)


def check_request(request: InferRequest, metadata: ModelMetadata) -> None:
    """Whether the model can be run on this request at all: names, types, shapes, sizes, and the outputs asked for.

    Raises BadRequest with the complaint. Needs only the metadata, so the gateway can refuse at once.
    """
    if metadata.sequences_only and request.sequence is None:
        raise BadRequest(
            "the model keeps state from request to request, and this one belongs to no sequence",
            where=_place(metadata),
            hint="send sequence_id, and sequence_start with the first request of a sequence",
        )
    specs = {spec.name: spec for spec in metadata.inputs}
    seen: set[str] = set()
    for tensor in request.inputs:
        spec = specs.get(tensor.name)
        if spec is None:
            raise BadRequest(
                f"the model has no input {tensor.name!r}", where=_place(metadata), hint=f"its inputs: {_names(specs)}"
            )
        if tensor.name in seen:
            raise BadRequest(f"input {tensor.name!r} is given twice", where=_place(metadata))
        seen.add(tensor.name)
        _check_tensor(tensor, spec, metadata)
    if len(seen) < len(specs):
        missing = ", ".join(repr(name) for name in specs if name not in seen)
        raise BadRequest(f"without input {missing}", where=_place(metadata), hint=f"its inputs: {_names(specs)}")
    if metadata.max_batch > 1:
        _check_batch(request, metadata)
    if metadata.on_request and type(request.parameters.get(EXPLAIN, False)) is not bool:
        raise BadRequest("must be true or false", where=f"parameters.{EXPLAIN}")
    if request.outputs:
        known = {spec.name for spec in metadata.outputs}
        for output in request.outputs:
            if output.name not in known:
                raise BadRequest(
                    f"the model has no output {output.name!r}",
                    where=_place(metadata),
                    hint=f"its outputs: {_names(known)}",
                )


def outputs_for(request: InferRequest, metadata: ModelMetadata) -> tuple[str, ...]:
    """The names of the outputs that the request is given; none for all."""
    named = [output.name for output in request.outputs]
    if not metadata.on_request and not metadata.always:
        return tuple(named)
    if not named:
        named = [spec.name for spec in metadata.outputs if spec.name not in metadata.on_request]
    more = metadata.always + (metadata.on_request if request.parameters.get(EXPLAIN) is True else ())
    return tuple(dict.fromkeys([*named, *more]))


def _check_tensor(tensor: Tensor, spec: TensorSpec, metadata: ModelMetadata) -> None:
    if tensor.datatype is not spec.datatype:
        raise BadRequest(
            f"input {tensor.name!r} is {tensor.datatype}, the model takes {spec.datatype}", where=_place(metadata)
        )
    given, wanted = tensor.shape, spec.shape
    if len(given) != len(wanted) or any(w not in (-1, g) or g < 0 for g, w in zip(given, wanted, strict=True)):
        raise BadRequest(
            f"input {tensor.name!r} has shape {list(given)}, the model takes {list(wanted)}",
            where=_place(metadata),
            hint="-1 stands for any length",
        )
    if tensor.datatype is DataType.BYTES:
        decode_strings(tensor.data, tensor.elements, where=f"input {tensor.name!r}")
    else:
        check_contents(tensor)


def _check_batch(request: InferRequest, metadata: ModelMetadata) -> None:
    samples = request.inputs[0].shape[0]
    for tensor in request.inputs:
        if tensor.shape[0] != samples:
            raise BadRequest(
                f"input {request.inputs[0].name!r} has {samples} samples and {tensor.name!r} {tensor.shape[0]}",
                where=_place(metadata),
                hint="the first dimension is the batch's and the same for all inputs",
            )
    if not 1 <= samples <= metadata.max_batch:
        raise BadRequest(
            f"a batch of {samples}, the model takes 1 to {metadata.max_batch}",
            where=_place(metadata),
            hint="send the samples in several requests",
        )


def _place(metadata: ModelMetadata) -> str:
    return f"model {metadata.name!r}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def samples_in(request: InferRequest, metadata: ModelMetadata) -> int:
    """The size of a checked request along the batch dimension; 1 if the model has none."""
    return request.inputs[0].shape[0] if metadata.max_batch > 1 and request.inputs else 1


def batch_key(request: InferRequest) -> object:
    """Requests to one model version may be put together if their keys are equal: the same types and shapes but for
    the first dimension."""
    return tuple(sorted([(tensor.name, tensor.datatype, tensor.shape[1:]) for tensor in request.inputs]))


@dataclass(frozen=True, slots=True)
class Stacked:
    """One input of several requests: `parts`, one after the other, are the contents of `shape`."""

    name: str
    datatype: DataType
    shape: tuple[int, ...]
    parts: tuple[Buffer, ...]
    nbytes: int


def stack(requests: Sequence[InferRequest]) -> tuple[list[Stacked], list[int]]:
    """Put requests of one batch key together along the first dimension: the inputs in the order of the first request,
    and how many samples each request brings. One request alone may have any shapes, and counts as one sample."""
    first = requests[0]
    if len(requests) == 1:
        return [Stacked(t.name, t.datatype, t.shape, (t.data,), len(t.data)) for t in first.inputs], [1]
    sizes = [request.inputs[0].shape[0] for request in requests]
    by_name = [{tensor.name: tensor for tensor in request.inputs} for request in requests]
    stacked = []
    for head in first.inputs:
        parts = tuple(tensors[head.name].data for tensors in by_name)
        shape = (sum(sizes), *head.shape[1:])
        stacked.append(Stacked(head.name, head.datatype, shape, parts, sum(map(len, parts))))
    return stacked, sizes


def split(outputs: Mapping[str, Array], sizes: Sequence[int]) -> list[dict[str, Array]]:
    """Take the outputs of a batch apart: views of `sizes[i]` rows for request i. Raises ModelFailed for an output
    that has not one row per sample."""
    if len(sizes) == 1:
        return [dict(outputs)]
    total = sum(sizes)
    for name, array in outputs.items():
        if array.ndim == 0 or array.shape[0] != total:
            raise ModelFailed(
                f"output {name!r} has shape {list(array.shape)} for a batch of {total}",
                hint="its first dimension must be the batch's; set max_batch: 1 for this model",
            )
    parts, start = [], 0
    for size in sizes:
        parts.append({name: array[start : start + size] for name, array in outputs.items()})
        start += size
    return parts
