"""Shared by the benchmarks of recurrent networks: layers as ONNX files and as PyTorch modules, with equal weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from shoal.recurrent.compile import tune_all
from shoal.recurrent.layers.make import best_target
from shoal.recurrent.llvm.cache import user_cache
from shoal.recurrent.llvm.engine import VERSION
from shoal.recurrent.loading import read, tuned
from shoal.recurrent.network.artefact import Tuning
from shoal.recurrent.network.network import Network
from shoal.recurrent.numbers import NumberType
from shoal.recurrent.search.machine import measured
from shoal.recurrent.search.tune import Search

ORDER = {"LSTM": ([0, 3, 1, 2], 4), "GRU": ([1, 0, 2], 3)}
"""PyTorch's gates in ONNX's order, and their number."""


def module(kind: str, hidden: int) -> Any:
    import torch

    torch.manual_seed(hidden)
    return getattr(torch.nn, kind)(hidden, hidden).eval()


def tuned_net(path: Path, number: str, *, steps: int, rows: int = 8) -> Network:
    """As `shoal recurrent compile` makes it: by a search, or by what an earlier one found on this processor."""
    target, cache = best_target(), user_cache()
    assert target is not None
    machine = measured(target, cache.folder)
    graph = read(path, kind=NumberType(number))
    search = Search(target, machine, cache, steps=steps, rows=rows, timed=16)

    def tune(spec: Any) -> Tuning:
        found = search.run(spec)
        return Tuning(found.schedules, tuple(one.as_json() for one in found.tried))

    key = f"{machine.processor} {target.features} {VERSION} {steps} {rows} 16"
    return tuned(graph, tune_all(graph, tune, folder=cache.folder, key=key))


def openvino_run(path: Path, inputs: Mapping[str, Any], precision: str) -> Any:
    """The file in OpenVINO with one thread, in f32 or bf16."""
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": precision}
    model = core.read_model(path)
    model.reshape({name: list(one.shape) for name, one in inputs.items()})
    request = core.compile_model(model, "CPU", settings).create_infer_request()

    def run() -> Mapping[str, Any]:
        return {one.get_any_name(): value for one, value in request.infer(dict(inputs)).items()}

    return run


def torch_half_run(layer: Any, x: Any) -> Any:
    """A module of PyTorch in bf16."""
    import torch

    half, given = layer.to(torch.bfloat16), torch.from_numpy(x).to(torch.bfloat16)

    def run() -> Mapping[str, Any]:
        with torch.inference_mode():
            return {"Y": half(given)[0].float().numpy()}

    return run


def write_onnx(kind: str, layer: Any, path: Path, *, states: bool = False) -> Path:
    """The layer as one node; `states`: they are inputs and outputs, as streaming needs."""
    order, gates = ORDER[kind]
    hidden = layer.hidden_size

    def turned(values: Any) -> Any:
        array = values.detach().numpy()
        return array.reshape(gates, hidden, -1)[order].reshape(1, gates * hidden, -1)

    w, r = turned(layer.weight_ih_l0), turned(layer.weight_hh_l0)
    b = np.concatenate([turned(one).reshape(1, -1) for one in (layer.bias_ih_l0, layer.bias_hh_l0)], axis=1)
    names = ["X", "W", "R", "B"]
    given, made = ["X"], ["Y"]
    if states:
        kept = ["h", "c"] if kind == "LSTM" else ["h"]
        names += ["", *(f"{one}0" for one in kept)]
        given += [f"{one}0" for one in kept]
        made += [f"{one}n" for one in kept]
    attributes = {"hidden_size": hidden, **({"linear_before_reset": 1} if kind == "GRU" else {})}
    node = helper.make_node(kind, names, made, **attributes)
    shapes = {"X": ["t", "b", hidden], "h0": [1, "b", hidden], "c0": [1, "b", hidden]}
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(one, TensorProto.FLOAT, shapes[one]) for one in given],
        [helper.make_tensor_value_info(one, TensorProto.FLOAT, [None] * (4 if one == "Y" else 3)) for one in made],
        [numpy_helper.from_array(np.ascontiguousarray(v), k) for k, v in {"W": w, "R": r, "B": b}.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    save(model, path)
    return path
