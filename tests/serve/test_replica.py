"""One execution in the replica, without a process around it; and the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from shoal.core import ShoalError, Unavailable
from shoal.inference.errors import ModelFailed
from shoal.inference.opening import open_runtime
from shoal.inference.types import DataType, TensorSpec
from shoal.serve.protocol.errors import statuses
from shoal.serve.replica.execute import place_outputs, run_batch
from shoal.serve.replica.messages import read_error, write_error
from tests.serve.models import callable_spec


def rows(*values: float) -> dict[str, Any]:
    return {"x": np.array([[value] for value in values], np.float32)}


def texts(results: list[Mapping[str, Any] | ShoalError]) -> list[object]:
    return [result.what if isinstance(result, ShoalError) else result["y"].ravel().tolist() for result in results]


def test_a_batch_runs_once() -> None:
    runtime = CountingRuntime("negative")
    assert texts(run_batch(runtime, rows(1, 2, 3), (), [2, 1])) == [[1, 2], [3]]
    assert runtime.runs == [3]


def test_what_the_model_cannot_digest_spoils_nobody_elses_answer() -> None:
    runtime = CountingRuntime("negative")
    results = run_batch(runtime, rows(1, 2, -3, 4), (), [2, 1, 1])
    assert texts(results) == [[1, 2], "ValueError: a negative number", [4]]
    assert runtime.runs == [4, 2, 1, 1]


def test_a_request_alone_fails_without_a_second_try() -> None:
    runtime = CountingRuntime("negative")
    assert texts(run_batch(runtime, rows(-1), (), [1])) == ["ValueError: a negative number"]
    assert runtime.runs == [1]


def test_what_a_model_raises_is_its_answer_even_when_it_is_no_exception() -> None:
    assert texts(run_batch(CountingRuntime("leaves"), rows(1), (), [1])) == ["SystemExit: 3"]


def test_what_a_model_lacks_all_its_requests_lack_and_it_is_waited_for_once() -> None:
    runtime = CountingRuntime("lacks")
    assert texts(run_batch(runtime, rows(1, 2, 3), (), [1, 1, 1])) == ["the store is away"] * 3
    assert runtime.runs == [3]
    (error,) = run_batch(runtime, rows(1), (), [1])
    assert isinstance(error, ShoalError)
    told = read_error(write_error(error))
    assert (type(told), statuses(told)[0]) == (Unavailable, 503)


class CountingRuntime:
    """A callable of `tests.serve.models`; `runs` are the batch sizes that it was run with."""

    def __init__(self, name: str) -> None:
        self._inner = open_runtime(callable_spec(name))
        self.metadata = self._inner.metadata
        self.runs: list[int] = []

    def run(self, inputs: Mapping[str, Any], outputs: Any) -> Mapping[str, Any]:
        self.runs.append(len(inputs["x"]))
        return self._inner.run(inputs, outputs)

    def close(self) -> None:
        self._inner.close()


def as_declared(name: str, datatype: DataType, shape: tuple[int, ...] = (-1,)) -> dict[str, TensorSpec]:
    return {name: TensorSpec(name, datatype, shape)}


@pytest.mark.parametrize(
    ("name", "array", "complaint"),
    [
        ("z", np.zeros((2, 1), np.float32), "it gave an output 'z' that is not declared"),
        ("y", np.zeros((2, 1)), "its output 'y' is FP64 [2, 1], declared is FP32 [-1, 1]"),
        ("y", np.zeros((2, 2), np.float32), "its output 'y' is FP32 [2, 2], declared is FP32 [-1, 1]"),
        ("y", np.zeros(2, np.float32), "its output 'y' is FP32 [2], declared is FP32 [-1, 1]"),
        ("y", np.full((2, 1), b"a", object), "its output 'y' is BYTES [2, 1], declared is FP32 [-1, 1]"),
    ],
)
def test_an_output_that_is_not_as_declared_is_the_models_error(name: str, array: Any, complaint: str) -> None:
    declared = as_declared("y", DataType.FP32, (-1, 1))
    good: Any = {"y": np.zeros((2, 1), np.float32)}
    (bad, fine), _ = place_outputs([{name: array}, good], declared, memoryview(b""), 1000)
    assert isinstance(bad, ModelFailed)
    assert bad.what == complaint
    assert bad.hint is not None
    assert "declare `outputs`" in bad.hint
    assert isinstance(fine, list)


def test_outputs_fill_their_room_and_only_that() -> None:
    room = memoryview(bytearray(10))
    outcomes, payload = place_outputs(
        [{"y": np.array([1, 2], np.int32)}], as_declared("y", DataType.INT32), room[:8], 100
    )
    assert payload == []
    assert bytes(room) == bytes([1, 0, 0, 0, 2, 0, 0, 0, 0, 0])
    (placed,) = outcomes[0] if isinstance(outcomes[0], list) else []
    assert (placed.name, placed.datatype, placed.shape, placed.offset, placed.nbytes) == (
        "y",
        DataType.INT32,
        (2,),
        0,
        8,
    )


def test_outputs_that_need_more_room_become_a_payload() -> None:
    room = memoryview(bytearray(7))
    results = [{"y": np.array([1, 2], np.int32)}, ModelFailed("no"), {"z": np.array([b"ab"], object)}]
    declared = {**as_declared("y", DataType.INT32), **as_declared("z", DataType.BYTES)}
    outcomes, payload = place_outputs(results, declared, room, 100)
    assert bytes(room) == bytes(7)
    assert b"".join(payload) == bytes([1, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0]) + b"ab"
    assert [[(t.offset, t.nbytes) for t in outcome] for outcome in outcomes if isinstance(outcome, list)] == [
        [(0, 8)], [(8, 6)],
    ]  # fmt: skip


def test_outputs_that_cannot_be_sent_fail_alone_or_all_together() -> None:
    results: list[Any] = [{"y": np.zeros(2, complex)}, {"y": np.zeros(2, np.int32)}]
    (bad, good), _ = place_outputs(results, as_declared("y", DataType.INT32), memoryview(bytearray(8)), 100)
    assert isinstance(bad, ModelFailed)
    assert isinstance(good, list)
    outcomes, payload = place_outputs(
        [{"y": np.zeros(100)}] * 2, as_declared("y", DataType.FP64), memoryview(b""), 1000
    )
    assert payload == []
    assert all(isinstance(outcome, ModelFailed) and "1600 bytes" in outcome.what for outcome in outcomes)


def test_a_declared_bf16_output_is_sent_as_one() -> None:
    declared = as_declared("y", DataType.BF16)
    (outcome,), (part,) = place_outputs([{"y": np.ones(2, np.float32)}], declared, memoryview(b""), 100)
    assert isinstance(outcome, list)
    assert (outcome[0].datatype, bytes(part)) == (DataType.BF16, b"\x80\x3f\x80\x3f")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "replica a finds no gateway at /nonexistent/registry: [Errno 2]"),
        (("--die-with-parent", "1"), ""),
    ],
)
def test_a_replica_without_a_gateway_or_a_parent_ends(arguments: Sequence[str], told: str) -> None:
    command = [sys.executable, "-m", "shoal.serve.replica", "--connect", "/nonexistent/registry", "--name", "a"]
    done = subprocess.run(
        [*command, "--give-up-after", "0", *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 4
    assert told in done.stderr
