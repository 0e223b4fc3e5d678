"""Contents of requests: random, zero or given tensors that fit a model's inputs, and how they are written down.

Arrays are as in `shoal.inference.tensors`: strings are objects, and BF16, which numpy lacks, is FP32.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.core import Invalid, NotFound
from shoal.inference.protocol import requests, values
from shoal.inference.tensors import contents, numpy_dtype, to_array
from shoal.inference.types import DataType, InferRequest, Tensor, TensorSpec
from shoal.measure.types import InputMaker, Inputs

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


def encode(inputs: Inputs, specs: Sequence[TensorSpec], *, binary: bool) -> tuple[bytes, int | None]:
    """One inference request's body, and the length of its JSON part if binary tensors follow. Outputs are asked for in
    the same form as the inputs have."""
    tensors = [
        Tensor(spec.name, spec.datatype, inputs[spec.name].shape, contents(inputs[spec.name], spec.datatype))
        for spec in specs
        if spec.name in inputs
    ]
    request = InferRequest("", tensors)
    if not binary:
        return requests.encode_json(request), None
    text, blobs = requests.encode(request)
    return b"".join((text, *blobs)), len(text)


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
        _fits(array.shape, known[name], where)


def _random(datatype: DataType, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    kind = numpy_dtype(datatype)
    if datatype is DataType.BYTES:
        words = np.empty(math.prod(shape), dtype=object)
        words[:] = [rng.integers(97, 123, size=16, dtype=np.uint8).tobytes() for _ in range(len(words))]
        return words.reshape(shape)
    if datatype is DataType.BF16:  # numbers that it holds exactly
        return (rng.random(shape, dtype=np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    if datatype is DataType.BOOL:
        return rng.integers(0, 2, size=shape).astype(np.bool_)
    if kind.kind == "f":
        return rng.random(shape, dtype=np.float32).astype(kind)
    return rng.integers(0, 10, size=shape).astype(kind)


def _zeros(datatype: DataType, shape: tuple[int, ...]) -> NDArray[Any]:
    if datatype is DataType.BYTES:
        return np.full(shape, b"", dtype=object)
    return np.zeros(shape, dtype=numpy_dtype(datatype))


def _unstacked(arrays: dict[str, NDArray[Any]], where: str) -> list[Inputs]:
    counts = {len(array) if array.ndim else 0 for array in arrays.values()}
    if len(counts) != 1 or counts == {0}:
        raise Invalid("its arrays have no first axis in common that counts the examples", where=where)
    return [{name: array[at] for name, array in arrays.items()} for at in range(counts.pop())]


def _from_json(request: Any, where: str) -> Inputs:
    hint = 'write it as {"inputs": [{"name": ..., "datatype": ..., "shape": [...], "data": [...]}]}'
    try:
        return {str(tensor["name"]): to_array(_tensor(tensor, where)) for tensor in request["inputs"]}
    except (KeyError, TypeError) as error:
        raise Invalid(f"it is no inference request: {error!r}", where=where, hint=hint) from None


def _tensor(tensor: Any, where: str) -> Tensor:
    where = f"{where}: {tensor['name']!r:.80}"
    kind = values.read_datatype(tensor["datatype"], where)
    shape = values.read_shape(tensor["shape"], kind, where)
    return Tensor(str(tensor["name"]), kind, shape, values.from_json(tensor["data"], kind, shape, where))


def _text(shape: Sequence[int]) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"
