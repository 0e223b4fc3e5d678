"""Bytes to arrays and back, requests put together and taken apart, and what a request is told that does not fit."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shoal.inference.errors import BadRequest, ModelFailed
from shoal.inference.tensors import (
    batch_key,
    check_request,
    decode_strings,
    encode_strings,
    numpy_dtype,
    outputs_for,
    samples_in,
    split,
    stack,
    to_array,
    to_tensor,
)
from shoal.inference.types import DataType, InferRequest, ModelMetadata, RequestedOutput, Tensor, TensorSpec

NUMBERS = [each for each in DataType if each not in (DataType.BYTES, DataType.BF16)]
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def request(*inputs: Tensor, **more: Any) -> InferRequest:
    return InferRequest("m", list(inputs), **more)


def ints(name: str, values: Any) -> Tensor:
    return to_tensor(name, np.asarray(values, np.int32))


@given(st.data())
def test_numbers_come_back_as_they_were(data: st.DataObject) -> None:
    datatype = data.draw(st.sampled_from(NUMBERS))
    array = data.draw(arrays.arrays(numpy_dtype(datatype), SHAPES))
    tensor = to_tensor("x", array)
    assert (tensor.datatype, tensor.shape) == (datatype, array.shape)
    assert len(tensor.data) == array.size * (datatype.size or 0)
    back = to_array(tensor)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@given(st.lists(st.binary(max_size=9)), st.data())
def test_strings_come_back_as_they_were(elements: list[bytes], data: st.DataObject) -> None:
    assert decode_strings(encode_strings(elements), len(elements), where="x") == elements
    tensor = to_tensor("x", np.array(elements, object))
    assert tensor.datatype is DataType.BYTES
    assert list(to_array(tensor)) == elements


def test_text_is_sent_as_utf8() -> None:
    assert list(to_array(to_tensor("x", np.array(["é", "ab"])))) == ["é".encode(), b"ab"]


@given(st.binary(max_size=40), st.integers(0, 3))
def test_damaged_strings_are_refused_or_understood_but_never_crash(data: bytes, count: int) -> None:
    try:
        elements = decode_strings(data, count, where="x")
    except BadRequest:
        return
    assert len(elements) == count
    assert encode_strings(elements) == data


def test_inputs_are_views_that_cannot_be_written() -> None:
    data = bytearray(16)
    array = to_array(Tensor("x", DataType.FP32, (4,), data))
    struct.pack_into("<f", data, 4, 2.5)
    assert array[1] == 2.5
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@given(arrays.arrays(np.float32, SHAPES))
def test_bf16_is_rounded_to_the_nearest_even(array: Any) -> None:
    tensor = to_tensor("x", array, DataType.BF16)
    assert tensor.datatype is DataType.BF16
    assert len(tensor.data) == 2 * array.size
    back = to_array(tensor)
    # 8 bits of mantissa: at most half of the last one away, except where the largest numbers become infinite.
    np.testing.assert_array_equal(np.isnan(back), np.isnan(array))
    usual = np.isfinite(array) & np.isfinite(back) & (np.abs(array) > 1e-30)
    assert (np.abs(back[usual] - array[usual]) <= np.abs(array[usual]) * 2.0**-8).all()
    assert bytes(to_tensor("x", back, DataType.BF16).data) == bytes(tensor.data)


def test_a_type_that_the_protocol_lacks_is_the_models_failure() -> None:
    with pytest.raises(ModelFailed, match="complex128 has no datatype"):
        to_tensor("x", np.zeros(2, complex))


def test_big_endian_arrays_are_turned_round() -> None:
    assert bytes(to_tensor("x", np.array([1, 2], ">i4")).data) == bytes([1, 0, 0, 0, 2, 0, 0, 0])


# --- together and apart ---


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 3), st.data())
def test_what_is_put_together_comes_apart_again(sizes: list[int], width: int, data: st.DataObject) -> None:
    rows = [data.draw(arrays.arrays(np.int32, (size, width))) for size in sizes]
    words = [[bytes([size]) * index for index in range(size)] for size in sizes]
    requests = [
        # The order of the inputs is each request's own affair.
        request(*[ints("a", row), to_tensor("b", np.array(word, object))][:: 1 if index % 2 else -1])
        for index, (row, word) in enumerate(zip(rows, words, strict=True))
    ]
    assert len({batch_key(each) for each in requests}) == 1
    stacked, found = stack(requests)
    together = {each.name: to_array(Tensor(each.name, each.datatype, each.shape, b"".join(each.parts)))
                for each in stacked}  # fmt: skip
    assert sum(each.nbytes for each in stacked) == sum(len(t.data) for each in requests for t in each.inputs)
    parts = split(together, found)
    for part, row, word in zip(parts, rows, words, strict=True):
        np.testing.assert_array_equal(part["a"], row)
        assert list(part["b"]) == word


def test_a_request_alone_may_have_any_shape() -> None:
    (stacked,), sizes = stack([request(Tensor("x", DataType.FP32, (), bytes(4)))])
    assert (stacked.shape, sizes) == ((), [1])


def test_an_output_without_a_row_per_sample_cannot_be_shared_out() -> None:
    with pytest.raises(ModelFailed, match=r"output 'y' has shape \[2\] for a batch of 3"):
        split({"y": np.zeros(2)}, [1, 2])


# --- checks ---

MODEL = ModelMetadata(
    "m", ("1",), "test",
    (TensorSpec("x", DataType.INT32, (-1, 2)), TensorSpec("s", DataType.BYTES, (-1,))),
    (TensorSpec("y", DataType.FP32, (-1,)),),
    max_batch=4,
)  # fmt: skip
S1 = to_tensor("s", np.array([b"a"], object))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (request(ints("x", [[1, 2]])), "without input 's' (its inputs: s, x)"),
        (request(ints("x", [[1, 2]]), S1, ints("z", [1])), "no input 'z' (its inputs: s, x)"),
        (request(ints("x", [[1, 2]]), ints("x", [[1, 2]]), S1), "input 'x' is given twice"),
        (request(to_tensor("x", np.zeros((1, 2))), S1), "input 'x' is FP64, the model takes INT32"),
        (request(ints("x", [[1, 2, 3]]), S1), "input 'x' has shape [1, 3], the model takes [-1, 2]"),
        (request(ints("x", [1, 2]), S1), "input 'x' has shape [2], the model takes [-1, 2]"),
        (request(Tensor("x", DataType.INT32, (-1, 2), b""), S1), "input 'x' has shape [-1, 2]"),
        (request(Tensor("x", DataType.INT32, (1, 2), bytes(4)), S1),
         "input 'x': INT32 of shape [1, 2] takes 8 bytes, but 4 are given"),
        (request(ints("x", [[1, 2]]), Tensor("s", DataType.BYTES, (1,), b"\1\0\0\0")),
         "input 's': the element at byte 4 claims 1 bytes, 0 are left"),
        (request(ints("x", [[1, 2]]), Tensor("s", DataType.BYTES, (1,), b"")),
         "input 's': 0 elements, its shape says 1"),
        (request(ints("x", [[1, 2]]), Tensor("s", DataType.BYTES, (1,), b"\0\0")), "2 bytes are left over at byte 0"),
        (request(ints("x", [[1, 2]] * 2), S1), "input 'x' has 2 samples and 's' 1"),
        (request(ints("x", [[1, 2]] * 5), to_tensor("s", np.array([b""] * 5, object))),
         "a batch of 5, the model takes 1 to 4 (send the samples in several requests)"),
        (request(ints("x", np.zeros((0, 2))), to_tensor("s", np.array([], object))), "a batch of 0"),
        (request(ints("x", [[1, 2]]), S1, outputs=(RequestedOutput("q"),)), "no output 'q' (its outputs: y)"),
    ],
)  # fmt: skip
def test_the_complaint_says_what_is_wrong(wrong: InferRequest, complaint: str) -> None:
    with pytest.raises(BadRequest) as refused:
        check_request(wrong, MODEL)
    assert complaint in str(refused.value)


def test_a_good_request_passes_and_says_how_many_samples_it_has() -> None:
    good = request(ints("x", [[1, 2], [3, 4]]), to_tensor("s", np.array([b"a", b""], object)))
    check_request(good, MODEL)
    assert samples_in(good, MODEL) == 2


def test_without_batches_the_first_dimension_is_the_models_own_affair() -> None:
    audio = ModelMetadata("m", ("1",), "test", (TensorSpec("x", DataType.INT32, (-1,)),), ())
    long = request(ints("x", np.zeros(16000)))
    check_request(long, audio)
    assert samples_in(long, audio) == 1


def test_some_outputs_are_given_on_request_only_and_some_always() -> None:
    outputs = tuple(TensorSpec(name, DataType.INT32, (-1,)) for name in ("y", "p", "stage", "approximate"))
    plain = ModelMetadata("m", ("1",), "test", (TensorSpec("x", DataType.INT32, (-1,)),), outputs)
    model = replace(plain, on_request=("stage",), always=("approximate",))

    def given(*named: str, **parameters: Any) -> tuple[str, ...]:
        wanted = tuple(RequestedOutput(name) for name in named)
        asked = request(ints("x", [1]), outputs=wanted, parameters=parameters)
        check_request(asked, model)
        return outputs_for(asked, model)

    assert given() == ("y", "p", "approximate")
    assert given("y") == ("y", "approximate")
    assert given("stage", "y") == ("stage", "y", "approximate")
    assert given("y", explain=True) == ("y", "approximate", "stage")
    assert given("y", explain=False) == given("y")
    with pytest.raises(BadRequest, match="must be true or false"):
        given(explain="yes")
    assert outputs_for(request(ints("x", [1]), parameters={"explain": "yes"}), plain) == ()
