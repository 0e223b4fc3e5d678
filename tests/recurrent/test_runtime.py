"""The runtime of services: declared, opened from a specification, batches, sessions, and undoing a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.inference import (
    BadModel,
    BadRequest,
    HasFigures,
    HasState,
    ModelSpec,
    Sessions,
    Steps,
    open_warm,
    runtime_of,
)
from shoal.recurrent import load
from tests.recurrent.test_onnx import lstm_between_others
from tests.recurrent.test_sessions import inputs, network


@pytest.fixture
def source(tmp_path: Path) -> Path:
    network(tmp_path)
    return tmp_path / "m.safetensors"


def opened(source: Path, **more: Any) -> Any:
    options = more.pop("options", {})
    return open_warm(ModelSpec("m", str(source), "recurrent", options=options, **more))[0]


def test_an_artefact_is_for_this_runtime() -> None:
    assert runtime_of("x.rnn") == "recurrent"


@pytest.mark.slow
def test_rows_come_first_and_are_batched(source: Path) -> None:
    runtime = opened(source, max_batch=4)
    assert runtime.metadata.inputs[0].shape == (-1, -1, 5)
    x = np.concatenate([inputs(seed, 6) for seed in range(3)], axis=1)
    found = runtime.run({"x": x.swapaxes(0, 1)}, ("y",))["y"]
    assert np.array_equal(found.swapaxes(0, 1), load(source).run({"x": x})["y"])
    with pytest.raises(BadRequest):
        runtime.run({"x": x[..., :2]}, ())


def test_sessions_advance_in_one_batch_and_a_late_step_is_undone(source: Path) -> None:
    runtime = opened(source, max_sequences=3)
    assert isinstance(runtime, Sessions)
    assert isinstance(runtime, HasState)
    assert isinstance(runtime, HasFigures)
    assert runtime.session_bytes == 2 * 4 * 2 * 2 * 18
    pair = [runtime.open_session(), runtime.open_session()]
    wanted = [load(source).run({"x": inputs(seed, 3)})["y"][:, 0] for seed in (0, 1)]
    for step in range(3):
        x = np.stack([inputs(seed, 3)[step] for seed in (0, 1)])
        found = runtime.advance(pair, {"x": x}, ("y",))["y"]
        runtime.undo(pair[0])
        again = runtime.advance(pair[:1], {"x": x[:1]}, ("y",))["y"]
        assert np.array_equal(found[:, 0], np.stack([one[step] for one in wanted]))
        assert np.array_equal(again[0, 0], wanted[0][step])
    with pytest.raises(BadRequest):
        runtime.advance(pair, {"x": np.zeros((2, 1, 4), np.float32)}, ())
    assert runtime.figures() == {"sessions": 2.0, "session_steps_total": 9.0}
    runtime.close_session(pair[0])
    assert runtime.figures()["sessions"] == 1.0
    assert runtime.state().word == "READY"


def test_a_network_with_other_parts_keeps_its_shapes_and_its_state(tmp_path: Path) -> None:
    path = lstm_between_others(tmp_path / "m.onnx")
    runtime = opened(path)
    assert [one.name for one in runtime.metadata.inputs] == ["X"]
    assert [one.name for one in runtime.metadata.outputs] == ["out"]
    session = runtime.open_session()
    x = inputs(0, 4)
    zeros = np.zeros((1, 1, 12), np.float32)
    whole = load(path).run({"X": x, "h0": zeros, "c0": zeros})["out"]
    pieces = [runtime.advance([session], {"X": x[at : at + 1]}, ())["out"] for at in range(4)]
    np.testing.assert_allclose(np.concatenate(pieces), whole, rtol=1e-5, atol=1e-6)


def test_a_request_of_several_frames_is_as_many_steps(tmp_path: Path) -> None:
    path = lstm_between_others(tmp_path / "m.onnx")
    one, many = opened(path), opened(path, options={"frames": True})
    assert [spec.shape[:2] for spec in many.metadata.inputs] == [(1, -1)]
    x = inputs(0, 6)
    session = one.open_session()
    wanted = np.stack([one.advance([session], {"X": x[at : at + 1]}, ())["out"] for at in range(6)])
    session = many.open_session()
    parts = [x[:4].reshape(1, 4, 1, *x.shape[1:]), x[4:].reshape(1, 2, 1, *x.shape[1:])]
    assert np.array_equal(many.advance([session], {"X": parts[0]}, ())["out"][0], wanted[:4])
    for _ in range(2):  # what came too late is taken back, all of it
        assert np.array_equal(many.advance([session], {"X": parts[1]}, ())["out"][0], wanted[4:])
        many.undo(session)
    spoilt = np.concatenate([parts[1], np.zeros_like(parts[1])], axis=1)[..., :-1]
    for wrong in (spoilt, parts[1][:, :0]):
        with pytest.raises(BadRequest):
            many.advance([session], {"X": wrong}, ())
    assert np.array_equal(many.advance([session], {"X": parts[1]}, ())["out"][0], wanted[4:])
    assert np.array_equal(many.run({"X": parts[0]}, ())["out"][0], wanted[:4])


def test_callers_of_a_network_of_one_row_are_one_batch(tmp_path: Path) -> None:
    """Its shapes are fixed, so that a row is a call. Each caller gets to the bit what it gets alone."""
    path = lstm_between_others(tmp_path / "m.onnx")
    options = {"shape": {"X": [1, 1, 5], "h0": [1, 1, 12], "c0": [1, 1, 12]}}
    alone, many = opened(path, options=options), opened(path, options=options, max_batch=4)
    assert [spec.shape for spec in alone.metadata.inputs] == [(1, 1, 5)]
    assert [spec.shape for spec in (*many.metadata.inputs, *many.metadata.outputs)] == [(-1, 1, 5), (-1, 1, 12)]
    x = np.concatenate([inputs(seed, 4) for seed in range(3)], axis=1)
    each = [alone.open_session() for _ in range(3)]
    wanted = [
        np.concatenate([alone.advance([one], {"X": x[at : at + 1, row : row + 1]}, ())["out"]
                        for row, one in enumerate(each)])
        for at in range(4)
    ]  # fmt: skip
    together = [many.open_session() for _ in range(3)]
    for at in range(4):
        for _ in range(2):  # what came too late is taken back
            for one in together:
                one.undo()
            assert np.array_equal(many.advance(together, {"X": x[at][:, None]}, ())["out"], wanted[at])
        for one in together:
            one.before_last = None
    assert np.array_equal(many.run({"X": x[0][:, None]}, ("out",))["out"], wanted[0])
    with pytest.raises(BadRequest):
        many.advance(together, {"X": x[0][:, None, :-1]}, ())


def test_a_network_that_is_recurrent_alone_needs_no_frames(source: Path) -> None:
    with pytest.raises(BadModel, match="all of the network is recurrent"):
        opened(source, options={"frames": True})


def test_sequences_join_and_leave_between_steps(source: Path) -> None:
    """A short request that comes later ends earlier, and each gets what it gets alone."""
    runtime = opened(source, options={"by_steps": True}, max_batch=3, max_sequences=1)
    assert isinstance(runtime, Steps)
    assert not isinstance(runtime, Sessions)
    assert runtime.rows == 3
    x = {number: inputs(number, steps) for number, steps in ((1, 5), (2, 2), (3, 9))}
    ended: dict[int, int] = {}
    runtime.join({number: {"x": x[number].swapaxes(0, 1)} for number in (1, 3)})
    for turn in range(6):
        if turn == 1:
            runtime.join({2: {"x": x[2].swapaxes(0, 1)}})
        for number, found in runtime.step().items():
            ended[number] = turn
            for name, value in load(source).run({"x": x[number]}).items():
                assert np.array_equal(found[name], value.swapaxes(0, 1))
    assert ended == {2: 2, 1: 4}
    runtime.leave(3)
    runtime.leave(3)
    assert runtime.step() == {}
    with pytest.raises(BadRequest):
        runtime.join({4: {"x": x[1].swapaxes(0, 1)}, 5: {"x": np.zeros((1, 0, 5), np.float32)}})
    runtime.join({number: {"x": x[1].swapaxes(0, 1)} for number in (6, 7, 8)})  # no row of the refused ones is taken


def test_a_network_with_other_parts_has_no_steps(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match="all of the network is recurrent"):
        opened(lstm_between_others(tmp_path / "m.onnx"), options={"by_steps": True})


@pytest.mark.few(count=2)
@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("m.onnx", b"nothing", {}),
        ("m.rnn", b"nothing", {}),
        ("m.pkl", b"", {}),
        ("m.safetensors", None, {"cell": "slstm"}),
    ],
)
def test_what_cannot_be_loaded_is_a_bad_model(name: str, data: bytes | None, options: Any, source: Path) -> None:
    path = source.with_name(name)
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(BadModel):
        opened(path, options=options)
