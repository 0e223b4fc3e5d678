"""An inference request over REST: JSON, with tensors in it or, with the binary tensor data extension, behind it.

A body is a JSON header of `Inference-Header-Content-Length` bytes, then the binary tensors one after the other, in the
order of the inputs that have a `binary_data_size`. Binary tensors become views of the body, never copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import orjson

from shoal.inference.errors import BadRequest
from shoal.inference.protocol import values
from shoal.inference.protocol.regions import Place, Regions, place_of
from shoal.inference.tensors import check_size, encode_strings
from shoal.inference.types import (
    Buffer,
    DataType,
    InferRequest,
    ModelMetadata,
    Parameter,
    RequestedOutput,
    SequenceStep,
    Tensor,
)

_SCALARS = frozenset({bool, int, float, str})
MOST_TENSORS = 4096
"""Inputs of a request, and outputs asked for: a pipeline over a table has an input for each column."""

MOST_PARAMETERS = 64
"""Of a request, and of each tensor in it."""

MOST_SEQUENCE_ID = 256
"""Characters of a sequence's id: a UUID has 36."""

_WORTH_KEEPING = 2048
"""Bytes of the longest header that is remembered; for a handful of binary tensors it takes a few hundred."""


@dataclass(frozen=True, slots=True)
class Reply:
    """How the caller wants its answer. `binary` holds for the outputs that `outputs` does not name; those of `places`
    are written to shared memory instead."""

    binary: bool = False
    outputs: tuple[RequestedOutput, ...] = ()
    places: tuple[tuple[str, Place], ...] = ()


@dataclass(frozen=True, slots=True)
class _Input:
    """As announced: the contents are `data`, or at `place`, or else the next `size` bytes behind the header."""

    name: str
    datatype: DataType
    shape: tuple[int, ...]
    size: int
    place: Place | None
    data: bytes | None


@dataclass(frozen=True, slots=True)
class _Header:
    id: str
    inputs: tuple[_Input, ...]
    binary_size: int
    reply: Reply
    parameters: Mapping[str, Parameter]
    timeout_s: float | None
    sequence: SequenceStep | None = None


def decode(
    model: str, version: str | None, tenant: str, body: Buffer, header_length: int | None, regions: Regions
) -> tuple[InferRequest, Reply]:
    """Read a request; `header_length` is None where the whole body is JSON. Raises BadRequest.

    Tensors are views of `body`, which must not change as long as they are used.
    """
    view = memoryview(body)
    if header_length is None:
        header_length = len(view)
    elif header_length > len(view):
        raise BadRequest(
            f"the JSON is said to take {header_length} bytes, the whole body has {len(view)}",
            where="Inference-Header-Content-Length",
        )
    # Clients repeat themselves: a header of binary tensors is mostly equal, byte for byte, to an earlier one.
    if header_length <= _WORTH_KEEPING:
        header = _remembered(bytes(view[:header_length]))
    else:
        header = _parse(view[:header_length])
    at = header_length
    if at + header.binary_size != len(view):
        raise BadRequest(
            f"the inputs announce {header.binary_size} bytes of binary data, {len(view) - at} follow the JSON",
            where="body",
            hint="set binary_data_size and Inference-Header-Content-Length to the bytes that are sent",
        )
    inputs = []
    for one in header.inputs:
        data: Buffer
        if one.data is not None:
            data = one.data
        elif one.place is not None:
            data = regions.read(tenant, one.place)
        else:
            data = view[at : at + one.size]
            at += one.size
        inputs.append(Tensor(one.name, one.datatype, one.shape, data))
    check_strings(inputs)
    reply = header.reply
    for _, place in reply.places:
        regions.check(tenant, place)
    request = InferRequest(
        model,
        inputs,
        tenant,
        version,
        header.id,
        reply.outputs,
        dict(header.parameters),
        header.timeout_s,
        header.sequence,
    )
    return request, reply


def decode_raw(
    model: str, version: str | None, tenant: str, body: Buffer, metadata: ModelMetadata
) -> tuple[InferRequest, Reply]:
    """Read a request without JSON (a header length of 0): the body is the model's only input, all answers are binary.

    A free dimension is worked out from the body's size; if the batch dimension is not the only free one, it is 1. For
    BYTES the body is one element, without its length in front.
    """
    if len(metadata.inputs) != 1:
        raise BadRequest(
            f"model {model!r} has {len(metadata.inputs)} inputs; only a model of one input takes a raw body",
            where="Inference-Header-Content-Length",
        )
    spec = metadata.inputs[0]
    dimensions = list(spec.shape)
    if spec.datatype is DataType.BYTES:
        body = encode_strings((bytes(body),))
        dimensions = [1 if length < 0 else length for length in dimensions]
    else:
        free = [at for at, length in enumerate(dimensions) if length < 0]
        if len(free) > 1 and free[0] == 0 and metadata.max_batch > 0:
            dimensions[free.pop(0)] = 1
        if len(free) > 1:
            raise BadRequest(
                f"the shape {list(spec.shape)} has several free dimensions", where=_input(spec.name), hint="send JSON"
            )
        for at in free:
            dimensions[at] = 1
            row = prod(dimensions) * (spec.datatype.size or 1)
            dimensions[at] = len(body) // row if row else 0
        check_size(spec.datatype, dimensions, len(body), _input(spec.name))
    tensor = Tensor(spec.name, spec.datatype, tuple(dimensions), memoryview(body))
    return InferRequest(model, [tensor], tenant, version), Reply(binary=True)


def encode(request: InferRequest, *, binary: bool = True) -> tuple[bytes, list[Buffer]]:
    """The JSON header and the binary tensors that follow it; `binary` asks for binary outputs."""
    document: dict[str, Any] = {"id": request.id} if request.id else {}
    given = dict(request.parameters)
    if request.timeout_s is not None:
        given["timeout"] = max(1, round(request.timeout_s * 1e6))
    if request.sequence is not None:
        step = request.sequence
        given |= {"sequence_id": step.id, "sequence_start": step.start, "sequence_end": step.end}
    if binary:
        given["binary_data_output"] = True
    if given:
        document["parameters"] = given
    document["inputs"] = [
        {
            "name": tensor.name,
            "shape": tensor.shape,
            "datatype": tensor.datatype,
            "parameters": {"binary_data_size": len(tensor.data)},
        }
        for tensor in request.inputs
    ]
    if request.outputs:
        document["outputs"] = [_wanted(output) for output in request.outputs]
    return orjson.dumps(document), [tensor.data for tensor in request.inputs]


def encode_json(request: InferRequest) -> bytes:
    """The whole request as JSON, for servers without the binary extension. Raises BadRequest for FP16 and BF16, for
    which the protocol has no JSON, and for values that JSON lacks."""
    inputs = []
    for tensor in request.inputs:
        where = _input(tensor.name)
        if tensor.datatype in (DataType.FP16, DataType.BF16):
            hint = "send it in binary"
            raise BadRequest(f"the protocol has no JSON for {tensor.datatype}", where=where, hint=hint)
        data = values.to_json(tensor.data, tensor.datatype, tensor.shape, where)
        inputs.append({"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape, "data": data})
    return orjson.dumps({"inputs": inputs}, option=orjson.OPT_SERIALIZE_NUMPY)


def _wanted(output: RequestedOutput) -> dict[str, Any]:
    form: dict[str, Parameter] = {"binary_data": output.binary}
    if output.classes:
        form["classification"] = output.classes
    return {"name": output.name, "parameters": form}


def _parse(raw: Buffer) -> _Header:
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"not JSON: {error}", where="body") from None
    if type(document) is not dict:
        raise BadRequest("the request must be a JSON object", where="body")
    id_ = document.get("id") or ""
    if type(id_) is not str:
        raise BadRequest("the id must be a string", where="id")
    given = parameters(document.get("parameters"), "parameters")
    binary = given.pop("binary_data_output", False)
    if type(binary) is not bool:
        raise BadRequest("must be true or false", where="parameters.binary_data_output")
    timeout_s, sequence = take_schedule(given), take_sequence(given)
    inputs = tuple(_read_input(entry, f"inputs[{at}]") for at, entry in enumerate(_entries(document, "inputs")))
    if not inputs:
        raise BadRequest("there is no input", where="inputs")
    distinct([one.name for one in inputs], "inputs")
    outputs, places = [], []
    for at, entry in enumerate(_entries(document, "outputs")):
        output, place = _read_output(entry, binary, f"outputs[{at}]")
        outputs.append(output)
        if place is not None:
            places.append((output.name, place))
    distinct([one.name for one in outputs], "outputs")
    size = sum(one.size for one in inputs if one.data is None and one.place is None)
    return _Header(id_, inputs, size, Reply(binary, tuple(outputs), tuple(places)), given, timeout_s, sequence)


_remembered = lru_cache(maxsize=512)(_parse)


def _read_input(entry: dict[str, Any], where: str) -> _Input:
    name = _name(entry, where)
    where = _input(name)
    kind = values.read_datatype(entry.get("datatype"), where)
    shape = values.read_shape(entry.get("shape"), kind, where)
    given = parameters(entry.get("parameters"), where)
    size = given.get("binary_data_size")
    place = place_of(given, where)
    if (size is not None) + (place is not None) + ("data" in entry) != 1:
        raise BadRequest("an input has either data, binary_data_size, or a shared_memory_region", where=where)
    if size is not None:
        if type(size) is not int or size < 0:
            raise BadRequest("binary_data_size must be 0 or a positive number of bytes", where=where)
        check_size(kind, shape, size, where)
        return _Input(name, kind, shape, size, None, None)
    if place is not None:
        check_size(kind, shape, place.size, where)
        return _Input(name, kind, shape, place.size, place, None)
    data = values.from_json(entry["data"], kind, shape, where)
    return _Input(name, kind, shape, len(data), None, data)


def _read_output(entry: dict[str, Any], binary: bool, where: str) -> tuple[RequestedOutput, Place | None]:
    name = _name(entry, where)
    where = f"output {name!r:.80}"
    given = parameters(entry.get("parameters"), where)
    own = given.get("binary_data", binary)
    if type(own) is not bool:
        raise BadRequest("binary_data must be true or false", where=where)
    return RequestedOutput(name, own, classes(given, where)), place_of(given, where)


def parameters(value: object, where: str) -> dict[str, Parameter]:
    """A JSON object of scalars, copied; none at all is an empty one."""
    if value is None:
        return {}
    if type(value) is not dict:
        raise BadRequest("parameters must be an object", where=where)
    if len(value) > MOST_PARAMETERS:
        raise BadRequest(f"{len(value)} parameters, {MOST_PARAMETERS} are the most", where=where)
    for key, one in value.items():
        if type(one) not in _SCALARS:
            raise BadRequest("a parameter must be a string, a number, true or false", where=f"{where}: {key!r:.80}")
    return dict(value)


def take_schedule(given: dict[str, Parameter]) -> float | None:
    """Triton's schedule policy: takes out `timeout` (microseconds, 0 for none) and returns it in seconds.

    Refuses what asks for something that this server does not do: a request with it would get another answer than it
    counts on.
    """
    for name in ("priority", "timeout"):
        value = given.get(name, 0)
        if type(value) is not int or value < 0:
            raise BadRequest("must be 0 or a positive integer", where=f"parameters.{name}")
    if given.pop("priority", 0):
        hint = "deploy a service of another priority_class, or give the request a timeout"
        raise BadRequest("requests of a service have no priorities", where="parameters.priority", hint=hint)
    timeout = given.pop("timeout", 0)
    return int(timeout) / 1e6 if timeout else None


def take_sequence(given: dict[str, Parameter]) -> SequenceStep | None:
    """Triton's sequence extension: takes out `sequence_id` (0 and "" for none), `sequence_start` and `sequence_end`."""
    id_ = given.pop("sequence_id", 0)
    if type(id_) is str:
        if len(id_) > MOST_SEQUENCE_ID:
            what = f"{len(id_)} characters, {MOST_SEQUENCE_ID} are the most"
            raise BadRequest(what, where="parameters.sequence_id")
    elif type(id_) is not int or not 0 <= id_ < 1 << 64:
        raise BadRequest("must be a text, or an integer from 0 to 2^64 - 1", where="parameters.sequence_id")
    start, end = given.pop("sequence_start", False), given.pop("sequence_end", False)
    for name, value in (("sequence_start", start), ("sequence_end", end)):
        if type(value) is not bool:
            raise BadRequest("must be true or false", where=f"parameters.{name}")
        if value and not id_:
            raise BadRequest("there is no sequence_id", where=f"parameters.{name}", hint="say of which sequence")
    return SequenceStep(id_, bool(start), bool(end)) if id_ else None


def classes(given: Mapping[str, Parameter], where: str) -> int:
    """How many top classes an output is asked for, 0 for the output itself."""
    count = given.get("classification", 0)
    if type(count) is not int or count < 0:
        raise BadRequest("classification must be 0 or a positive number of classes", where=where)
    return count


def distinct(names: Sequence[str], where: str) -> None:
    """Raises BadRequest with the first name that is there twice."""
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadRequest(f"{name!r:.80} is named twice", where=where)
        seen.add(name)


def check_count(count: int, where: str) -> None:
    """Raises BadRequest for more tensors than a request may have: each is read while all other requests wait."""
    if count > MOST_TENSORS:
        raise BadRequest(f"{count} tensors, {MOST_TENSORS} are the most", where=where)


def check_strings(inputs: Sequence[Tensor]) -> None:
    """Raises BadRequest for more strings in all inputs together than one of them may have."""
    if len(inputs) < 2:
        return
    strings = sum([tensor.elements for tensor in inputs if tensor.datatype is DataType.BYTES])
    if strings > values.MOST_STRINGS:
        raise BadRequest(f"{strings} strings, {values.MOST_STRINGS} are the most in a request", where="inputs")


def _entries(document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    entries = document.get(key)
    if entries is None:
        return []
    if type(entries) is not list or set(map(type, entries)) - {dict}:
        raise BadRequest("must be a list of objects", where=key)
    check_count(len(entries), key)
    return entries


def _name(entry: dict[str, Any], where: str) -> str:
    name = entry.get("name")
    if type(name) is not str or not name:
        raise BadRequest("a tensor must have a name", where=where)
    return name


def _input(name: str) -> str:
    return f"input {name!r:.80}"
