"""The registry with a real replica: models load and run, and batches pass through shared memory or beside it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from shoal.inference.errors import BadModel, ModelFailed
from shoal.inference.types import DataType, InferResponse, ModelSpec, RequestedOutput, TensorSpec
from shoal.serve.errors import BodyTooLarge, NotReady
from shoal.serve.gateway.replicas.replica_handle import Replica, ReplicaLimits
from tests.serve.models import callable_spec, floats, linear, linear_weights
from tests.serve.registry_kit import Kit, answer, registry_kit

LIMITS = ReplicaLimits(arena_bytes=1 << 20, message_bytes=8 << 20)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kit(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kit]:
    """One replica for all tests here: none of them harms it. Its arena is small."""
    async with registry_kit(tmp_path_factory.mktemp("registry"), LIMITS) as kit:
        await kit.replica()
        yield kit


@pytest_asyncio.fixture(loop_scope="module")
async def replica(kit: Kit) -> Replica:
    return kit.registry.replicas["a"]


async def test_models_are_loaded_and_run(kit: Kit, replica: Replica, tmp_path: Path) -> None:
    assert (kit.registry.replicas, os.getpgid(replica.pid)) == ({"a": replica}, kit.spawned["a"].pid)
    spec = ModelSpec("lin", str(linear(tmp_path / "m.onnx")), max_batch=4, warmup=2)
    report = await replica.load(spec)
    assert replica.models["lin", "1"] == report
    assert kit.told.log[-1] == ("ready", "a", ("lin", "1"))
    assert [runs.batch for runs in report.runs] == [1, 4]
    assert all(len(runs.seconds) >= 2 for runs in report.runs)
    assert report.metadata.inputs == (TensorSpec("x", DataType.FP32, (-1, 4)),)
    w, b = linear_weights()
    x = np.random.default_rng(0).random((4, 4), np.float32)
    requests = [floats("x", x[:1], "lin", id="one"), floats("x", x[1:], "lin", id="rest")]
    done = await replica.execute("lin", "1", requests)
    np.testing.assert_allclose(np.concatenate([answer(done, 0), answer(done, 1)]), x @ w + b, rtol=1e-5)
    first, rest = done.responses
    assert isinstance(first, InferResponse)
    assert isinstance(rest, InferResponse)
    assert (first.model, first.version, first.id, rest.id) == ("lin", "1", "one", "rest")
    times = done.times
    parts = times.compute_input_s + times.compute_infer_s + times.compute_output_s
    assert 0 < times.compute_infer_s <= parts <= times.device_s * 1.001
    assert replica.in_flight == 0


async def test_many_models_live_in_one_replica_and_leave_it(replica: Replica, tmp_path: Path) -> None:
    for seed in range(12):
        path = linear(tmp_path / f"{seed}.onnx", seed=seed)
        await replica.load(ModelSpec("lin", str(path), version=str(seed), warmup=1))
    assert {("lin", str(seed)) for seed in range(12)} <= set(replica.models)
    x = np.ones((1, 4), np.float32)
    for seed in (3, 11):
        w, b = linear_weights(seed)
        done = await replica.execute("lin", str(seed), [floats("x", x, "lin")])
        np.testing.assert_allclose(answer(done), x @ w + b, rtol=1e-5)
    before, unloading = replica.execute("lin", "3", [floats("x", x, "lin")]), replica.unload("lin", "3")
    assert ("lin", "3") not in replica.models
    await unloading
    assert answer(before.result()).shape == (1, 3)
    await replica.unload("lin", "no such version")
    with pytest.raises(NotReady, match="version 3 is not loaded in replica 'a'"):
        await replica.execute("lin", "3", [floats("x", x, "lin")])
    await replica.execute("lin", "11", [floats("x", x, "lin")])


async def test_loading_again_takes_the_place_of_what_was_there(replica: Replica) -> None:
    counter = callable_spec("Counter", inputs=(), outputs=())
    for _ in range(2):
        await replica.load(counter)
        calls = [await replica.execute("Counter", "1", [floats("x", [[0]], "Counter")]) for _ in range(3)]
        assert [answer(done)[0] for done in calls] == [1, 2, 3]


async def test_a_model_that_fails_to_close_costs_the_others_nothing(replica: Replica) -> None:
    for name in ("echo", "Clinging", "Clinging"):
        await replica.load(callable_spec(name))
    await replica.unload("Clinging", "1")
    assert answer(await replica.execute("echo", "1", [floats("x", [[7]], "echo")])) == [[7]]


async def test_a_model_that_cannot_be_loaded_leaves_the_replica_as_it_was(replica: Replica, tmp_path: Path) -> None:
    await replica.load(callable_spec("echo"))
    (tmp_path / "bad.onnx").write_bytes(b"\0nonsense")
    with pytest.raises(BadModel) as error:
        await replica.load(ModelSpec("echo", str(tmp_path / "bad.onnx")))
    assert "bad.onnx" in error.value.what
    assert error.value.where == "model 'echo' version 1"
    assert error.value.hint
    assert answer(await replica.execute("echo", "1", [floats("x", [[7]], "echo")])) == [[7]]


async def test_errors_of_the_model_are_each_requests_own(replica: Replica) -> None:
    await replica.load(callable_spec("negative", max_batch=8))
    done = await replica.execute("negative", "1", [floats("x", [[value]], "negative") for value in (1, -2, 3)])
    assert (answer(done, 0), answer(done, 2)) == ([[1]], [[3]])
    failed = done.responses[1]
    assert isinstance(failed, ModelFailed)
    assert (failed.what, failed.where) == ("ValueError: a negative number", "model 'negative'")


async def test_each_request_gets_the_outputs_that_it_asked_for(replica: Replica) -> None:
    outputs = tuple(TensorSpec(name, DataType.FP32, (-1, 1)) for name in "ab")
    await replica.load(callable_spec("twice", outputs=outputs, max_batch=4))
    asked: list[tuple[str, ...]] = [("b",), ("b", "a"), ()]
    for number in (2, 3):
        requests = [
            floats("x", [[at]], "twice", outputs=tuple(RequestedOutput(name) for name in names))
            for at, names in enumerate(asked[:number])
        ]
        done = await replica.execute("twice", "1", requests)
        got = [[tensor.name for tensor in each.outputs] for each in done.responses
               if isinstance(each, InferResponse)]  # fmt: skip
        assert got == [["b"], ["b", "a"], ["a", "b"]][:number]


async def test_answers_of_unknown_length_find_their_way(replica: Replica) -> None:
    """Longer than the room that was kept for them at first, and then all lengths up and down."""
    await replica.load(callable_spec("swell", max_batch=4))
    for length in (1, 100_000, 10, 300_000, 0, 300_000):
        done = await replica.execute("swell", "1", [floats("x", [[length]], "swell")] * 2)
        assert answer(done, 1).shape == (1, length)


async def test_batches_larger_than_the_arena_go_over_the_socket(replica: Replica) -> None:
    await replica.load(callable_spec("echo", max_batch=4))
    x = np.random.default_rng(0).random((4, 400_001), np.float32)
    done = await replica.execute("echo", "1", [floats("x", row[None], "echo") for row in x])
    for at, row in enumerate(x):
        np.testing.assert_array_equal(answer(done, at), row[None])
    small, large = (replica.execute("echo", "1", [floats("x", x[:1, :n], "echo")]) for n in (10, 200_000))
    assert answer(await small).shape == (1, 10)
    assert answer(await large).shape == (1, 200_000)
    with pytest.raises(BodyTooLarge, match="more than can be sent"):
        await replica.execute("echo", "1", [floats("x", np.zeros((1, 3_000_000)), "echo")])
    await replica.load(callable_spec("swell"))
    done = await replica.execute("swell", "1", [floats("x", [[3_000_000]], "swell")])
    assert isinstance(done.responses[0], ModelFailed)
    assert "more than can be sent" in done.responses[0].what


@pytest.mark.parametrize("name", ["mixed", "ragged", "nothing_at_all", "misnamed", "fail"])
async def test_nothing_that_a_model_returns_ends_its_replica(replica: Replica, name: str) -> None:
    await replica.load(callable_spec(name))
    done = await replica.execute(name, "1", [floats("x", [[1]], name)])
    assert isinstance(done.responses[0], ModelFailed)
    await replica.load(callable_spec("echo"))
    assert answer(await replica.execute("echo", "1", [floats("x", [[1]], "echo")])).tolist() == [[1]]


async def test_inputs_are_read_where_they_were_written(replica: Replica) -> None:
    await replica.load(callable_spec("flags"))
    for values in (1, 1_000_000):  # in the arena, and too large for it
        done = await replica.execute("flags", "1", [floats("x", np.zeros((1, values)), "flags")])
        assert answer(done).tolist() == [False, False]


async def test_a_second_batch_waits_in_the_replica_and_answers_come_in_order(replica: Replica) -> None:
    await replica.load(callable_spec("nap"))
    futures = [replica.execute("nap", "1", [floats("x", [[seconds]], "nap")]) for seconds in (0.1, 0.0, 0.01)]
    assert replica.in_flight == 3
    futures[1].cancel()  # whoever asked is gone: the answer is dropped, nothing else changes
    await futures[2]
    assert answer(futures[0].result())[0, 0] == np.float32(0.1)
    assert replica.in_flight == 0


async def test_a_request_for_a_model_that_is_not_loaded_is_refused_in_the_future(replica: Replica) -> None:
    with pytest.raises(NotReady):
        await replica.execute("other", "1", [floats("x", [[1]])])
