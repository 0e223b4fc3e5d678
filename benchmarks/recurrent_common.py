"""Shared by the benchmarks of recurrent networks: layers as ONNX files and as PyTorch modules, with equal weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

ORDER = {"LSTM": ([0, 3, 1, 2], 4), "GRU": ([1, 0, 2], 3)}
"""PyTorch's gates in ONNX's order, and their number."""


def module(kind: str, hidden: int) -> Any:
    import torch

    torch.manual_seed(hidden)
    return getattr(torch.nn, kind)(hidden, hidden).eval()


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
