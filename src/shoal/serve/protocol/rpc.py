"""Inference and the documents over gRPC: between the messages of `schema` and `serve.types`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from shoal import __version__
from shoal.serve.errors import BadRequest
from shoal.serve.gateway.backend import Duration, IndexEntry, ModelStatistics
from shoal.serve.protocol import documents, values
from shoal.serve.protocol.classification import top_classes
from shoal.serve.protocol.regions import Place, Regions, parameters_of, place_of
from shoal.serve.protocol.requests import Reply, classes, distinct, take_schedule
from shoal.serve.protocol.responses import put
from shoal.serve.protocol.schema import DATA_TYPES, messages
from shoal.serve.tensors import encode_strings
from shoal.serve.types import (
    Buffer,
    DataType,
    InferRequest,
    InferResponse,
    ModelMetadata,
    Parameter,
    RequestedOutput,
    Tensor,
    TensorSpec,
)

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
    given = parameters(message.parameters)
    timeout_s = take_schedule(given)
    if remaining_s is not None:
        timeout_s = remaining_s if timeout_s is None else min(timeout_s, remaining_s)
    if not message.inputs:
        raise BadRequest("there is no input", where="inputs")
    raw = iter(message.raw_input_contents) if message.raw_input_contents else None
    inputs = [_read_input(one, raw, tenant, regions) for one in message.inputs]
    if raw is not None and next(raw, None) is not None:
        raise BadRequest("there are more raw contents than inputs to fill", where="raw_input_contents")
    distinct([one.name for one in inputs], "inputs")
    outputs, places = [], []
    for one in message.outputs:
        where = f"output {one.name!r:.80}"
        wanted = parameters(one.parameters)
        outputs.append(RequestedOutput(one.name, binary=True, classes=classes(wanted, where)))
        place = place_of(wanted, where)
        if place is not None:
            regions.check(tenant, place)
            places.append((one.name, place))
    distinct([one.name for one in outputs], "outputs")
    reply = Reply(binary=True, outputs=tuple(outputs), places=tuple(places))
    version = message.model_version or None
    return InferRequest(message.model_name, inputs, tenant, version, message.id, reply.outputs, given, timeout_s), reply


def _read_input(message: Any, raw: Any, tenant: str, regions: Regions) -> Tensor:
    where = f"input {message.name!r:.80}"
    kind = values.read_datatype(message.datatype, where)
    shape = values.read_shape(message.shape, kind, where)
    place = place_of(parameters(message.parameters), where)
    data: Buffer
    if place is not None:
        values.check_size(kind, shape, place.size, where)
        data = regions.read(tenant, place)
    elif raw is not None:
        if message.HasField("contents"):
            raise BadRequest("an input has either contents or raw contents", where=where)
        found = next(raw, None)
        if found is None:
            raise BadRequest("there are no raw contents for it", where=where)
        data = found
        values.check_size(kind, shape, len(data), where)
    else:
        return Tensor(message.name, kind, shape, _typed(message.contents, kind, shape, where))
    return Tensor(message.name, kind, shape, data)


def _typed(contents: Any, kind: DataType, shape: tuple[int, ...], where: str) -> bytes:
    field = _CONTENTS.get(kind)
    if field is None:
        raise BadRequest(f"{kind} has no typed contents", where=where, hint="send it as raw_input_contents")
    elements = list(getattr(contents, field))
    if len(elements) != prod(shape):
        raise BadRequest(
            f"shape {list(shape)} takes {prod(shape)} elements, but {len(elements)} are given", where=where
        )
    return encode_strings(elements) if kind is DataType.BYTES else values.pack_numbers(elements, kind, where)


def encode(response: InferResponse, reply: Reply, tenant: str, regions: Regions) -> Any:
    """A ModelInferResponse with raw contents. Raises BadRequest for an output that does not fit into its place."""
    message = messages().ModelInferResponse(model_name=response.model, model_version=response.version, id=response.id)
    set_parameters(message.parameters, response.parameters)
    wanted = {output.name: output.classes for output in reply.outputs}
    places: Mapping[str, Place] = dict(reply.places)
    for tensor in response.outputs:
        if wanted.get(tensor.name):
            tensor = top_classes(tensor, wanted[tensor.name])
        output = message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        place = places.get(tensor.name)
        if place is not None:
            set_parameters(output.parameters, parameters_of(put(tensor, place, tenant, regions)))
        # Raw contents are found by the output's position, so one in shared memory has its empty place among them.
        message.raw_output_contents.append(bytes(tensor.data) if place is None else b"")
    return message


def parameters(given: Mapping[str, Any]) -> dict[str, Parameter]:
    """The values of a map of InferParameter; those without a value are left out."""
    chosen = ((key, value, value.WhichOneof("parameter_choice")) for key, value in given.items())
    return {key: getattr(value, choice) for key, value, choice in chosen if choice is not None}


def set_parameters(into: Any, given: Mapping[str, Parameter]) -> None:
    for key, value in given.items():
        if isinstance(value, bool):
            into[key].bool_param = value
        elif isinstance(value, int):
            into[key].int64_param = value
        elif isinstance(value, float):
            into[key].double_param = value
        else:
            into[key].string_param = value


def server(shared_memory: bool) -> Any:
    return messages().ServerMetadataResponse(
        name=documents.SERVER_NAME, version=__version__, extensions=documents.extensions(shared_memory)
    )


def metadata(model: ModelMetadata) -> Any:
    answer = messages().ModelMetadataResponse(name=model.name, versions=model.versions, platform=model.platform)
    for into, specs in ((answer.inputs, model.inputs), (answer.outputs, model.outputs)):
        for one in specs:
            into.add(name=one.name, datatype=one.datatype, shape=one.shape)
    return answer


def config(model: ModelMetadata) -> Any:
    batch = documents.batch_size(model)
    answer = messages().ModelConfigResponse()
    answer.config.name, answer.config.platform = model.name, model.platform
    answer.config.backend, answer.config.max_batch_size = documents.backend(model), batch
    for into, specs in ((answer.config.input, model.inputs), (answer.config.output, model.outputs)):
        _fill_config(into, specs, batch)
    return answer


def _fill_config(into: Any, specs: Iterable[TensorSpec], batch: int) -> None:
    for one in specs:
        number = DATA_TYPES.index(documents.CONFIG_TYPES[one.datatype].removeprefix("TYPE_"))
        into.add(name=one.name, data_type=number, dims=documents.dims(one, batch))


def statistics(models: Sequence[ModelStatistics]) -> Any:
    answer = messages().ModelStatisticsResponse()
    for one in models:
        told = answer.model_stats.add(
            name=one.name,
            version=one.version,
            last_inference=documents.milliseconds(one.last_at),
            inference_count=one.inferences,
            execution_count=one.executions,
        )
        for name in ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output"):
            _duration(getattr(told.inference_stats, name), getattr(one, name))
        for size, infer in one.batches:
            _duration(told.batch_stats.add(batch_size=size).compute_infer, infer)
    return answer


def _duration(into: Any, one: Duration) -> None:
    into.count, into.ns = one.count, documents.nanoseconds(one.total_s)


def index(entries: Sequence[IndexEntry]) -> Any:
    answer = messages().RepositoryIndexResponse()
    for one in entries:
        answer.models.add(name=one.name, version=one.version, state=one.state, reason=one.reason)
    return answer
