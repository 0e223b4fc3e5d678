"""Requests of any shape and type to real replicas: each is answered or refused, and none ends a replica."""

from __future__ import annotations

import http.client
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from shoal.inference.errors import ModelFailed
from shoal.inference.types import DataType
from tests.serve import models
from tests.serve.gateway_kit import ONE, Live, service, standalone
from tests.serve.models import callable_spec

FREE = {"echo": 2, "free": 4}
"""The models, and how many free dimensions their input has."""
lengths = st.integers(0, 3) | st.sampled_from([2**15, 2**31 - 1, 2**31, 2**46, 2**62, 2**63 - 1, 2**64])


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("any")
    free = models.identity(folder / "free.onnx", TensorProto.FLOAT, ("a", "b", "c", "d"))
    specs = [
        callable_spec("echo"),
        callable_spec("leaves"),
        replace(callable_spec("free"), source=str(free), runtime="onnx", inputs=(), outputs=()),
    ]
    with standalone(folder, [service("s", specs)]) as found:
        yield found


def post(live: Live, model: str, document: Any) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", live.process.http.port, timeout=30)
    try:
        connection.request("POST", f"/v2/models/{model}/infer", json.dumps(document))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def starts(live: Live) -> int:
    return live.alone.replicas["ada.s-0-1"].starts


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=st.sampled_from([*FREE]), kind=st.sampled_from(DataType), data=st.data())
@example(model="echo", kind=DataType.FP32, data=[0, 2**62])
@example(model="free", kind=DataType.FP32, data=[0, 3, 2**31, 2**31])
def test_a_request_of_any_shape_and_type_is_answered_or_refused(
    live: Live, model: str, kind: DataType, data: Any
) -> None:
    shape = data if isinstance(data, list) else data.draw(st.lists(lengths, min_size=0, max_size=5))
    count = math.prod(shape)
    values: list[Any] = ["a" if kind is DataType.BYTES else 1] * (count if count < 100 else 1)
    document = {"inputs": [{"name": "x", "datatype": kind, "shape": shape, "data": values}]}
    status, text = post(live, model, document)
    assert status in (200, 400), (shape, text)
    fits = kind is DataType.FP32 and len(shape) == FREE[model] and count == len(values)
    if status == 200:
        assert fits
    elif fits:
        assert "at most" in text  # elements
    assert starts(live) == 1
    assert post(live, "echo", {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}]})[0] == 200


def test_a_model_that_wants_to_leave_fails_this_request_only(live: Live) -> None:
    client = live.client()
    with pytest.raises(ModelFailed, match="SystemExit: 3"):
        client.infer("leaves", {"x": ONE})
    np.testing.assert_array_equal(client.infer("echo", {"x": ONE})["y"], ONE)
    assert starts(live) == 1
