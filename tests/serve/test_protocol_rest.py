"""The REST codecs alone: what goes in comes out, and whatever does not fit is a BadRequest that says what is wrong."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.inference.errors import BadRequest
from shoal.inference.protocol import requests, responses
from shoal.inference.protocol.classification import top_classes
from shoal.inference.protocol.regions import Place
from shoal.inference.protocol.requests import Reply
from shoal.inference.tensors import decode_strings, numpy_dtype, to_array, to_tensor
from shoal.inference.types import (
    DataType,
    InferRequest,
    InferResponse,
    ModelMetadata,
    RequestedOutput,
    SequenceStep,
    Tensor,
    TensorSpec,
)
from shoal.serve.gateway.shared_memory import SharedRegions
from tests.serve.client import read_answer
from tests.serve.strategies import infer_requests, parameters, plain, shapes, tensors

NUMBERS = [kind for kind in DataType if kind not in (DataType.BYTES, DataType.BF16)]


def decode(body: bytes, header_length: int | None = None) -> tuple[InferRequest, Reply]:
    return requests.decode("m", "7", "ada", body, header_length, SharedRegions())


def document(**fields: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}], **fields}


def an_input(**fields: Any) -> dict[str, Any]:
    entry = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2], **fields}
    return {"inputs": [{key: value for key, value in entry.items() if value is not ...}]}


def test_a_shape_may_have_64_dimensions() -> None:
    body = orjson.dumps(an_input(shape=[2, *[1] * 63]))
    assert len(decode(body)[0].inputs[0].shape) == 64


@settings(max_examples=50)
@given(infer_requests(), st.booleans())
def test_a_binary_request_comes_out_as_it_went_in(request_: InferRequest, binary: bool) -> None:
    header, parts = requests.encode(request_, binary=binary)
    body = header + b"".join(parts)
    found, reply = decode(body, len(header) if parts else None)
    assert [plain(tensor) for tensor in found.inputs] == [plain(tensor) for tensor in request_.inputs]
    assert found.timeout_s == pytest.approx(request_.timeout_s)
    assert reply == Reply(binary, request_.outputs)
    for name in ("model", "version", "tenant", "id", "outputs", "parameters"):
        assert getattr(found, name) == getattr(request_, name)


def test_binary_tensors_are_views_of_the_body_in_the_order_of_the_inputs() -> None:
    inputs = [
        {"name": "a", "datatype": "UINT8", "shape": [3], "parameters": {"binary_data_size": 3}},
        {"name": "b", "datatype": "INT16", "shape": [2], "data": [1, -1]},
        {"name": "c", "datatype": "FP16", "shape": [1], "parameters": {"binary_data_size": 2}},
    ]
    header = orjson.dumps({"inputs": inputs})
    body = bytearray(header + b"abcde")
    request, _ = requests.decode("m", None, "", body, len(header), SharedRegions())
    assert [bytes(tensor.data) for tensor in request.inputs] == [b"abc", b"\x01\x00\xff\xff", b"de"]
    body[-5:] = b"ABCDE"
    assert [bytes(request.inputs[at].data) for at in (0, 2)] == [b"ABC", b"DE"]


@settings(max_examples=50)
@given(st.data())
def test_json_numbers_flat_or_nested_become_what_numpy_makes_of_them(data: st.DataObject) -> None:
    kind, shape = data.draw(st.sampled_from(NUMBERS)), data.draw(shapes.filter(len))
    dtype = numpy_dtype(kind)
    element: st.SearchStrategy[Any] = st.booleans()
    if dtype.kind == "f":
        element = st.floats(width=dtype.itemsize * 8, allow_nan=False, allow_infinity=False)  # type: ignore[arg-type]
    elif dtype.kind in "iu":
        element = st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    count = math.prod(shape)
    array = np.array(data.draw(st.lists(element, min_size=count, max_size=count)), dtype).reshape(shape)
    told = array.tolist() if data.draw(st.booleans()) else array.ravel().tolist()
    # orjson reads back what json writes; an empty nested list is as good as an empty flat one
    body = json.dumps(an_input(datatype=kind, shape=list(shape), data=told)).encode()
    found = decode(body)[0].inputs[0]
    np.testing.assert_array_equal(to_array(found), array)


@settings(max_examples=50)
@given(st.lists(st.text(), min_size=6, max_size=6))
def test_json_strings_become_bytes(texts: list[str]) -> None:
    found = decode(orjson.dumps(an_input(datatype="BYTES", shape=[2, 3], data=[texts[:3], texts[3:]])))[0].inputs[0]
    assert decode_strings(found.data, 6, where="") == [text.encode() for text in texts]


@settings(max_examples=50)
@given(st.data())
def test_an_answer_comes_out_as_it_went_in(data: st.DataObject) -> None:
    outputs = [data.draw(tensors(name)) for name in data.draw(st.lists(st.text(min_size=1), max_size=3, unique=True))]
    response = InferResponse("m", "2", outputs, data.draw(st.text(max_size=3)), data.draw(parameters))
    header, parts = responses.encode(response, Reply(binary=True), "ada", SharedRegions())
    found = read_answer(header + b"".join(parts), len(header) if parts else None)
    assert [plain(tensor) for tensor in found.outputs] == [plain(tensor) for tensor in outputs]
    assert (found.model, found.version, found.id, found.parameters) == ("m", "2", response.id, response.parameters)


@pytest.mark.parametrize("kind", NUMBERS)
def test_json_outputs_carry_the_numbers(kind: DataType) -> None:
    array = np.array([[0, 1], [1, 0]], numpy_dtype(kind))
    response = InferResponse("m", "1", [to_tensor("y", array)])
    header, parts = responses.encode(response, Reply(), "", SharedRegions())
    assert parts == []
    found = json.loads(header)["outputs"][0]
    assert (found["shape"], found["data"]) == ([2, 2], array.ravel().tolist())
    np.testing.assert_array_equal(to_array(read_answer(header, None).outputs[0]), array)


def test_each_output_travels_as_it_was_asked_for() -> None:
    reply = Reply(binary=True, outputs=(RequestedOutput("a", binary=False), RequestedOutput("b", binary=True)))
    outputs = [Tensor(name, DataType.UINT8, (2,), b"\x01\x02") for name in "abc"]
    header, parts = responses.encode(InferResponse("m", "1", outputs), reply, "", SharedRegions())
    told = {entry["name"]: entry for entry in json.loads(header)["outputs"]}
    assert told["a"]["data"] == [1, 2]
    assert [told[name]["parameters"] for name in "bc"] == [{"binary_data_size": 2}] * 2
    assert parts == [b"\x01\x02"] * 2


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.array([1.0, math.nan], "f4"), "NaN or infinity"),
        (np.array([math.inf], "f2"), "NaN or infinity"),
        (np.array([b"\xff"], object), "not UTF-8"),
    ],
)
def test_what_json_cannot_say_is_asked_for_as_binary(array: Any, complaint: str) -> None:
    with pytest.raises(BadRequest, match=rf"output 'y'.*{complaint}.*binary_data"):
        responses.encode(InferResponse("m", "1", [to_tensor("y", array)]), Reply(), "", SharedRegions())


def test_an_output_at_an_odd_address_is_written_all_the_same() -> None:
    data = memoryview(b"\0" + np.array([1.5, -2], "f4").tobytes())[1:]
    header, _ = responses.encode(
        InferResponse("m", "1", [Tensor("y", DataType.FP32, (2,), data)]), Reply(), "", SharedRegions()
    )
    assert json.loads(header)["outputs"][0]["data"] == [1.5, -2]


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        (an_input(datatype="FP31"), "'FP31' is no datatype"),
        (an_input(datatype=["FP32"]), "is no datatype"),
        (an_input(datatype=...), "None is no datatype"),
        (an_input(shape=[-1]), "-1 is no length"),
        (an_input(shape=[True, 2]), "True is no length"),
        (an_input(shape=[2.0]), "2.0 is no length"),
        (an_input(shape="2"), "must be a list"),
        (an_input(shape=...), "must be a list"),
        (an_input(shape=[1] * 65), "at most 64 dimensions"),
        (an_input(shape=[2**62] * 60), "at most 281474976710656 elements"),
        (an_input(shape=[3]), "takes 3 elements, but 2 are given"),
        (an_input(shape=[2, 2], data=[[1, 2], [3]]), "nested, but not as shape"),
        (an_input(shape=[4], data=[[1, 2], [3, 4]]), "nested, but not as shape"),
        (an_input(shape=[2, 2], data=[[1, 2], 3]), "nested, but not as shape"),
        (an_input(shape=[2, 1], data=[[[1]], [[2]]]), r"\[1\] is no FP32"),
        (an_input(data=["1", "2"]), "'1' is no FP32"),
        (an_input(data=[1, None]), "None is no FP32"),
        (an_input(data=[1, True]), "True is no FP32"),
        (an_input(data=[1, 1e39]), "out of the range of FP32"),
        (an_input(data={"0": 1}), "data must be a list"),
        (an_input(datatype="INT8", data=[1, 128]), "out of the range of INT8"),
        (an_input(datatype="UINT64", data=[1, -1]), "out of the range of UINT64"),
        (an_input(datatype="INT64", data=[1, 2**63]), "out of the range of INT64"),
        (an_input(datatype="INT32", data=[1, 2.0]), "2.0 is no INT32"),
        (an_input(datatype="BOOL", data=[0, 1]), "0 is no BOOL"),
        (an_input(datatype="BF16"), "BF16 cannot be sent as JSON"),
        (an_input(datatype="BYTES", data=["a", 1]), "1 is no BYTES"),
        (an_input(datatype="BYTES", shape=[2**20], data=[]), "at most 262144 elements"),
        (an_input(name=""), r"inputs\[0\]: a tensor must have a name"),
        (an_input(name=1), "must have a name"),
        (an_input(data=...), "either data, binary_data_size"),
        (an_input(parameters={"binary_data_size": 8}), "either data, binary_data_size"),
        (an_input(data=..., parameters={"binary_data_size": 9}), r"takes 8 bytes, but 9 are given"),
        (an_input(data=..., parameters={"binary_data_size": -8}), "binary_data_size must be"),
        (an_input(data=..., parameters={"binary_data_size": "8"}), "binary_data_size must be"),
        (an_input(data=..., parameters={"binary_data_size": 8}), "announce 8 bytes of binary data, 0 follow"),
        (an_input(data=..., parameters={"shared_memory_region": "r", "shared_memory_byte_size": 8}), "not registered"),
        (an_input(data=..., parameters={"shared_memory_region": "r"}), "shared_memory_byte_size must say"),
        (an_input(data=..., parameters={"shared_memory_region": 1, "shared_memory_byte_size": 8}), "name of a region"),
        (
            an_input(
                data=...,
                parameters={"shared_memory_region": "r", "shared_memory_byte_size": 8, "shared_memory_offset": -1},
            ),
            "shared_memory_offset must",
        ),
        (an_input(parameters=[]), "parameters must be an object"),
        (an_input(parameters={"a": {}}), "a parameter must be"),
        ({"inputs": an_input()["inputs"] * 2}, "'x' is named twice"),
        ({"inputs": []}, "there is no input"),
        ({"inputs": {}}, "inputs: must be a list of objects"),
        ({"inputs": [1]}, "must be a list of objects"),
        ({}, "there is no input"),
        ([], "must be a JSON object"),
        (document(id=5), "id: the id must be a string"),
        (document(parameters={"timeout": "soon"}), "parameters.timeout: must be 0 or"),
        (document(parameters={"timeout": -1}), "parameters.timeout"),
        (document(parameters={"priority": True}), "parameters.priority"),
        (document(parameters={"binary_data_output": 1}), "parameters.binary_data_output: must be true or false"),
        (document(outputs=[{"name": "y"}, {"name": "y"}]), "outputs: 'y' is named twice"),
        (document(outputs=[{}]), r"outputs\[0\]: a tensor must have a name"),
        (document(outputs=[{"name": "y", "parameters": {"binary_data": 1}}]), "binary_data must be"),
        (document(outputs=[{"name": "y", "parameters": {"classification": -1}}]), "classification must be"),
        (
            document(
                outputs=[{"name": "y", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8}}]
            ),
            "region 'r': not registered",
        ),
    ],
)
def test_what_is_wrong_with_a_request_is_said(entry: Any, complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        decode(orjson.dumps(entry))


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"inputs": [{"name": "\xff"}]}', "not JSON"),
        (b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[NaN]}]}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_json_is_said(body: bytes, complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        decode(body)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_binary_body_of_another_length_than_announced_is_refused(change: int) -> None:
    header = orjson.dumps(an_input(data=..., parameters={"binary_data_size": 8}))
    with pytest.raises(BadRequest, match=rf"announce 8 bytes of binary data, {8 + change} follow"):
        decode(header + bytes(8 + change), len(header))


def test_a_header_longer_than_the_body_is_refused() -> None:
    with pytest.raises(BadRequest, match="said to take 999999999999 bytes, the whole body has 2"):
        decode(b"{}", 999999999999)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4) | st.sampled_from([*DataType, "x", "binary_data_size", "shared_memory_region"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(st.binary(max_size=300), st.none() | st.integers(0, 400))
def test_random_bytes_are_a_bad_request(body: bytes, header_length: int | None) -> None:
    with pytest.raises(BadRequest):
        decode(body, header_length)


@settings(max_examples=50)
@given(st.data())
def test_a_damaged_request_is_understood_or_a_bad_request(data: st.DataObject) -> None:
    request = data.draw(infer_requests())
    header, parts = requests.encode(request)
    body = bytearray(header + b"".join(parts))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(body), data.draw(st.sampled_from([len(header), None, len(header) - 1])))
    except BadRequest as error:
        assert str(error)  # noqa: PT017


@settings(max_examples=50)
@given(
    st.fixed_dictionaries(
        {"name": anything, "datatype": anything, "shape": anything},
        optional={"data": anything, "parameters": anything},
    ),
    st.fixed_dictionaries({}, optional={"outputs": anything, "parameters": anything, "id": anything}),
)
def test_odd_documents_are_understood_or_a_bad_request(entry: dict[str, Any], more: dict[str, Any]) -> None:
    try:
        decode(orjson.dumps({"inputs": [entry], **more}, option=orjson.OPT_NON_STR_KEYS))
    except BadRequest as error:
        assert str(error)  # noqa: PT017


def test_a_timeout_is_in_microseconds() -> None:
    request, _ = decode(orjson.dumps(document(parameters={"timeout": 1500, "priority": 0, "sequence_id": 0})))
    assert (request.timeout_s, request.parameters) == (0.0015, {})


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"priority": 3}, "requests of a service have no priorities"),
        ({"sequence_start": True}, "there is no sequence_id"),
        ({"sequence_end": True, "sequence_id": 0}, "there is no sequence_id"),
        ({"sequence_start": 1, "sequence_id": 7}, "must be true or false"),
        ({"sequence_id": -1}, "must be a text, or an integer"),
        ({"sequence_id": 1.5}, "must be a text, or an integer"),
        ({"sequence_id": True}, "must be a text, or an integer"),
        ({"sequence_id": "x" * 257}, "257 characters, 256 are the most"),
    ],
)
def test_what_a_client_would_count_on_in_vain_is_refused(given: Any, complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint) as refused:
        decode(orjson.dumps(document(parameters=given)))
    assert refused.value.where == f"parameters.{next(iter(given))}"


@pytest.mark.parametrize(
    ("given", "step"),
    [
        ({"sequence_id": 0}, None),
        ({"sequence_id": "", "sequence_start": False}, None),
        ({"sequence_id": 7}, SequenceStep(7)),
        ({"sequence_id": (1 << 64) - 1, "sequence_end": True}, SequenceStep((1 << 64) - 1, end=True)),
        ({"sequence_id": "a", "sequence_start": True}, SequenceStep("a", start=True)),
    ],
)
def test_a_request_says_of_which_sequence_it_is(given: Any, step: SequenceStep | None) -> None:
    request, _ = decode(orjson.dumps(document(parameters={**given, "own": 1})))
    assert (request.sequence, request.parameters) == (step, {"own": 1})
    text, parts = requests.encode(request)
    assert decode(b"".join((text, *parts)), len(text))[0].sequence == step


def test_a_remembered_header_gives_each_request_parameters_of_its_own() -> None:
    header = orjson.dumps(an_input(data=..., parameters={"binary_data_size": 8}) | {"parameters": {"k": 1}})
    first, _ = decode(header + bytes(8), len(header))
    first.parameters["k"] = 2
    assert decode(header + bytes(8), len(header))[0].parameters == {"k": 1}


def test_outputs_are_placed_where_they_were_asked_for() -> None:
    class Regions(SharedRegions):
        def check(self, _tenant: str, place: Place) -> None:
            checked.append(place)

        def write(self, tenant: str, place: Place, data: Any) -> None:
            written.append((tenant, place, bytes(data)))

    checked: list[Place] = []
    written: list[Any] = []
    told = {"shared_memory_region": "r", "shared_memory_byte_size": 9, "shared_memory_offset": 4}
    body = orjson.dumps(document(outputs=[{"name": "y", "parameters": told}]))
    _, reply = requests.decode("m", None, "ada", body, None, Regions())
    assert checked == [Place("r", 4, 9)]
    response = InferResponse("m", "1", [Tensor("y", DataType.UINT8, (8,), b"12345678")])
    header, parts = responses.encode(response, reply, "ada", Regions())
    assert written == [("ada", Place("r", 4, 8), b"12345678")]
    assert parts == []
    told |= {"shared_memory_byte_size": 8}
    assert orjson.loads(header)["outputs"][0]["parameters"] == told
    response.outputs[0] = Tensor("y", DataType.UINT8, (10,), b"1234567890")
    with pytest.raises(BadRequest, match="output has 10 bytes, its place only 9"):
        responses.encode(response, reply, "ada", Regions())


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 8))
def test_the_top_classes_are_those_of_a_plain_sort(rows: int, classes: int, count: int) -> None:
    scores = np.random.default_rng(rows * 100 + classes).integers(0, 4, (rows, classes)).astype("f4")
    top = top_classes(to_tensor("y", scores), count)
    told = [text.decode().split(":") for text in decode_strings(top.data, top.elements, where="")]
    wanted = [
        [f"{row[index]:f}", str(index)]
        for row in scores
        for index in sorted(range(classes), key=lambda index, row=row: (-row[index], index))[:count]
    ]
    assert (top.shape, told) == ((rows, min(count, classes)), wanted)


def test_classes_of_odd_shapes() -> None:
    assert top_classes(to_tensor("y", np.array(3, "i8")), 2).shape == (1,)
    assert top_classes(to_tensor("y", np.zeros((2, 5, 1, 1), "f2")), 3).shape == (2, 3)
    assert top_classes(to_tensor("y", np.zeros((0, 5), "f4")), 3).shape == (0, 3)
    with pytest.raises(BadRequest, match="cannot be classified"):
        top_classes(to_tensor("y", np.array([b"a"], object)), 1)


def test_a_raw_body_is_the_only_input() -> None:
    def metadata(kind: DataType, *shape: int, max_batch: int = 8) -> ModelMetadata:
        return ModelMetadata("m", ("1",), "p", (TensorSpec("x", kind, shape),), (), max_batch)

    def shape(body: bytes, model: ModelMetadata) -> tuple[int, ...]:
        request, reply = requests.decode_raw("m", None, "", body, model)
        assert reply.binary
        return request.inputs[0].shape

    assert shape(bytes(24), metadata(DataType.FP32, -1, 3)) == (2, 3)
    assert shape(bytes(24), metadata(DataType.FP32, -1, -1)) == (1, 6)
    assert shape(bytes(24), metadata(DataType.FP32, 6, max_batch=0)) == (6,)
    request, _ = requests.decode_raw("m", None, "", b"text", metadata(DataType.BYTES, -1))
    assert decode_strings(request.inputs[0].data, 1, where="") == [b"text"]
    for body, model, complaint in [
        (bytes(25), metadata(DataType.FP32, -1, 3), "takes 24 bytes, but 25"),
        (bytes(24), metadata(DataType.FP32, -1, -1, max_batch=0), "several free dimensions"),
        (b"", ModelMetadata("m", ("1",), "p", (), ()), "has 0 inputs"),
    ]:
        with pytest.raises(BadRequest, match=complaint):
            requests.decode_raw("m", None, "", body, model)
