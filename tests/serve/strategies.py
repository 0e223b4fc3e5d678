"""Tensors and requests of all kinds, for properties."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from shoal.inference.tensors import encode_strings
from shoal.inference.types import DataType, InferRequest, RequestedOutput, Tensor

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def tensors(draw: st.DrawFn, name: str = "x") -> Tensor:
    kind, shape = draw(st.sampled_from(DataType)), draw(shapes)
    count = math.prod(shape)
    if kind is DataType.BYTES:
        return Tensor(name, kind, shape, encode_strings(draw(st.lists(st.binary(), min_size=count, max_size=count))))
    assert kind.size is not None
    return Tensor(name, kind, shape, draw(st.binary(min_size=count * kind.size, max_size=count * kind.size)))


parameters = st.dictionaries(
    st.text(max_size=5).map("own_".__add__), st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)
)


@st.composite
def infer_requests(draw: st.DrawFn) -> InferRequest:
    names = draw(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4, unique=True))
    wanted = draw(st.lists(st.text(min_size=1, max_size=6), max_size=3, unique=True))
    outputs = tuple(RequestedOutput(name, draw(st.booleans()), draw(st.integers(0, 3))) for name in wanted)
    return InferRequest(
        "m", [draw(tensors(name)) for name in names], "ada", "7", draw(st.text(max_size=5)), outputs,
        draw(parameters), draw(st.none() | st.integers(1, 10**9).map(lambda micros: micros / 1e6)),
    )  # fmt: skip


def plain(tensor: Tensor) -> tuple[str, DataType, tuple[int, ...], bytes]:
    return tensor.name, tensor.datatype, tensor.shape, bytes(tensor.data)
