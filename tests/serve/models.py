"""Tiny models for tests: ONNX files, seeded, and callables that behave well or badly on purpose."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from shoal.core import Unavailable
from shoal.inference.types import DataType, InferRequest, ModelSpec, StatePair, Tensor, TensorSpec

FEATURES, CLASSES = 4, 3


def save(graph: onnx.GraphProto, path: Path) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


def value(name: str, kind: int, shape: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def linear(path: Path, *, seed: int = 0, batch: int | str = "n") -> Path:
    """y = x @ w + b with x: FP32 [batch, 4], y: FP32 [batch, 3]; `linear_weights` gives w and b."""
    w, b = linear_weights(seed)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["xw"]), helper.make_node("Add", ["xw", "b"], ["y"])],
        "linear",
        [value("x", TensorProto.FLOAT, [batch, FEATURES])],
        [value("y", TensorProto.FLOAT, [batch, CLASSES])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    return save(graph, path)


def linear_weights(seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.random((FEATURES, CLASSES), np.float32), rng.random(CLASSES, np.float32)


def running_sum(path: Path) -> Path:
    """y = hn = h + x, and kn = k + (x, x) along its second axis. x, h: FP32 [n, 1]; k: FP32 [2, n, 1]."""
    one = numpy_helper.from_array(np.array([0], np.int64), "axis")
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["h", "x"], ["hn"]),
            helper.make_node("Identity", ["hn"], ["y"]),
            helper.make_node("Unsqueeze", ["x", "axis"], ["x1"]),
            helper.make_node("Add", ["k", "x1"], ["kn"]),
            helper.make_node("ReduceSum", ["kn", "axis"], ["z"], keepdims=0),
        ],
        "running_sum",
        [
            value("x", TensorProto.FLOAT, ["n", 1]), value("h", TensorProto.FLOAT, ["n", 1]),
            value("k", TensorProto.FLOAT, [2, "n", 1]),
        ],
        [
            value("y", TensorProto.FLOAT, ["n", 1]), value("z", TensorProto.FLOAT, ["n", 1]),
            value("hn", TensorProto.FLOAT, ["n", 1]), value("kn", TensorProto.FLOAT, [2, "n", 1]),
        ],
        [one],
    )  # fmt: skip
    return save(graph, path)


SUMS = (StatePair("h", "hn"), StatePair("k", "kn"))
"""The state of `running_sum`."""


def identity(path: Path, kind: int = TensorProto.FLOAT, shape: tuple[int | str, ...] = ("n",)) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "identity",
        [value("x", kind, list(shape))],
        [value("y", kind, list(shape))],
    )
    return save(graph, path)


def heavy(path: Path, megabytes: int) -> Path:
    """A product with a matrix of this size. x: FP32 [n, 1024]."""
    w = np.random.default_rng(0).random((1024, megabytes * 256), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "heavy",
        [value("x", TensorProto.FLOAT, ["n", 1024])],
        [value("y", TensorProto.FLOAT, ["n", megabytes * 256])],
        [numpy_helper.from_array(w, "w")],
    )
    return save(graph, path)


def gather(path: Path) -> Path:
    """y = table[x]: fails on indices of 10 and more. x: INT64 [n], y: FP32 [n]."""
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "x"], ["y"])],
        "gather",
        [value("x", TensorProto.INT64, ["n"])],
        [value("y", TensorProto.FLOAT, ["n"])],
        [numpy_helper.from_array(np.arange(10, dtype=np.float32), "table")],
    )
    return save(graph, path)


def external(path: Path, location: str, *, data: bytes | None = None) -> Path:
    """A model whose weight lies in another file, at `location`; `data`, if given, is written there."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "external",
        [value("x", TensorProto.FLOAT, ["n", 4])],
        [value("y", TensorProto.FLOAT, ["n", 4])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    if data is not None:
        (path.parent / location).write_bytes(data)
    return path


# --- callables ---

FLOATS = (TensorSpec("x", DataType.FP32, (-1, -1)),)


def echo(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"y": arrays["x"]}


def twice(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"a": arrays["x"], "b": arrays["x"]}


def environment(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """All that a model can read of how its process was started."""
    return {"y": np.array([Path(f"/proc/self/{file}").read_bytes() for file in ("environ", "cmdline")], object)}


def flags(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whether its input is memory of its own, and whether it could write there."""
    return {"y": np.array([arrays["x"].flags.owndata, arrays["x"].flags.writeable])}


def forks(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leaves a child behind, and gives its id."""
    child = subprocess.Popen(["sleep", "60"])
    return {"y": np.array([child.pid])}


def size(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """A small answer to whatever comes: how many bytes there were."""
    return {"y": np.array([arrays["x"].nbytes])}


def nap(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """Sleeps as many seconds as the first element says."""
    time.sleep(float(arrays["x"].flat[0]))
    return {"y": arrays["x"]}


def hang_hard(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """Sleeps in native code with the interpreter's lock held: no handler of a signal will run, nor another thread."""
    ctypes.PyDLL(None).sleep(600)
    return {"y": arrays["x"]}


DOORS = (TensorSpec("x", DataType.BYTES, (-1,)),)


def wait_for(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answers once the file is there that its input names. Another, as `awaited` says, tells that it waits."""
    door = Path(os.fsdecode(arrays["x"].flat[0]))
    awaited(door).touch()
    while not door.exists():
        time.sleep(0.005)
    return {"y": np.zeros((1, 1), np.float32)}


def awaited(door: Path) -> Path:
    return door.with_suffix(".awaited")


def vanish(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """Ends its process without a word at the first element above zero, as a fault in native code would."""
    if arrays["x"].flat[0] > 0:
        os._exit(9)
    return {"y": arrays["x"]}


def swell(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """As many zeros as the first element says: an answer whose length nobody can know."""
    return {"y": np.zeros((len(arrays["x"]), int(arrays["x"].flat[0])), np.float32)}


def negative(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    if (arrays["x"] < 0).any():
        raise ValueError("a negative number")
    return {"y": arrays["x"]}


def lacks(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    raise Unavailable("the store is away")


def leaves(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    raise SystemExit(3)


def fail(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    raise ValueError("never")


def nothing_at_all(arrays: Mapping[str, Any]) -> None:
    return None


def misnamed(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"z": arrays["x"]}


def ragged(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"y": [[1, 2], [3]]}


def mixed(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """Objects of all kinds, among them text that no encoding has."""
    return {"y": np.array(["\ud800", None, 3], object)}


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no device")


class Clinging:
    def __call__(self, arrays: Any) -> Any:
        return {"y": arrays["x"]}

    def close(self) -> None:
        raise SystemExit(3)


class Sleeper:
    def __init__(self) -> None:
        time.sleep(600)


class Mute:
    pass


def torch_linear() -> Any:
    import torch

    return torch.nn.Linear(4, 2)


class Counter:
    """Counts its calls; says how it wants to be called by itself."""

    inputs = FLOATS
    outputs = (TensorSpec("calls", DataType.INT64, (1,)),)

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        self.calls += 1
        return {"calls": np.array([self.calls])}


ROOT = Path(__file__).parents[2]
"""Where `tests.serve.models` is imported from."""


GIVEN = {
    "environment": (DataType.BYTES, (-1,)), "flags": (DataType.BOOL, (-1,)), "forks": (DataType.INT64, (-1,)),
    "size": (DataType.INT64, (-1,)),
}  # fmt: skip
"""What the callables give that give no FP32 of two dimensions."""


def callable_spec(name: str, **more: Any) -> ModelSpec:
    """The callable of this module as a model of the same name."""
    outputs = (TensorSpec("y", *GIVEN.get(name, (DataType.FP32, (-1, -1)))),)
    fields: dict[str, Any] = {"inputs": FLOATS, "outputs": outputs, "warmup": 0}
    source = f"tests.serve.models:{name}"
    return ModelSpec(name, source, runtime="callable", **{**fields, **more})


def wait_for_spec() -> ModelSpec:
    return callable_spec("wait_for", inputs=DOORS)


def at_door(door: Path) -> Any:
    """What `wait_for` is given, as an array."""
    return np.array([os.fsencode(door)], object)


def floats(name: str, array: Any, model: str = "m", **more: Any) -> InferRequest:
    array = np.asarray(array, np.float32)
    return InferRequest(model, [Tensor(name, DataType.FP32, array.shape, array.tobytes())], **more)
