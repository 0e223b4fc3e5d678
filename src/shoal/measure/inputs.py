"""What requests carry: random, zero or given tensors that fit a model's inputs, and how they are written down.

Tensors travel in the Open Inference Protocol's binary layout (the `binary_tensor_data` extension: little-endian,
row-major, `BYTES` elements with a 4-byte length in front) or as JSON.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from shoal.core import Invalid, NotFound
from shoal.measure.types import InputMaker, Inputs, TensorSpec

DTYPES: Mapping[str, Any] = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "BF16": np.uint16, "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_,
}  # fmt: skip
"""numpy has no BF16: its bits stand in 16-bit integers."""

_VARIETY = 8
"""How many different requests a load goes round, so that a cache of answers cannot do the model's work."""

Shapes = Mapping[str, tuple[int, ...]]


def random_inputs(*, batch: int = 1, shapes: Shapes | None = None, variety: int = _VARIETY) -> InputMaker:
    """Numbers evenly from [0, 1), or [0, 10) for integers, and words of 16 letters. `batch` stands for a first
    dimension of -1; `shapes` names the shapes of inputs with other free dimensions."""

    def make(specs: Sequence[TensorSpec], rng: np.random.Generator) -> Sequence[Inputs]:
        wanted = _shapes(specs, batch, shapes or {})
        return [{spec.name: _random(spec.datatype, wanted[spec.name], rng) for spec in specs} for _ in range(variety)]

    return make


def zero_inputs(*, batch: int = 1, shapes: Shapes | None = None) -> InputMaker:
    """Zeros and empty words, the cheapest input there is for many a model."""

    def make(specs: Sequence[TensorSpec], rng: np.random.Generator) -> Sequence[Inputs]:  # noqa: ARG001
        wanted = _shapes(specs, batch, shapes or {})
        return [{spec.name: _zeros(spec.datatype, wanted[spec.name]) for spec in specs}]

    return make


def given_inputs(examples: Sequence[Inputs]) -> InputMaker:
    """These requests, whose names and shapes are checked against the model's."""

    def make(specs: Sequence[TensorSpec], rng: np.random.Generator) -> Sequence[Inputs]:  # noqa: ARG001
        if not examples:
            raise Invalid("there is not one example", where="inputs")
        for number, example in enumerate(examples):
            _check(example, specs, f"example {number}")
        return examples

    return make


def inputs_from_file(path: Path) -> InputMaker:
    """Examples from JSON (an inference request of the protocol, or a list of them) or from `.npz` (one array for each
    input, whose first axis counts the examples). Raises NotFound or Invalid."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return given_inputs(_unstacked(dict(arrays), str(path)))
        document = json.loads(path.read_text())
    except FileNotFoundError:
        raise NotFound("there is no such file", where=str(path)) from None
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        # An `.npz` that is cut off, empty, or no archive at all raises one of the last four.
        raise Invalid(f"the examples cannot be read: {error}", where=str(path), hint="give .npz or .json") from error
    requests = document if isinstance(document, list) else [document]
    return given_inputs([_from_json(one, f"{path}[{at}]") for at, one in enumerate(requests)])


@dataclass(frozen=True, slots=True)
class Body:
    """One request's body. `json_length` is that of its JSON part if binary tensors follow, else None."""

    data: bytes
    json_length: int | None


def encode(inputs: Inputs, specs: Sequence[TensorSpec], *, binary: bool) -> Body:
    """One inference request. Outputs are asked for in the same form as the inputs have."""
    tensors: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for spec in specs:
        if spec.name not in inputs:
            continue
        array = inputs[spec.name]
        tensor: dict[str, Any] = {"name": spec.name, "datatype": spec.datatype, "shape": list(array.shape)}
        if binary:
            blob = _binary(array, spec.datatype)
            tensor["parameters"] = {"binary_data_size": len(blob)}
            blobs.append(blob)
        else:
            tensor["data"] = _listed(array, spec)
        tensors.append(tensor)
    request: dict[str, Any] = {"inputs": tensors}
    if not binary:
        return Body(orjson.dumps(request, option=orjson.OPT_SERIALIZE_NUMPY), None)
    request["parameters"] = {"binary_data_output": True}
    text = orjson.dumps(request)
    return Body(b"".join((text, *blobs)), len(text))


def _binary(array: NDArray[Any], datatype: str) -> bytes:
    if datatype != "BYTES":
        kind = np.dtype(DTYPES[datatype]).newbyteorder("<")
        return np.ascontiguousarray(array, dtype=kind).tobytes()
    words = [_word(one) for one in array.ravel()]
    return b"".join(len(word).to_bytes(4, "little") + word for word in words)


def _listed(array: NDArray[Any], spec: TensorSpec) -> Any:
    if spec.datatype in ("FP16", "BF16"):
        raise Invalid(
            f"the protocol has no JSON for {spec.datatype}", where=f"input {spec.name}", hint="send it in binary"
        )
    if spec.datatype == "BYTES":
        return [_word(one).decode("utf-8", errors="replace") for one in array.ravel()]
    return np.ascontiguousarray(array, dtype=DTYPES[spec.datatype]).ravel()


def _word(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _shapes(specs: Sequence[TensorSpec], batch: int, given: Shapes) -> dict[str, tuple[int, ...]]:
    """Each input's shape with nothing left open."""
    if batch < 1:
        raise Invalid(f"a batch of {batch} is empty", where="batch")
    names = {spec.name for spec in specs}
    for name in given:
        if name not in names:
            raise Invalid(f"the model has no input {name!r}", where="shape", hint=f"it has {', '.join(sorted(names))}")
    return {spec.name: _shape(spec, batch, given.get(spec.name)) for spec in specs}


def _shape(spec: TensorSpec, batch: int, given: tuple[int, ...] | None) -> tuple[int, ...]:
    _known(spec)
    if given is not None:
        _fits(given, spec, f"shape of {spec.name}")
        return given
    shape = tuple(batch if axis == 0 and size < 0 else size for axis, size in enumerate(spec.shape))
    if any(size < 0 for size in shape):
        raise Invalid(
            f"the input {spec.name!r} has free dimensions: {_text(spec.shape)}",
            where="shape",
            hint=f"name its shape, as in {spec.name}:{'x'.join(str(size if size > 0 else 64) for size in shape)}",
        )
    return shape


def _fits(shape: tuple[int, ...], spec: TensorSpec, where: str) -> None:
    right = len(shape) == len(spec.shape)
    if not right or any(want not in (-1, size) for size, want in zip(shape, spec.shape, strict=True)):
        raise Invalid(f"{_text(shape)} does not fit the input {spec.name!r}, {_text(spec.shape)}", where=where)


def _check(example: Inputs, specs: Sequence[TensorSpec], where: str) -> None:
    known = {spec.name: spec for spec in specs}
    if set(example) != set(known):
        names = ", ".join(sorted(known))
        raise Invalid(f"it has the inputs {', '.join(sorted(example))}; the model takes {names}", where=where)
    for name, array in example.items():
        _known(known[name])
        _fits(array.shape, known[name], where)


def _known(spec: TensorSpec) -> None:
    if spec.datatype not in DTYPES:
        raise Invalid(f"the input {spec.name!r} has the unknown datatype {spec.datatype!r}", where="inputs")


def _random(datatype: str, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    kind = np.dtype(DTYPES[datatype])
    if datatype == "BYTES":
        words = np.empty(math.prod(shape), dtype=object)
        words[:] = [rng.integers(97, 123, size=16, dtype=np.uint8).tobytes() for _ in range(len(words))]
        return words.reshape(shape)
    if datatype == "BOOL":
        return rng.integers(0, 2, size=shape).astype(np.bool_)
    if datatype == "BF16":
        return (rng.random(shape, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if kind.kind == "f":
        return rng.random(shape, dtype=np.float32).astype(kind)
    return rng.integers(0, 10, size=shape).astype(kind)


def _zeros(datatype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    if datatype == "BYTES":
        return np.full(shape, b"", dtype=object)
    return np.zeros(shape, dtype=DTYPES[datatype])


def _unstacked(arrays: dict[str, NDArray[Any]], where: str) -> list[Inputs]:
    counts = {len(array) if array.ndim else 0 for array in arrays.values()}
    if len(counts) != 1 or counts == {0}:
        raise Invalid("its arrays have no first axis in common that counts the examples", where=where)
    return [{name: array[at] for name, array in arrays.items()} for at in range(counts.pop())]


def _from_json(request: Any, where: str) -> Inputs:
    hint = 'write it as {"inputs": [{"name": ..., "datatype": ..., "shape": [...], "data": [...]}]}'
    try:
        made: dict[str, NDArray[Any]] = {}
        for tensor in request["inputs"]:
            made[str(tensor["name"])] = _from_list(tensor["data"], str(tensor["datatype"]), tuple(tensor["shape"]))
        return made
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Invalid(f"it is no inference request: {error!r}", where=where, hint=hint) from None


def _from_list(data: Any, datatype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    if datatype == "BYTES":
        flat = np.array(data, dtype=object).ravel()
        return np.array([_word(one) for one in flat] + [None], dtype=object)[:-1].reshape(shape)
    if datatype == "BF16":
        return (np.asarray(data, dtype=np.float32).reshape(shape).view(np.uint32) >> 16).astype(np.uint16)
    return np.asarray(data, dtype=DTYPES[datatype]).reshape(shape)


def _text(shape: Sequence[int]) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"
