"""Requests of many small parts: what reading them costs is bounded, beside the bytes that they have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.inference.errors import BadRequest
from shoal.inference.protocol import requests, rpc, values, wire
from shoal.inference.protocol.classification import MOST_CLASSES, MOST_SCORES, top_classes
from shoal.inference.protocol.requests import MOST_PARAMETERS, MOST_TENSORS
from shoal.inference.protocol.schema import messages
from shoal.inference.tensors import to_tensor
from shoal.inference.types import DataType
from shoal.serve.gateway.grpc import MOST_FIELDS
from shoal.serve.gateway.shared_memory import SharedRegions

REGIONS = SharedRegions()


def calls_of(act: Callable[[], Any]) -> int:
    """How many functions it calls, those of C included."""
    count = 0

    def note(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


class Counted(str):
    """A name that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str(self) == str(other)


@given(st.integers(1, 3000), st.booleans())
@example(3000, True)
def test_finding_a_name_that_is_there_twice_takes_time_by_their_number(count: int, twice: bool) -> None:
    names = [Counted(f"n{at}") for at in range(count)] + [Counted("n0")] * twice
    Counted.compared = 0
    if twice:
        with pytest.raises(BadRequest, match="'n0' is named twice"):
            requests.distinct(names, "inputs")
    else:
        requests.distinct(names, "inputs")
    assert Counted.compared <= 4 + count // 100  # equal hashes; names that differ hardly ever have them


def rest(document: dict[str, Any]) -> Any:
    return requests.decode("m", None, "ada", orjson.dumps(document), None, REGIONS)


def an_input(at: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": f"x{at}", "datatype": "FP32", "shape": [1], "data": [1], **more}


def test_a_rest_request_has_at_most_so_many_tensors_and_parameters() -> None:
    inputs = [an_input(at) for at in range(MOST_TENSORS + 1)]
    assert len(rest({"inputs": inputs[1:]})[0].inputs) == MOST_TENSORS
    with pytest.raises(BadRequest, match=f"{MOST_TENSORS + 1} tensors, {MOST_TENSORS} are the most"):
        rest({"inputs": inputs})
    with pytest.raises(BadRequest, match="tensors"):
        rest({"inputs": inputs[:1], "outputs": [{"name": "y"}] * (MOST_TENSORS + 1)})
    given = {str(at): at for at in range(MOST_PARAMETERS + 1)}
    for document in (
        {"inputs": inputs[:1], "parameters": given},
        {"inputs": [an_input(parameters=given)]},
        {"inputs": inputs[:1], "outputs": [{"name": "y", "parameters": given}]},
    ):
        with pytest.raises(BadRequest, match=f"{MOST_PARAMETERS + 1} parameters, {MOST_PARAMETERS} are the most"):
            rest(document)
    given.pop("0")
    assert rest({"inputs": inputs[:1], "parameters": given})


def test_the_strings_of_all_inputs_are_counted_together() -> None:
    half = values.MOST_STRINGS // 2
    body = bytes(4 * half)
    for more, fits in ((0, True), (1, False)):
        head = orjson.dumps({
            "inputs": [
                {"name": name, "datatype": "BYTES", "shape": [count], "parameters": {"binary_data_size": 4 * count}}
                for name, count in (("a", half), ("b", half + more))
            ]
        })  # fmt: skip
        sent = head + body + body + bytes(4 * more)
        if fits:
            assert requests.decode("m", None, "ada", sent, len(head), REGIONS)
        else:
            with pytest.raises(BadRequest, match="are the most in a request"):
                requests.decode("m", None, "ada", sent, len(head), REGIONS)


def grpc_decode(message: Any) -> Any:
    return rpc.decode(message, "ada", REGIONS, None)


def test_a_grpc_request_has_the_same_limits() -> None:
    def request(inputs: int = 1, outputs: int = 0) -> Any:
        made = messages().ModelInferRequest(model_name="m")
        for at in range(inputs):
            made.inputs.add(name=f"x{at}", datatype="UINT8", shape=[1])
            made.raw_input_contents.append(b"1")
        for at in range(outputs):
            made.outputs.add(name=f"y{at}")
        return made

    assert len(grpc_decode(request(MOST_TENSORS))[0].inputs) == MOST_TENSORS
    for message in (request(MOST_TENSORS + 1), request(1, MOST_TENSORS + 1)):
        with pytest.raises(BadRequest, match="are the most"):
            grpc_decode(message)
    for holder in (lambda made: made, lambda made: made.inputs[0], lambda made: made.outputs[0]):
        message = request(1, 1)
        for at in range(MOST_PARAMETERS + 1):
            holder(message).parameters[str(at)].int64_param = at
        with pytest.raises(BadRequest, match="parameters"):
            grpc_decode(message)


def test_numbers_that_travel_one_by_one_are_limited_in_both_directions() -> None:
    many = values.MOST_TYPED + 1
    message = messages().ModelInferRequest(model_name="m")
    message.inputs.add(name="x", datatype="BOOL", shape=[many]).contents.bool_contents.extend([True] * many)
    with pytest.raises(BadRequest, match="send them as raw_input_contents"):
        grpc_decode(message)
    with pytest.raises(BadRequest, match="too many to be written as JSON"):
        values.to_json(bytes(many), DataType.UINT8, (many,), "output 'y'")
    assert values.to_json(bytes(many - 1), DataType.UINT8, (many - 1,), "output 'y'").size == many - 1


def test_classification_is_limited_in_scores_and_in_classes() -> None:
    fits = top_classes(to_tensor("y", np.zeros((1, MOST_SCORES), "f4")), 1)
    assert fits.shape == (1, 1)
    with pytest.raises(BadRequest, match="scores"):
        top_classes(to_tensor("y", np.zeros((1, MOST_SCORES + 1), "f4")), 1)
    assert top_classes(to_tensor("y", np.zeros((2, MOST_CLASSES), "f4")), MOST_CLASSES // 2).shape[1] == (
        MOST_CLASSES // 2
    )
    with pytest.raises(BadRequest, match="classes"):
        top_classes(to_tensor("y", np.zeros((2, MOST_CLASSES), "f4")), MOST_CLASSES // 2 + 1)


# --- the fields of a message, before it is parsed ---


def fields_of(message: Any) -> int:
    """An independent count, from the parsed message: a packed list is one field."""
    total = 0
    for field, value in message.ListFields():
        entries = field.message_type is not None and field.message_type.GetOptions().map_entry
        if entries:
            total += 3 * len(value)  # itself, its key and its value
        elif field.message_type is not None:
            total += sum(1 + fields_of(one) for one in (value if field.is_repeated else [value]))
        elif field.is_repeated and field.type in (field.TYPE_BYTES, field.TYPE_STRING):
            total += len(value)
        else:
            total += 1
    return total


@st.composite
def infer_messages(draw: st.DrawFn) -> Any:
    made = messages().ModelInferRequest(model_name=draw(st.text()), id=draw(st.text()))
    for name in draw(st.lists(st.text(min_size=1), max_size=4, unique=True)):
        made.parameters[name].int64_param = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 4))):
        added = made.inputs.add(name=draw(st.text()), shape=draw(st.lists(st.integers(0, 2**40), max_size=3)))
        added.contents.bytes_contents.extend(draw(st.lists(st.binary(), max_size=4)))
        added.contents.fp32_contents.extend([0.0] * draw(st.integers(0, 4)))
        for name in draw(st.lists(st.text(min_size=1), max_size=2, unique=True)):
            added.parameters[name].string_param = draw(st.text())
    for _ in range(draw(st.integers(0, 4))):
        made.outputs.add(name=draw(st.text())).parameters["a"].bool_param = True
    made.raw_input_contents.extend(draw(st.lists(st.binary(), max_size=4)))
    return made


@given(infer_messages())
def test_the_fields_of_a_message_are_counted_as_the_parser_finds_them(message: Any) -> None:
    raw, count = message.SerializeToString(), fields_of(message)
    assert wire.has_at_most(raw, count, wire.INFER_REQUEST)
    assert count == 0 or not wire.has_at_most(raw, count - 1, wire.INFER_REQUEST)


@given(
    st.binary(max_size=200) | st.lists(st.sampled_from([b"\x7b", b"\x7c", b"\x32\x00", b"\xff", b"\x80"])).map(b"".join)
)
def test_any_bytes_are_counted(raw: bytes) -> None:
    assert wire.has_at_most(raw, len(raw), wire.INFER_REQUEST)
    work = calls_of(lambda: wire.has_at_most(raw, 10, wire.INFER_REQUEST))
    assert work <= 100


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(b"\x32\x00", id="outputs"),
        pytest.param(b"\x2a\x00", id="inputs"),
        pytest.param(b"\x22\x00", id="parameters"),
        pytest.param(b"\x3a\x00", id="raw contents"),
        pytest.param(b"\x7b\x7c", id="groups"),
        pytest.param(b"\x80\x01\x00", id="unknown"),
    ],
)
def test_a_message_of_many_parts_is_given_up_after_so_many(piece: bytes) -> None:
    for repeats in (1_000, 1_000_000):
        raw = piece * repeats
        work = calls_of(lambda raw=raw: wire.has_at_most(raw, 500, wire.INFER_REQUEST))  # type: ignore[misc]
        assert not wire.has_at_most(raw, 500, wire.INFER_REQUEST)
        assert work <= 500 * 8


def test_a_number_without_end_is_not_read_to_its_end() -> None:
    assert calls_of(lambda: wire.has_at_most(b"\x80" * 1_000_000, 10, {})) < 50


def test_the_largest_honest_request_fits() -> None:
    per_tensor = 1 + 4 + 3  # itself; name, datatype, shape, contents; the output's, its name, the raw contents
    assert per_tensor * MOST_TENSORS < MOST_FIELDS
