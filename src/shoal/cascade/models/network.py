"""Multi-layer perceptrons of scikit-learn, evaluated by NumPy or by ONNX Runtime, whichever was measured to be faster.

ONNX Runtime saves the overhead of NumPy's calls on a row alone, and threads and blocks its products in its own way on a
batch. It needs the packages onnx and onnxruntime; without them NumPy evaluates.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np

from shoal.cascade.models.base import Model, Output
from shoal.cascade.steps.base import Array, Arrays, Floats
from shoal.cascade.steps.columns import finite


class Evaluator(StrEnum):
    NUMPY = "numpy"
    ONNX = "onnxruntime"


_OPERATORS = {"identity": "", "logistic": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}
"""Of ONNX, by scikit-learn's name of the activation."""


def onnx_is_there() -> bool:
    return all(importlib.util.find_spec(package) for package in ("onnx", "onnxruntime"))


@dataclass(frozen=True)
class Network:
    """`weights`: of each layer, inputs x outputs; `biases`: of each layer. `activation` stands between layers; scores
    are what the last layer gives, before it becomes probabilities."""

    kind: ClassVar[str] = "network"

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    activation: str
    output: Output
    evaluator: Evaluator = Evaluator.NUMPY

    def __post_init__(self) -> None:
        if self.activation not in _OPERATORS or len(self.weights) != len(self.biases) or not self.weights:
            raise ValueError("not a network")
        if any(w.ndim != 2 or b.shape != w.shape[1:] for w, b in zip(self.weights, self.biases, strict=True)):
            raise ValueError("a layer's weights and biases do not fit together")
        if any(a.shape[1] != b.shape[0] for a, b in zip(self.weights, self.weights[1:], strict=False)):
            raise ValueError("a layer does not take what the one before gives")

    @property
    def features(self) -> int:
        return int(self.weights[0].shape[0])

    @property
    def outputs(self) -> int:
        return int(self.weights[-1].shape[1])

    def scores(self, features: Any) -> Floats:
        """Sparse features are never made dense: then NumPy evaluates. Raises ValueError for what is no number."""
        finite(np.asarray(features.data if hasattr(features, "tocsr") else features, np.float64), missing=False)
        if hasattr(features, "tocsr") or self.evaluator is Evaluator.NUMPY or self._session is None:
            return self._by_numpy(features)
        (found,) = self._session.run(None, {"x": np.ascontiguousarray(features, np.float64)})
        return np.asarray(found)

    def _by_numpy(self, features: Any) -> Floats:
        *inner, last = zip(self.weights, self.biases, strict=True)
        for weights, bias in inner:
            features = _activated(self.activation, np.asarray(features @ weights) + bias)
        return np.asarray(features @ last[0]) + last[1]

    @functools.cached_property
    def _session(self) -> Any:
        """None without ONNX Runtime."""
        if not onnx_is_there():
            return None
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it reports its use unless told before it is loaded
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(self._graph(), options, providers=["CPUExecutionProvider"])

    def _graph(self) -> bytes:
        from onnx import TensorProto, helper, numpy_helper

        nodes, constants, value = [], [], "x"
        for at, (weights, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            constants += [numpy_helper.from_array(weights, f"w{at}"), numpy_helper.from_array(bias, f"b{at}")]
            nodes.append(helper.make_node("Gemm", [value, f"w{at}", f"b{at}"], [f"s{at}"]))
            value = f"s{at}"
            if at + 1 < len(self.weights) and _OPERATORS[self.activation]:
                nodes.append(helper.make_node(_OPERATORS[self.activation], [value], [f"a{at}"]))
                value = f"a{at}"
        ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [None, width])
                for name, width in (("x", self.features), (value, self.outputs))]  # fmt: skip
        graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return bytes(model.SerializeToString())

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        arrays = {f"w{at}": one for at, one in enumerate(self.weights)}
        arrays |= {f"b{at}": one for at, one in enumerate(self.biases)}
        parameters = {"activation": self.activation, "evaluator": self.evaluator.value, "output": self.output.as_json()}
        return parameters, arrays

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> Network:
        layers = range(len(arrays) // 2)
        weights, biases = (
            tuple(np.ascontiguousarray(arrays[f"{letter}{at}"], np.float64) for at in layers) for letter in "wb"
        )
        output = Output.from_json(parameters["output"])
        return cls(weights, biases, str(parameters["activation"]), output, Evaluator(parameters["evaluator"]))


def evaluated_like(model: Model, pattern: Model) -> Model:
    """The model by the evaluator that was chosen for another one."""
    if isinstance(model, Network) and isinstance(pattern, Network):
        return replace(model, evaluator=pattern.evaluator)
    return model


def _activated(activation: str, values: Floats) -> Floats:
    match activation:
        case "logistic":
            from scipy.special import expit

            return np.asarray(expit(values))
        case "tanh":
            return np.tanh(values)
        case "relu":
            return np.maximum(values, 0.0)
    return values
