"""One LSTM, GRU or RNN node of ONNX as layers: https://onnx.ai/onnx/operators/onnx__LSTM.html and its neighbours.

Every attribute of opsets 7 to 22 is read. `DynamicQuantizeLSTM` of ONNX Runtime becomes an LSTM with int8 weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.recurrent.cells import library
from shoal.recurrent.cells.activations import Activation, known, takes
from shoal.recurrent.cells.cell import Cell
from shoal.recurrent.errors import BadNetwork
from shoal.recurrent.layers.layer import Array, LayerSpec
from shoal.recurrent.nest.interpret import Weights
from shoal.recurrent.nest.ir import Sizes
from shoal.recurrent.network.graph import Graph, Recurrence
from shoal.recurrent.numbers import NumberType

GATES = {"LSTM": "iofc", "GRU": "zrn", "RNN": "h"}
STATES = {"LSTM": ("h", "c"), "GRU": ("h",), "RNN": ("h",)}
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_KNOWN = frozenset(
    {"activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget", "layout",
     "linear_before_reset"}
)  # fmt: skip
QUANTISED = "DynamicQuantizeLSTM"
OPERATORS = (*GATES, QUANTISED)


def recurrence_of(node: Any, constant: Callable[[str], Array | None], kind: NumberType) -> Recurrence:
    """The node with its weights, which `constant` finds by name. Raises BadNetwork, with node and attribute."""
    return _NodeReader(node, constant, kind).read()


def unknown_weights(node: Any, constant: Callable[[str], Array | None]) -> list[str]:
    """The weights of a node that are no constants, by the names of their inputs."""
    names = (
        ["W", "R", "B", "P"] if node.op_type != QUANTISED else ["W", "R", "B", "P", "scale", "zero", "scale", "zero"]
    )
    places = [1, 2, 3, 7] if node.op_type != QUANTISED else [1, 2, 3, 7, 8, 9, 10, 11]
    inputs = list(node.input) + [""] * 12
    return [name for name, at in zip(names, places, strict=True) if inputs[at] and constant(inputs[at]) is None]


class _NodeReader:
    def __init__(self, node: Any, constant: Callable[[str], Array | None], kind: NumberType) -> None:
        self.node = node
        self.quantised = node.op_type == QUANTISED
        self.op = "LSTM" if self.quantised else node.op_type
        self.name = node.name or f"{node.op_type} that makes {next((one for one in node.output if one), '?')}"
        self.kind = NumberType.INT8 if self.quantised else kind
        self.inputs = [*node.input, *[""] * 12]
        self.outputs = [*node.output, *[""] * 3]
        self.attributes = self._attributes()
        self._constant = constant

    def read(self) -> Recurrence:
        directions = self._choice("direction", "forward", _DIRECTIONS)
        w, r = (self._quantised(at) if self.quantised else self._weight(at, self.op) for at in (1, 2))
        gates, hidden = len(GATES[self.op]), self._hidden(r)
        self._check("W", w, (len(directions), gates * hidden, w.shape[2] if w.ndim == 3 else -1))
        self._check("R", r, (len(directions), gates * hidden, hidden))
        b = self._optional(3, "B", (len(directions), 2 * gates * hidden))
        p = self._optional(7, "P", (len(directions), 3 * hidden)) if self.op == "LSTM" else None
        activations = self._activations(len(directions))
        layers = tuple(
            LayerSpec(
                self._cell(activations[at], p is not None),
                Sizes(w.shape[2], hidden),
                self._weights(w[at], r[at], None if b is None else b[at], None if p is None else p[at], hidden),
                self.kind,
                reverse,
            )
            for at, reverse in enumerate(directions)
        )
        states = STATES[self.op]
        return Recurrence(
            self.name,
            layers,
            x=self.inputs[0],
            y=self.outputs[0],
            initial={name: self.inputs[5 + at] for at, name in enumerate(states)},
            final={name: self.outputs[1 + at] for at, name in enumerate(states)},
            lengths=self.inputs[4],
            batch_first=bool(self._choice("layout", 0, {0: False, 1: True})),
        )

    def _attributes(self) -> dict[str, Any]:
        import onnx

        found = {one.name: onnx.helper.get_attribute_value(one) for one in self.node.attribute}
        unknown = sorted(found.keys() - _KNOWN)
        if unknown:
            raise BadNetwork(f"the attribute {unknown[0]!r} is not one of {self.node.op_type}", where=self.name)
        return found

    def _choice(self, name: str, default: Any, choices: Mapping[Any, Any]) -> Any:
        value = self.attributes.get(name, default)
        value = value.decode(errors="replace") if isinstance(value, bytes) else value
        if value not in choices:
            raise BadNetwork(f"{name} is {value!r}, not one of {', '.join(map(repr, choices))}", where=self.name)
        return choices[value]

    def _weight(self, at: int, what: str) -> Array:
        found = self._constant(self.inputs[at]) if self.inputs[at] else None
        if found is None or found.ndim != 3 or not np.issubdtype(found.dtype, np.floating):
            raise BadNetwork(f"the weight {'WR'[at - 1]} of {what} is no constant of three dimensions", where=self.name)
        return found.astype(np.float32)

    def _quantised(self, at: int) -> Array:
        """The weight in fp32, [directions, gates, elements], from integers [directions, elements, gates] with a scale
        for each gate or for all."""
        first = 8 + 2 * (at - 1)
        raw, scale, zero = (self._constant(self.inputs[one]) for one in (at, first, first + 1))
        if raw is None or scale is None or raw.ndim != 3:
            raise BadNetwork(f"the weight {'WR'[at - 1]} needs integers and a scale", where=self.name)
        scale = scale.reshape(raw.shape[0], 1, -1).astype(np.float32)
        offset = 0 if zero is None else zero.reshape(raw.shape[0], 1, -1).astype(np.int32)
        try:
            return np.ascontiguousarray(((raw.astype(np.int32) - offset) * scale).astype(np.float32).transpose(0, 2, 1))
        except ValueError:
            raise BadNetwork(
                f"the scales of {'WR'[at - 1]} do not fit its shape {list(raw.shape)}", where=self.name
            ) from None

    def _hidden(self, r: Array) -> int:
        hidden = int(self.attributes.get("hidden_size", 0)) if "hidden_size" in self.attributes else int(r.shape[2])
        if hidden < 1:
            raise BadNetwork(f"hidden_size is {hidden}", where=self.name)
        return hidden

    def _check(self, what: str, array: Array, shape: tuple[int, ...]) -> None:
        if array.shape != shape:
            raise BadNetwork(
                f"{what} has the shape {list(array.shape)}, hidden_size asks for {list(shape)}", where=self.name
            )

    def _optional(self, at: int, what: str, shape: tuple[int, ...]) -> Array | None:
        if not self.inputs[at]:
            return None
        found = self._constant(self.inputs[at])
        if found is None:
            raise BadNetwork(f"{what} is no constant", where=self.name)
        self._check(what, found, shape)
        return found.astype(np.float32)

    def _activations(self, directions: int) -> list[list[Activation]]:
        per = len(_DEFAULTS[self.op])
        names = [one.decode(errors="replace") for one in self.attributes.get("activations", [])]
        names = names or list(_DEFAULTS[self.op]) * directions
        if len(names) != per * directions:
            raise BadNetwork(f"activations has {len(names)} names instead of {per * directions}", where=self.name)
        alphas, betas = (list(self.attributes.get(f"activation_{one}", [])) for one in ("alpha", "beta"))
        found = []
        for name in names:
            if not known(name):
                raise BadNetwork(f"the activation {name!r} is not known", where=self.name)
            has_alpha, has_beta = takes(name)
            found.append(Activation(name, _next(alphas) if has_alpha else None, _next(betas) if has_beta else None))
        return [found[at * per : (at + 1) * per] for at in range(directions)]

    def _cell(self, activations: Sequence[Activation], peepholes: bool) -> Cell:
        clip = float(self.attributes.get("clip", 0.0))
        if not 0 <= clip < float("inf"):
            raise BadNetwork(f"clip is {clip:g}", where=self.name)
        if self.op == "LSTM":
            f, g, h = activations
            coupled = bool(self.attributes.get("input_forget", 0))
            return library.lstm(peepholes=peepholes, coupled=coupled, clip=clip, f=f, g=g, h=h)
        if self.op == "GRU":
            after = bool(self.attributes.get("linear_before_reset", 0))
            return library.gru(reset_after=after, clip=clip, f=activations[0], g=activations[1])
        return library.rnn(clip=clip, f=activations[0])

    def _weights(self, w: Array, r: Array, b: Array | None, p: Array | None, hidden: int) -> Weights:
        gates = GATES[self.op]
        bias = np.zeros(2 * len(gates) * hidden, np.float32) if b is None else b
        matrices, parameters = {}, {}
        recurrent = bias[len(gates) * hidden :]
        for at, gate in enumerate(gates):
            rows = slice(at * hidden, (at + 1) * hidden)
            second = (
                "1" if self.op == "GRU" and gate == "n" and not self.attributes.get("linear_before_reset", 0) else "h"
            )
            matrices[f"{gate}.x"], matrices[f"{gate}.{second}"] = w[rows], r[rows]
            if self.op == "GRU" and gate == "n":
                parameters["n.b"], parameters["n.rb"] = bias[rows], recurrent[rows]
            else:
                parameters[f"{gate}.b"] = bias[rows] + recurrent[rows]
        if p is not None:
            parameters |= {f"{gate}.p": p[at * hidden : (at + 1) * hidden] for at, gate in enumerate("iof")}
        copied = [{k: np.ascontiguousarray(v) for k, v in table.items()} for table in (matrices, parameters)]
        return Weights(*copied)


def _next(numbers: list[float]) -> float | None:
    return float(numbers.pop(0)) if numbers else None


def with_kind(recurrence: Recurrence, kind: NumberType) -> Recurrence:
    """The same node with weights of another type."""
    return replace(recurrence, layers=tuple(replace(layer, kind=kind) for layer in recurrence.layers))


def first_typed(graph: Graph, kind: NumberType) -> Graph:
    """The graph with the weights of its first recurrent node of another type. That node reads the network's own input,
    whose few large numbers leave 8 bits little for the others; what the later ones read lies between -1 and 1."""
    first = graph.recurrences[0] if graph.recurrences else None
    return replace(graph, steps=tuple(with_kind(one, kind) if one is first else one for one in graph.steps))
