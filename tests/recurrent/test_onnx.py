"""ONNX files: the conformance cases of ONNX itself, every attribute against ONNX Runtime, and what is refused."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from shoal.recurrent import BadInput, BadNetwork, load
from shoal.recurrent.bench import quantised_model
from shoal.recurrent.layers.layer import InterpretedLayer, Schedules
from shoal.recurrent.layers.make import best_target
from shoal.recurrent.llvm.cache import KernelCache
from shoal.recurrent.loading import maker, read
from shoal.recurrent.nest.transform import Schedule
from shoal.recurrent.network.network import Network
from tests.recurrent.support import distance, save_model


def small(path: Path) -> Network:
    """The network with the smallest tiles, which compile in no time."""
    plain = Schedule(1, 1, 1, False, 1)
    return Network(read(path), maker(best_target(), KernelCache(None), lambda *_: Schedules(plain, plain)))


def conformance_cases() -> list[Any]:
    """Those of three modules: to collect all cases of ONNX takes half a minute."""
    from onnx.backend.test.case import node

    for name in ("lstm", "gru", "rnn"):
        importlib.import_module(f"onnx.backend.test.case.node.{name}")
    return [case for case in node._NodeTestCases if case.model.graph.node[0].op_type in GATES]


GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


CASES = conformance_cases()


def test_all_conformance_cases_are_there() -> None:
    assert len(CASES) >= 18


@pytest.mark.parametrize("back_end", ["compiled", "interpreted"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_conformance_case_of_onnx_passes(case: Any, back_end: str, tmp_path: Path) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    given_arrays, wanted = case.data_sets[0]
    node = model.graph.node[0]
    weights = {node.input[at] for at in (1, 2, 3, 7) if at < len(node.input)}
    feeds = {}
    for info, array in zip(list(model.graph.input), given_arrays, strict=True):
        if info.name in weights:
            model.graph.input.remove(info)
            model.graph.initializer.append(numpy_helper.from_array(array, info.name))
        else:
            feeds[info.name] = array
    path = tmp_path / "case.onnx"
    onnx.save(model, path)
    net = small(path) if back_end == "compiled" else Network(read(path), InterpretedLayer)
    assert len(net.graph.recurrences) == 1
    assert not net.graph.segments
    found = net.run(feeds)
    for info, array in zip(model.graph.output, wanted, strict=True):
        np.testing.assert_allclose(found[info.name], array, rtol=1e-4, atol=1e-6)


FUNCTIONS = ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"]


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_every_attribute_means_what_onnx_runtime_makes_of_it(data: st.DataObject, tmp_path_factory: Any) -> None:
    draw = data.draw
    op = draw(st.sampled_from(sorted(GATES)))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    directions = 2 if direction == "bidirectional" else 1
    steps, rows, size, hidden = (draw(st.integers(1, top)) for top in (7, 4, 9, 21))
    noise = np.random.default_rng(draw(st.integers(0, 99)))

    def numbers(*shape: int) -> Any:
        return noise.uniform(-0.8, 0.8, shape).astype(np.float32)

    gates = GATES[op]
    constants = {"W": numbers(directions, gates * hidden, size), "R": numbers(directions, gates * hidden, hidden)}
    inputs: dict[str, Any] = {"X": [None, None, size]}
    names = ["X", "W", "R", "", "", "", "", ""]
    feeds = {"X": numbers(steps, rows, size)}
    if draw(st.booleans()):
        names[3], constants["B"] = "B", numbers(directions, 2 * gates * hidden)
    if draw(st.booleans()):
        names[4], inputs["lens"] = "lens", (onnx.TensorProto.INT32, [None])
        feeds["lens"] = noise.integers(1, steps + 1, rows).astype(np.int32)
    if draw(st.booleans()):
        names[5], inputs["h0"], feeds["h0"] = "h0", [directions, None, hidden], numbers(directions, rows, hidden)
        if op == "LSTM":
            names[6], inputs["c0"], feeds["c0"] = "c0", [directions, None, hidden], numbers(directions, rows, hidden)
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if op == "LSTM" and draw(st.booleans()):
        names[7], constants["P"] = "P", numbers(directions, 3 * hidden)
    if op == "LSTM" and draw(st.booleans()):
        attributes["input_forget"] = 1
    if op == "GRU":
        attributes["linear_before_reset"] = draw(st.integers(0, 1))
    if draw(st.booleans()):
        per = {"LSTM": 3, "GRU": 2, "RNN": 1}[op]
        attributes["activations"] = [draw(st.sampled_from(FUNCTIONS)) for _ in range(per * directions)]
    outputs = ["Y", "Yh", "Yc"][: 3 if op == "LSTM" else 2]
    while not names[-1]:
        names.pop()
    node = helper.make_node(op, names, outputs, **attributes)
    path = save_model(tmp_path_factory.mktemp("m") / "m.onnx", [node], inputs, outputs, constants)
    wanted = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
    found = small(path).run(feeds)
    for name, array in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(found[name], array, rtol=2e-4, atol=2e-5, err_msg=f"{name} {attributes}")


def lstm_between_others(path: Path, hidden: int = 12) -> Path:
    noise = np.random.default_rng(0)
    weights = {
        "A": noise.uniform(-1, 1, (5, 7)).astype(np.float32),
        "W": noise.uniform(-1, 1, (1, 4 * hidden, 7)).astype(np.float32),
        "R": noise.uniform(-0.3, 0.3, (1, 4 * hidden, hidden)).astype(np.float32),
        "axis": np.array([1], np.int64),
    }
    nodes = [
        helper.make_node("MatMul", ["X", "A"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("LSTM", ["b", "W", "R", "", "", "h0", "c0"], ["y", "hn", "cn"], hidden_size=hidden),
        helper.make_node("Squeeze", ["y", "axis"], ["z"]),
        helper.make_node("Tanh", ["z"], ["out"]),
    ]
    shapes = {"X": ["t", "b", 5], "h0": [1, "b", hidden], "c0": [1, "b", hidden]}
    return save_model(path, nodes, shapes, ["out", "hn", "cn"], weights)


def test_what_is_not_recurrent_runs_in_onnx_runtime(tmp_path: Path) -> None:
    path = lstm_between_others(tmp_path / "m.onnx")
    net = load(path)
    assert [type(step).__name__ for step in net.graph.steps] == ["Segment", "Recurrence", "Segment"]
    assert net.graph.segments[0].operators == ("MatMul", "Relu")
    assert net.graph.pairs == {"h0": "hn", "c0": "cn"}
    zeros = np.zeros((1, 3, 12), np.float32)
    feeds = {"X": np.random.default_rng(1).uniform(-1, 1, (6, 3, 5)).astype(np.float32), "h0": zeros, "c0": zeros}
    wanted = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(["out"], feeds)[0]
    assert distance(net.run(feeds, ["out"])["out"], wanted) < 2e-6


def test_a_session_goes_on_where_the_last_step_ended(tmp_path: Path) -> None:
    net = load(lstm_between_others(tmp_path / "m.onnx"))
    x = np.random.default_rng(1).uniform(-1, 1, (6, 1, 5)).astype(np.float32)
    zeros = np.zeros((1, 1, 12), np.float32)
    whole = net.run({"X": x, "h0": zeros, "c0": zeros})["out"]
    with net.session() as session:
        pieces = [session.step({"X": x[at : at + 2]})["out"] for at in range(0, 6, 2)]
    assert distance(np.concatenate(pieces), whole) < 2e-6
    with pytest.raises(BadInput, match="closed"):
        session.step({"X": x[:1]})


def one_node(path: Path, change: Any = None, **attributes: Any) -> Path:
    """A valid GRU, changed."""
    arrays = {"W": np.zeros((1, 9, 2), np.float32), "R": np.zeros((1, 9, 3), np.float32)}
    node = helper.make_node("GRU", ["X", "W", "R"], ["Y", "Yh"], name="gate", **{"hidden_size": 3, **attributes})
    if change:
        change(node, arrays)
    return save_model(path, [node], {"X": [None, None, 2]}, ["Y"], arrays)


@pytest.mark.parametrize(
    ("change", "attributes", "text"),
    [
        (None, {"hidden_size": 0}, "hidden_size"),
        (None, {"hidden_size": 4}, "gate: W has the shape [1, 9, 2], hidden_size asks for [1, 12, 2]"),
        (None, {"direction": "sideways"}, "gate: direction is 'sideways'"),
        (None, {"activations": ["Tanh", "Swish"]}, "gate: the activation 'Swish' is not known"),
        (None, {"activations": ["Tanh"]}, "gate: activations has 1 names instead of 2"),
        (None, {"clip": -1.0}, "gate: clip is -1"),
        (lambda _node, arrays: arrays.update(R=np.zeros((1, 9, 2), np.float32)), {}, "R has the shape [1, 9, 2]"),
    ],
)  # fmt: skip
def test_a_wrong_node_is_refused_by_name(change: Any, attributes: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(BadNetwork) as caught:
        load(one_node(tmp_path / "m.onnx", change, **attributes))
    assert text in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"\x08", b"no model at all", bytes(range(256)) * 20])
def test_bytes_that_are_no_model_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(BadNetwork):
        load(path)


@settings(max_examples=30, deadline=None)
@given(cut=st.integers(0, 400), at=st.integers(0, 400), byte=st.integers(0, 255))
def test_a_damaged_model_is_refused_or_runs(cut: int, at: int, byte: int, tmp_path_factory: Any) -> None:
    path = one_node(tmp_path_factory.mktemp("d") / "m.onnx")
    data = bytearray(path.read_bytes())
    data[at % len(data)] = byte
    path.write_bytes(bytes(data[: len(data) - cut % 40]))
    try:
        net = load(path)
        net.run({one.name: np.zeros([2 if side < 0 else side for side in one.shape], one.kind) for one in net.inputs})
    except (BadNetwork, BadInput):
        pass


def test_external_data_outside_the_folder_is_refused(tmp_path: Path) -> None:
    path = one_node(tmp_path / "m.onnx")
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../../etc/passwd"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(BadNetwork, match="no file of its folder"):
        load(path)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(BadNetwork, match="more than"):
        load(path)


@pytest.mark.parametrize("lengths", [[-1, 2], [2, 9]])
def test_lengths_out_of_range_are_refused(lengths: list[int], tmp_path: Path) -> None:
    arrays = {"W": np.zeros((1, 3, 2), np.float32), "R": np.zeros((1, 3, 3), np.float32)}
    node = helper.make_node("RNN", ["X", "W", "R", "", "lens"], ["Y"], hidden_size=3)
    inputs = {"X": [None, None, 2], "lens": (onnx.TensorProto.INT32, [None])}
    net = load(save_model(tmp_path / "m.onnx", [node], inputs, ["Y"], arrays))
    with pytest.raises(BadInput, match="between 0 and 4"):
        net.run({"X": np.zeros((4, 2, 2), np.float32), "lens": np.array(lengths, np.int32)})


def test_an_input_of_the_wrong_shape_or_type_is_refused(tmp_path: Path) -> None:
    net = load(one_node(tmp_path / "m.onnx"))
    with pytest.raises(BadInput, match=r"float64 \[1, 1, 2\], not float32"):
        net.run({"X": np.zeros((1, 1, 2))})
    with pytest.raises(BadInput, match="no input 'Z'"):
        net.run({"X": np.zeros((1, 1, 2), np.float32), "Z": np.zeros(1)})
    with pytest.raises(BadInput, match="'X' is missing"):
        net.run({})


def test_a_recurrent_node_in_a_loop_stays_with_onnx_runtime(tmp_path: Path) -> None:
    arrays = {"W": np.ones((1, 3, 3), np.float32), "R": np.ones((1, 3, 3), np.float32)}
    rnn = helper.make_node("RNN", ["before", "W", "R"], ["after"], hidden_size=3, name="inner")
    squeeze = helper.make_node("Squeeze", ["after", "axis"], ["now"])
    same = helper.make_node("Identity", ["go"], ["on"])
    tensor = helper.make_tensor_value_info
    body = helper.make_graph(
        [rnn, squeeze, same], "body",
        [tensor("i", onnx.TensorProto.INT64, []), tensor("go", onnx.TensorProto.BOOL, []),
         tensor("before", 1, [2, 1, 3])],
        [tensor("on", onnx.TensorProto.BOOL, []), tensor("now", 1, [2, 1, 3])],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["n", "", "X"], ["Y"], body=body, name="outer")
    constants = {**arrays, "axis": np.array([1], np.int64), "n": np.array(2, np.int64)}
    net = load(save_model(tmp_path / "m.onnx", [loop], {"X": [2, 1, 3]}, ["Y"], constants))
    assert not net.graph.recurrences
    assert "stays with ONNX Runtime: it is inside the Loop" in net.graph.remarks[0]
    assert net.run({"X": np.zeros((2, 1, 3), np.float32)})["Y"].shape == (2, 1, 3)


def test_an_lstm_that_onnx_runtime_quantised_is_an_int8_layer(tmp_path: Path) -> None:
    """`DynamicQuantizeLSTM`: its weights are integers with scales already, and come out as those."""
    path = lstm_between_others(tmp_path / "m.onnx")
    quantised = tmp_path / "int8.onnx"
    quantised.write_bytes(quantised_model(path))
    assert "DynamicQuantizeLSTM" in {node.op_type for node in onnx.load(quantised).graph.node}
    net = load(quantised)
    assert [layer.spec.kind for layer in net.layers] == ["int8"]
    zeros = np.zeros((1, 3, 12), np.float32)
    feeds = {"X": np.random.default_rng(1).uniform(-1, 1, (6, 3, 5)).astype(np.float32), "h0": zeros, "c0": zeros}
    assert 1e-5 < distance(net.run(feeds, ["out"])["out"], load(path).run(feeds, ["out"])["out"]) < 2e-2
