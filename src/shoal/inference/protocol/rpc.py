"""Inference and the documents over gRPC, in the messages of `schema`."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import orjson
from google.protobuf import json_format

from shoal.inference.errors import BadRequest
from shoal.inference.protocol import values
from shoal.inference.protocol.classification import top_classes
from shoal.inference.protocol.regions import Place, Regions, parameters_of, place_of
from shoal.inference.protocol.requests import (
    MOST_PARAMETERS,
    Reply,
    check_count,
    check_strings,
    classes,
    distinct,
    take_schedule,
    take_sequence,
)
from shoal.inference.protocol.responses import put
from shoal.inference.protocol.schema import messages
from shoal.inference.tensors import check_size, encode_strings
from shoal.inference.types import Buffer, DataType, InferRequest, InferResponse, Parameter, RequestedOutput, Tensor

_CONTENTS = {
    DataType.BOOL: "bool_contents",
    DataType.INT8: "int_contents", DataType.INT16: "int_contents", DataType.INT32: "int_contents",
    DataType.INT64: "int64_contents",
    DataType.UINT8: "uint_contents", DataType.UINT16: "uint_contents", DataType.UINT32: "uint_contents",
    DataType.UINT64: "uint64_contents",
    DataType.FP32: "fp32_contents", DataType.FP64: "fp64_contents", DataType.BYTES: "bytes_contents",
}  # fmt: skip
"""Which list carries a type's elements; FP16 and BF16 travel as raw contents only."""


def decode(message: Any, tenant: str, regions: Regions, remaining_s: float | None) -> tuple[InferRequest, Reply]:
    """Read a ModelInferRequest. `remaining_s` is what is left of the call's deadline. Raises BadRequest."""
    given = _parameters(message.parameters, "parameters")
    timeout_s, sequence = take_schedule(given), take_sequence(given)
    if remaining_s is not None:
        timeout_s = remaining_s if timeout_s is None else min(timeout_s, remaining_s)
    if not message.inputs:
        raise BadRequest("there is no input", where="inputs")
    check_count(len(message.inputs), "inputs")
    check_count(len(message.outputs), "outputs")
    raw = iter(message.raw_input_contents) if message.raw_input_contents else None
    inputs = [_read_input(one, raw, tenant, regions) for one in message.inputs]
    if raw is not None and next(raw, None) is not None:
        raise BadRequest("there are more raw contents than inputs to fill", where="raw_input_contents")
    distinct([one.name for one in inputs], "inputs")
    check_strings(inputs)
    outputs, places = [], []
    for one in message.outputs:
        where = f"output {one.name!r:.80}"
        wanted = _parameters(one.parameters, where)
        outputs.append(RequestedOutput(one.name, binary=True, classes=classes(wanted, where)))
        place = place_of(wanted, where)
        if place is not None:
            regions.check(tenant, place)
            places.append((one.name, place))
    distinct([one.name for one in outputs], "outputs")
    reply = Reply(binary=True, outputs=tuple(outputs), places=tuple(places))
    version = message.model_version or None
    request = InferRequest(
        message.model_name, inputs, tenant, version, message.id, reply.outputs, given, timeout_s, sequence
    )
    return request, reply


def _read_input(message: Any, raw: Any, tenant: str, regions: Regions) -> Tensor:
    where = f"input {message.name!r:.80}"
    kind = values.read_datatype(message.datatype, where)
    shape = values.read_shape(message.shape, kind, where)
    place = place_of(_parameters(message.parameters, where), where)
    data: Buffer
    if place is not None:
        check_size(kind, shape, place.size, where)
        data = regions.read(tenant, place)
    elif raw is not None:
        if message.HasField("contents"):
            raise BadRequest("an input has either contents or raw contents", where=where)
        found = next(raw, None)
        if found is None:
            raise BadRequest("there are no raw contents for it", where=where)
        data = found
        check_size(kind, shape, len(data), where)
    else:
        return Tensor(message.name, kind, shape, _typed(message.contents, kind, shape, where))
    return Tensor(message.name, kind, shape, data)


def _typed(contents: Any, kind: DataType, shape: tuple[int, ...], where: str) -> bytes:
    field = _CONTENTS.get(kind)
    if field is None:
        raise BadRequest(f"{kind} has no typed contents", where=where, hint="send it as raw_input_contents")
    elements = getattr(contents, field)
    if len(elements) != prod(shape):
        raise BadRequest(
            f"shape {list(shape)} takes {prod(shape)} elements, but {len(elements)} are given", where=where
        )
    if len(elements) > values.MOST_TYPED:
        hint = "send them as raw_input_contents"
        raise BadRequest(f"{len(elements)} elements, {values.MOST_TYPED} are the most", where=where, hint=hint)
    return encode_strings(elements) if kind is DataType.BYTES else values.pack_numbers(elements, kind, where)


def encode(response: InferResponse, reply: Reply, tenant: str, regions: Regions) -> Any:
    """A ModelInferResponse with raw contents. Raises BadRequest for an output that does not fit into its place."""
    message = messages().ModelInferResponse(model_name=response.model, model_version=response.version, id=response.id)
    _set_parameters(message.parameters, response.parameters)
    wanted = {output.name: output.classes for output in reply.outputs}
    places: Mapping[str, Place] = dict(reply.places)
    for tensor in response.outputs:
        if wanted.get(tensor.name):
            tensor = top_classes(tensor, wanted[tensor.name])
        output = message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        place = places.get(tensor.name)
        if place is not None:
            _set_parameters(output.parameters, parameters_of(put(tensor, place, tenant, regions)))
        # Raw contents are found by the output's position, so one in shared memory has its empty place among them.
        message.raw_output_contents.append(bytes(tensor.data) if place is None else b"")
    return message


def _parameters(given: Mapping[str, Any], where: str) -> dict[str, Parameter]:
    """The values of a map of InferParameter; those without a value are left out."""
    if len(given) > MOST_PARAMETERS:
        raise BadRequest(f"{len(given)} parameters, {MOST_PARAMETERS} are the most", where=where)
    chosen = ((key, value, value.WhichOneof("parameter_choice")) for key, value in given.items())
    return {key: getattr(value, choice) for key, value, choice in chosen if choice is not None}


def _set_parameters(into: Any, given: Mapping[str, Parameter]) -> None:
    for key, value in given.items():
        if isinstance(value, bool):
            into[key].bool_param = value
        elif isinstance(value, int):
            into[key].int64_param = value
        elif isinstance(value, float):
            into[key].double_param = value
        else:
            into[key].string_param = value


def document(name: str, told: Mapping[str, Any]) -> Any:
    """The message of this name with what `documents` says; what it has no field for is left out."""
    return json_format.Parse(orjson.dumps(told), getattr(messages(), name)(), ignore_unknown_fields=True)
