"""Networks of fixed shapes as one compiled call, against ONNX Runtime."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from shoal.recurrent import BadNetwork, load
from tests.recurrent.support import distance


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(autouse=True)
def own_cache(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of all tests here: most of them compile the same network."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(kernels))
    return kernels / "shoal" / "kernels"


class Nodes:
    """Nodes of a detector: a spectrum, convolutions, a recurrent layer, and a score."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._noise = np.random.default_rng(seed)

    def add(self, op: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        name = out or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def const(self, values: Any) -> str:
        array = np.asarray(values)
        name = f"k{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def noise(self, *shape: int) -> str:
        return self.const(self._noise.uniform(-0.3, 0.3, shape).astype(np.float32))

    def recurrent(self, op: str, gates: int, x: str, first: Sequence[str], size: int, units: int) -> None:
        names = [x, self.noise(1, gates * units, size), self.noise(1, gates * units, units)]
        made = ["y", "hn", "cn"][: 1 + len(first)]
        more = {"linear_before_reset": 1} if op == "GRU" else {}
        self.nodes.append(
            helper.make_node(
                op, [*names, self.noise(1, 2 * gates * units), "", *first], made, hidden_size=units, **more
            )
        )


def written(path: Path, made: Nodes, shapes: dict[str, list[Any]], outputs: Sequence[str]) -> Path:
    graph = helper.make_graph(
        made.nodes, "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs], made.weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path)
    return path


def detector(
    path: Path, *, units: int = 24, channels: int = 10, stride: int = 2, border: int = 1, taps: int = 3, seed: int = 0,
    samples: Any = 80, op: str = "LSTM",
) -> Path:  # fmt: skip
    n = Nodes(seed)
    padded = n.add("Pad", "x", n.const(np.array([0, 0, 0, 16])), mode="reflect")
    spectrum = n.add("Conv", n.add("Unsqueeze", padded, n.const(np.array([1]))), n.noise(18, 1, 32), strides=[16])
    low, high = (
        n.add("Slice", spectrum, *(n.const(np.array([one])) for one in (first, last, 1)))
        for first, last in ((0, 9), (9, 1 << 40))
    )
    two = n.const(np.array(2.0, np.float32))
    size = n.add("Sqrt", n.add("Add", n.add("Pow", low, two), n.add("Pow", high, two)))
    first = n.add("Relu", n.add("Conv", size, n.noise(channels, 9, taps), n.noise(channels), pads=[border, border]))
    made = n.add("Conv", first, n.noise(12, channels, taps), n.noise(12), pads=[border, border], strides=[stride])
    scaled = n.add("Mul", n.add("Tanh", made), n.noise(12, 1))
    steps = n.add("Transpose", scaled, perm=[2, 0, 1])
    rows = [n.const(np.array(at)) for at in range(2 if op == "LSTM" else 1)]
    begin = [n.add("Unsqueeze", n.add("Gather", "state", row, axis=0), n.const(np.array([0]))) for row in rows]
    n.recurrent(op, {"LSTM": 4, "GRU": 3, "RNN": 1}[op], steps, begin, 12, units)
    n.add("Concat", *(["hn", "cn"] if op == "LSTM" else ["hn"]), out="next", axis=0)
    last = n.add("Relu", n.add("Squeeze", "hn", n.const(np.array([0]))))
    n.add("Sigmoid", n.add("Gemm", last, n.noise(3, units), n.noise(3), transB=1), out="score")
    n.add("Div", n.add("Neg", "y"), n.const(np.array(2.0, np.float32)), out="turned")
    return written(path, n, {"x": [1, samples], "state": [len(rows), 1, units]}, ["score", "turned", "next"])


def theirs(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    units=st.integers(1, 40), channels=st.integers(1, 20), stride=st.integers(1, 3), border=st.integers(0, 2),
    taps=st.integers(1, 4), seed=st.integers(0, 99), op=st.sampled_from(["LSTM", "GRU", "RNN"]),
)  # fmt: skip
def test_it_gives_what_onnx_runtime_gives(
    units: int, channels: int, stride: int, border: int, taps: int, seed: int, op: str, tmp_path_factory: Any
) -> None:
    path = detector(
        tmp_path_factory.mktemp("net") / "m.onnx", units=units, channels=channels, stride=stride, border=border,
        taps=taps, seed=seed, op=op, samples=96,
    )  # fmt: skip
    net = load(path, state={"state": "next"})
    assert net.program is not None
    noise = np.random.default_rng(seed)
    x = noise.uniform(-1, 1, (1, 96)).astype(np.float32)
    state = noise.uniform(-1, 1, net.inputs[1].shape).astype(np.float32)
    wanted = dict(zip(["score", "turned", "next"], theirs(path).run(None, {"x": x, "state": state}), strict=True))
    found = net.run({"x": x, "state": state})
    for name, one in wanted.items():
        assert found[name].shape == one.shape
        assert distance(found[name], one) < 1e-5


def test_a_session_goes_on_and_undoes(tmp_path: Path) -> None:
    path = detector(tmp_path / "m.onnx")
    net, other = load(path, state={"state": "next"}), theirs(path)
    state = np.zeros((2, 1, 24), np.float32)
    with net.session() as session:
        for x in np.random.default_rng(1).uniform(-1, 1, (6, 1, 80)).astype(np.float32):
            (again,) = net.step([session], [{"x": x}], ("score",))
            session.undo()
            assert np.array_equal(session.step({"x": x}, ("score",))["score"], again["score"])
            score, state = other.run(["score", "next"], {"x": x, "state": state})
            assert distance(again["score"], score) < 1e-5


def test_a_free_shape_is_fixed_by_hand(tmp_path: Path) -> None:
    path = detector(tmp_path / "m.onnx", samples="n")
    assert load(path).program is None
    net = load(path, shape={"x": (1, 80)})
    assert net.program is not None
    x = np.ones((1, 80), np.float32)
    wanted = theirs(path).run(["score"], {"x": x, "state": np.zeros((2, 1, 24), np.float32)})[0]
    assert distance(net.run({"x": x, "state": np.zeros((2, 1, 24), np.float32)}, ["score"])["score"], wanted) < 1e-5


@pytest.mark.parametrize("shape", [{"y": (1, 80)}, {"x": (80,)}, {"x": (2, 80)}, {"x": (1, 0)}, {"x": (1, -1)}])
def test_a_shape_that_does_not_fit_is_refused(shape: Any, tmp_path: Path) -> None:
    with pytest.raises(BadNetwork):
        load(detector(tmp_path / "m.onnx", samples="n"), shape=shape)


@pytest.mark.parametrize("attributes", [{"group": 2}, {"dilations": [2]}, {"auto_pad": "SAME_UPPER"}])
def test_what_it_cannot_have_stays_with_onnx_runtime(attributes: Any, tmp_path: Path) -> None:
    n = Nodes(0)
    n.add("Conv", "x", n.noise(4, 4 // attributes.get("group", 1), 2), out="a", **attributes)
    n.recurrent("RNN", 1, n.add("Transpose", "a", perm=[2, 0, 1]), ["state"], 4, 5)
    path = written(tmp_path / "m.onnx", n, {"x": [1, 4, 8], "state": [1, 1, 5]}, ["y", "hn"])
    net = load(path)
    assert net.program is None
    x = np.random.default_rng(0).uniform(-1, 1, (1, 4, 8)).astype(np.float32)
    given_ = {"x": x, "state": np.zeros((1, 1, 5), np.float32)}
    assert distance(net.run(given_)["y"], theirs(path).run(["y"], given_)[0]) < 1e-5


def test_a_number_type_and_several_threads(tmp_path: Path) -> None:
    path = detector(tmp_path / "m.onnx")
    net = load(path, type="bf16", state={"state": "next"})
    exact = load(path, state={"state": "next"})
    xs = np.random.default_rng(2).uniform(-1, 1, (8, 1, 80)).astype(np.float32)
    given_ = [{"x": x, "state": np.zeros((2, 1, 24), np.float32)} for x in xs]
    alone = [net.run(one)["score"] for one in given_]
    assert all(distance(a, exact.run(b)["score"]) < 2e-2 for a, b in zip(alone, given_, strict=True))
    found: list[Any] = [None] * len(xs)

    def part(at: int) -> None:
        found[at] = net.run(given_[at])["score"]

    threads = [threading.Thread(target=part, args=(at,)) for at in range(len(xs))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert all(np.array_equal(a, b) for a, b in zip(alone, found, strict=True))
