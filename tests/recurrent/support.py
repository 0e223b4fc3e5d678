"""What the tests of recurrent networks share: weights, oracles, and how far two arrays are apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from shoal.recurrent.cells.cell import Cell
from shoal.recurrent.layers.layer import LayerSpec
from shoal.recurrent.nest.interpret import Interpreter, Weights
from shoal.recurrent.nest.ir import Sizes
from shoal.recurrent.nest.transform import Schedule, lower
from shoal.recurrent.numbers import NumberType


def distance(found: Any, wanted: Any) -> float:
    """The relative error, as the root of its mean square."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    return float(np.sqrt(((found - wanted) ** 2).mean() / max(1e-30, (wanted**2).mean())))


def weights_for(cell: Cell, sizes: Sizes, noise: np.random.Generator) -> Weights:
    """Uniform weights of PyTorch's size."""
    width = 1 / np.sqrt(sizes.hidden)
    matrices, parameters = {}, {}
    for node in cell.dots:
        operand = node.args[0]
        space = cell.spaces[operand.name] if operand.op == "state" else "hidden"
        elements = sizes.input if operand.op == "input" else sizes.of(space)
        matrices[node.name] = noise.uniform(-width, width, (sizes.of(node.space), elements)).astype(np.float32)
    for name in cell.parameters:
        parameters[name] = noise.uniform(-width, width, sizes.hidden).astype(np.float32)
    return Weights(matrices, parameters)


def spec_for(
    cell: Cell, sizes: Sizes, *, kind: NumberType = NumberType.FP32, reverse: bool = False, seed: int = 0
) -> LayerSpec:
    return LayerSpec(cell, sizes, weights_for(cell, sizes, np.random.default_rng(seed)), kind, reverse)


def states_for(spec: LayerSpec, rows: int, noise: np.random.Generator) -> dict[str, Any]:
    return {
        name: noise.uniform(-0.5, 0.5, (rows, spec.state_size(name))).astype(np.float32) for name in spec.cell.states
    }


def reference(spec: LayerSpec, x: Any, states: dict[str, Any], kind: NumberType) -> tuple[Any, dict[str, Any]]:
    """The interpreter in 64 bits, forward."""
    nest = lower(spec.cell, spec.sizes, Schedule(hoist=False), 1)
    return Interpreter(nest, spec.weights, kind, exact=True).run(x, states)


def save_model(
    path: Path,
    nodes: Sequence[Any],
    inputs: dict[str, Any],
    outputs: Sequence[str],
    constants: dict[str, Any],
    opset: int = 17,
) -> Path:
    """An ONNX file. `inputs` gives shapes by name; a list is of floats, a tuple (kind, shape) of another type."""
    infos = [
        helper.make_tensor_value_info(name, *(shape if isinstance(shape, tuple) else (onnx.TensorProto.FLOAT, shape)))
        for name, shape in inputs.items()
    ]
    graph = helper.make_graph(
        list(nodes), "g", infos,
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 9
    onnx.save(model, path)
    return path
