"""The gRPC messages and their codec; Triton's generated messages are the oracle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2, service_pb2

from shoal.inference.errors import BadRequest
from shoal.inference.protocol import rpc
from shoal.inference.protocol.requests import Reply
from shoal.inference.protocol.schema import messages
from shoal.inference.tensors import to_array, to_tensor
from shoal.inference.types import DataType, InferRequest, InferResponse, RequestedOutput, Tensor
from shoal.serve.gateway.shared_memory import SharedRegions
from tests.serve.strategies import infer_requests, plain, tensors

KINDS = vars(messages())


def told(field: Any) -> tuple[Any, ...]:
    of = field.message_type.full_name if field.message_type else None
    return field.number, field.type, field.is_repeated, of, field.containing_oneof and field.containing_oneof.name


def compare(ours: Any, theirs: Any) -> int:
    for field in ours.fields:
        assert told(field) == told(theirs.fields_by_name[field.name]), field.full_name
    inner = [compare(one, theirs.nested_types_by_name[one.name]) for one in ours.nested_types]
    return len(ours.fields) + sum(inner)


def test_every_field_is_the_one_on_the_wire() -> None:
    counted = 0
    for name, kind in KINDS.items():
        theirs = getattr(service_pb2, name, None) or getattr(model_config_pb2, name)
        counted += compare(kind.DESCRIPTOR, theirs.DESCRIPTOR)
    assert counted > 130
    ours = KINDS["ModelInput"].DESCRIPTOR.fields_by_name["data_type"].enum_type
    theirs = model_config_pb2.DataType.DESCRIPTOR
    assert [(one.name, one.number) for one in ours.values] == [(one.name, one.number) for one in theirs.values]


def test_every_message_of_a_served_call_is_there() -> None:
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    others = {"CudaSharedMemory", "TraceSetting", "LogSettings"}
    for method in service.methods:
        if not any(method.name.startswith(other) for other in others):
            assert {method.input_type.name, method.output_type.name} <= KINDS.keys()


def triton_request(request: InferRequest) -> Any:
    message = service_pb2.ModelInferRequest(
        model_name=request.model, model_version=request.version or "", id=request.id
    )
    for tensor in request.inputs:
        message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        message.raw_input_contents.append(bytes(tensor.data))
    for output in request.outputs:
        added = message.outputs.add(name=output.name)
        if output.classes:
            added.parameters["classification"].int64_param = output.classes
    for key, value in request.parameters.items():
        if isinstance(value, bool):
            message.parameters[key].bool_param = value
        elif isinstance(value, int):
            message.parameters[key].int64_param = value
        else:
            message.parameters[key].string_param = str(value)
    if request.timeout_s is not None:
        message.parameters["timeout"].int64_param = round(request.timeout_s * 1e6)
    return message


def decode(message: Any, remaining_s: float | None = None) -> tuple[InferRequest, Reply]:
    ours = messages().ModelInferRequest.FromString(message.SerializeToString())
    return rpc.decode(ours, "ada", SharedRegions(), remaining_s)


@settings(max_examples=50)
@given(infer_requests())
def test_a_request_as_triton_writes_it(request_: InferRequest) -> None:
    found, reply = decode(triton_request(request_))
    assert [plain(tensor) for tensor in found.inputs] == [plain(tensor) for tensor in request_.inputs]
    assert [(one.name, one.classes) for one in reply.outputs] == [(one.name, one.classes) for one in request_.outputs]
    assert found.timeout_s == pytest.approx(request_.timeout_s)
    for name in ("model", "version", "tenant", "id", "parameters"):
        assert getattr(found, name) == getattr(request_, name)


@given(st.lists(tensors(), max_size=3), st.dictionaries(st.text(), st.booleans() | st.floats(0, 1) | st.text()))
def test_an_answer_as_triton_reads_it(outputs: list[Tensor], parameters: dict[str, Any]) -> None:
    response = InferResponse("m", "2", outputs, "id", parameters)
    raw = rpc.encode(response, Reply(binary=True), "ada", SharedRegions()).SerializeToString()
    theirs = service_pb2.ModelInferResponse.FromString(raw)
    assert (theirs.model_name, theirs.model_version, theirs.id) == ("m", "2", "id")
    found = [
        (one.name, one.datatype, tuple(one.shape), data)
        for one, data in zip(theirs.outputs, theirs.raw_output_contents, strict=True)
    ]
    assert found == [plain(tensor) for tensor in outputs]
    assert {key: getattr(one, one.WhichOneof("parameter_choice")) for key, one in theirs.parameters.items()} == (
        parameters
    )


@pytest.mark.parametrize(
    ("kind", "field", "elements"),
    [
        ("BOOL", "bool_contents", [True, False]),
        ("INT8", "int_contents", [-128, 127]),
        ("INT16", "int_contents", [-5, 5]),
        ("INT32", "int_contents", [-(2**31), 1]),
        ("INT64", "int64_contents", [-(2**63), 1]),
        ("UINT8", "uint_contents", [0, 255]),
        ("UINT16", "uint_contents", [0, 65535]),
        ("UINT32", "uint_contents", [0, 2**32 - 1]),
        ("UINT64", "uint64_contents", [0, 2**64 - 1]),
        ("FP32", "fp32_contents", [0.5, math.inf]),
        ("FP64", "fp64_contents", [0.1, -math.inf]),
        ("BYTES", "bytes_contents", [b"a", b"\xff"]),
    ],
)
def test_typed_contents(kind: str, field: str, elements: list[Any]) -> None:
    message = service_pb2.ModelInferRequest(model_name="m")
    getattr(message.inputs.add(name="x", datatype=kind, shape=[2]).contents, field).extend(elements)
    assert to_array(decode(message)[0].inputs[0]).tolist() == elements


def build(*inputs: dict[str, Any], raw: tuple[bytes, ...] = (), **parameters: Any) -> Any:
    message = service_pb2.ModelInferRequest(model_name="m", raw_input_contents=raw)
    for fields in inputs:
        contents = fields.pop("contents", None)
        added = message.inputs.add(**{"name": "x", "datatype": "INT8", "shape": [2], **fields})
        if contents is not None:
            added.contents.int_contents.extend(contents)
    for key, value in parameters.items():
        message.parameters[key].int64_param = value
    return message


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (build(), "there is no input"),
        (build({}, raw=(b"12", b"3")), "more raw contents than inputs"),
        (build({}, {"name": "y"}, raw=(b"12",)), "no raw contents for it"),
        (build({}, raw=(b"123",)), "takes 2 bytes, but 3 are given"),
        (build({"contents": [1, 2]}, raw=(b"12",)), "either contents or raw"),
        (build({"contents": [1, 2, 3]}), "takes 2 elements, but 3 are given"),
        (build({"contents": [1, 128]}), "out of the range of INT8"),
        (build({"datatype": "FP16"}), "FP16 has no typed contents"),
        (build({"datatype": "INT9"}), "'INT9' is no datatype"),
        (build({"shape": [-2]}, raw=(b"12",)), "-2 is no length"),
        (build({}, {}, raw=(b"12", b"12")), "'x' is named twice"),
        (build({}, raw=(b"12",), timeout=-5), "parameters.timeout"),
        (build({}, raw=(b"12",), priority=-5), "parameters.priority"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(message: Any, complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        decode(message)


@pytest.mark.parametrize(
    ("timeout", "remaining_s", "found"), [(0, None, None), (0, 2.0, 2.0), (10**6, 2.0, 1.0), (3 * 10**6, 2.0, 2.0)]
)
def test_the_earlier_of_deadline_and_timeout_counts(timeout: int, remaining_s: float | None, found: float) -> None:
    assert decode(build({}, raw=(b"12",), timeout=timeout), remaining_s)[0].timeout_s == found


def test_classes_over_grpc() -> None:
    response = InferResponse("m", "1", [to_tensor("y", np.array([[1, 3, 2]], "f4"))])
    reply = Reply(binary=True, outputs=(RequestedOutput("y", classes=2),))
    message = rpc.encode(response, reply, "", SharedRegions())
    assert (message.outputs[0].datatype, list(message.outputs[0].shape)) == (DataType.BYTES, [1, 2])
    assert b"3.000000:1" in message.raw_output_contents[0]
