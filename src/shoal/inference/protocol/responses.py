"""The answer to an inference request over REST: a JSON header, and behind it the outputs asked for in binary."""

from __future__ import annotations

from typing import Any

import orjson

from shoal.inference.errors import BadRequest
from shoal.inference.protocol import values
from shoal.inference.protocol.classification import top_classes
from shoal.inference.protocol.regions import Place, Regions, parameters_of
from shoal.inference.protocol.requests import Reply
from shoal.inference.types import Buffer, InferResponse, Tensor


def encode(response: InferResponse, reply: Reply, tenant: str, regions: Regions) -> tuple[bytes, list[Buffer]]:
    """The JSON header and the binary outputs that follow it; without any of those the header is the whole body.

    Outputs that have a place are written there. Raises BadRequest for an output that cannot be sent as it was asked
    for: too long for its place, or with values that JSON lacks.
    """
    document: dict[str, Any] = {"model_name": response.model, "model_version": response.version}
    if response.id:
        document["id"] = response.id
    if response.parameters:
        document["parameters"] = response.parameters
    binary: list[Buffer] = []
    wanted = {output.name: output for output in reply.outputs}
    places = dict(reply.places)
    outputs = []
    for tensor in response.outputs:
        one = wanted.get(tensor.name)
        if one is not None and one.classes:
            tensor = top_classes(tensor, one.classes)
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        place = places.get(tensor.name)
        if place is not None:
            entry["parameters"] = parameters_of(put(tensor, place, tenant, regions))
        elif reply.binary if one is None else one.binary:
            entry["parameters"] = {"binary_data_size": len(tensor.data)}
            binary.append(tensor.data)
        else:
            entry["data"] = values.to_json(tensor.data, tensor.datatype, tensor.shape, _output(tensor.name))
        outputs.append(entry)
    document["outputs"] = outputs
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY), binary


def put(tensor: Tensor, place: Place, tenant: str, regions: Regions) -> Place:
    """Write an output to shared memory; returns the part of the place that it fills."""
    size = len(tensor.data)
    if size > place.size:
        raise BadRequest(
            f"the output has {size} bytes, its place only {place.size}",
            where=_output(tensor.name),
            hint="ask with a larger shared_memory_byte_size",
        )
    filled = Place(place.region, place.offset, size)
    regions.write(tenant, filled, tensor.data)
    return filled


def _output(name: str) -> str:
    return f"output {name!r:.80}"
