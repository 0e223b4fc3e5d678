"""A PyTorch state dict (.safetensors) of an LSTM, GRU or RNN as a graph; or weights by name for a cell that is given.

The names are those of `torch.nn.LSTM`: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_hr_l0, each with
`_reverse` for the second direction, behind any prefix. The graph has the input x [steps, rows, elements], the output y
and, for each state, its last value [layers * directions, rows, units], as in PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shoal.recurrent.cells import library
from shoal.recurrent.cells.cell import Cell
from shoal.recurrent.errors import BadNetwork
from shoal.recurrent.layers.layer import Array, LayerSpec
from shoal.recurrent.nest.interpret import Weights
from shoal.recurrent.nest.ir import Sizes
from shoal.recurrent.network.graph import Graph, Recurrence, Tensor
from shoal.recurrent.numbers import NumberType, from_bf16

LARGEST_BYTES = 2 << 30
_KEY = re.compile(
    r"^(?P<prefix>.*?)(?P<part>weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)_l(?P<layer>\d+)(?P<back>_reverse)?$"
)
_GATES = {4: "ifco", 3: "rzn", 1: "h"}
"""The order of gates in PyTorch, by their number; "c" is its "g"."""


def read_tensors(path: Path, largest_bytes: int = LARGEST_BYTES) -> dict[str, Array]:
    """The tensors of a .safetensors file in fp32. Raises BadNetwork."""
    import safetensors

    try:
        size = path.stat().st_size
        if size > largest_bytes:
            raise BadNetwork(f"it has {size} bytes, more than {largest_bytes}", where=str(path))
        found: Any = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except OSError as error:
        raise BadNetwork(f"it cannot be read: {error.strerror}", where=str(path)) from None
    except safetensors.SafetensorError as error:
        raise BadNetwork(f"this is no safetensors file: {error}", where=str(path)) from None
    return {name: _floats(one) for name, one in found}


def _floats(one: Mapping[str, object]) -> Array:
    kinds = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "BF16": np.uint16}
    dtype, data, shape = str(one["dtype"]), one["data"], one["shape"]
    if dtype not in kinds:
        return np.zeros(0, np.float32)  # counters and the like; a weight of this type is reported as missing
    assert isinstance(data, bytes | bytearray)
    assert isinstance(shape, list)
    array: Array = np.frombuffer(data, kinds[dtype]).reshape(shape)
    return from_bf16(array) if dtype == "BF16" else array.astype(np.float32)


def read_graph(
    path: Path, *, cell: Cell | str | None = None, prefix: str | None = None, kind: NumberType = NumberType.FP32
) -> Graph:
    """The graph of a state dict. `cell`: one of the library's names, or a cell whose weights have its names. `prefix`:
    of the keys, where a file has several networks. Raises BadNetwork."""
    tensors = read_tensors(path)
    if isinstance(cell, Cell):
        return graph_of_layers([[LayerSpec(cell, *cell_weights(cell, tensors, prefix or "", str(path)), kind)]])
    return _TorchReader(tensors, cell, prefix, kind, str(path)).graph()


def cell_weights(cell: Cell, tensors: Mapping[str, Array], prefix: str, where: str) -> tuple[Sizes, Weights]:
    """The weights of a cell by their own names, and the sizes that they have."""
    matrices, parameters = {}, {}
    for name in [node.name for node in cell.dots] + list(cell.parameters):
        if prefix + name not in tensors:
            raise BadNetwork(
                f"the weight {prefix + name!r} is missing", where=where, hint=f"there are: {_some(tensors)}"
            )
    for node in cell.dots:
        matrices[node.name] = np.ascontiguousarray(tensors[prefix + node.name])
    for name in cell.parameters:
        parameters[name] = np.ascontiguousarray(tensors[prefix + name]).reshape(-1)
    return sizes_of(cell, matrices, parameters, where), Weights(matrices, parameters)


def sizes_of(cell: Cell, matrices: Mapping[str, Array], parameters: Mapping[str, Array], where: str) -> Sizes:
    """The sizes that the shapes of a cell's weights agree on. Raises BadNetwork where they do not."""
    found: dict[str, int] = {}

    def agree(what: str, size: int, name: str) -> None:
        if found.setdefault(what, size) != size:
            raise BadNetwork(f"{name!r} makes the {what} size {size}, others {found[what]}", where=where)

    for node in cell.dots:
        matrix, operand = matrices[node.name], node.args[0]
        if matrix.ndim != 2 or not matrix.size:
            raise BadNetwork(f"{node.name!r} has the shape {list(matrix.shape)}; a matrix is needed", where=where)
        agree(node.space, matrix.shape[0], node.name)
        space = cell.spaces[operand.name] if operand.op == "state" else "hidden"
        agree("input" if operand.op == "input" else space, matrix.shape[1], node.name)
    for name, values in parameters.items():
        agree("hidden", len(values), name)
    return Sizes(found.get("input", 1), found.get("hidden", 1), found.get("projection", 0))


def graph_of_layers(stack: list[list[LayerSpec]]) -> Graph:
    """A stack of layers, each of one or two directions, with PyTorch's names of inputs and outputs."""
    steps: list[Recurrence] = []
    states = stack[0][0].cell.states
    for at, layers in enumerate(stack):
        last = at == len(stack) - 1
        final = {name: f"{name}.{at}" if len(stack) > 1 else f"{name}n" for name in states}
        steps.append(
            Recurrence(
                f"layer {at}", tuple(layers), "x" if at == 0 else f"y.{at - 1}", "y" if last else f"y.{at}",
                initial=dict.fromkeys(states, ""), final=final, merged=True,
            )
        )  # fmt: skip
    first, end = stack[0][0], stack[-1]
    outputs = [Tensor("y", (-1, -1, end[0].output_size * len(end)))]
    for at, layers in enumerate(stack):
        for name in states:
            outputs.append(Tensor(steps[at].final[name], (len(layers), -1, layers[0].state_size(name))))
    return Graph((Tensor("x", (-1, -1, first.sizes.input)),), tuple(outputs), tuple(steps))


class _TorchReader:
    def __init__(
        self, tensors: Mapping[str, Array], cell: str | None, prefix: str | None, kind: NumberType, where: str
    ) -> None:
        self.tensors, self.cell, self.kind, self.where = tensors, cell, kind, where
        keys = [match for match in map(_KEY.match, tensors) if match]
        prefixes = sorted({match["prefix"] for match in keys})
        if prefix is None and len(prefixes) > 1:
            raise BadNetwork(
                f"it has several networks: {', '.join(map(repr, prefixes))}", where=where, hint="name one: prefix"
            )
        self.prefix = prefixes[0] if prefix is None and prefixes else prefix or ""
        self.keys = [match for match in keys if match["prefix"] == self.prefix]
        if not self.keys:
            raise BadNetwork(
                f"it has no weight_ih_l0 behind {self.prefix!r}", where=where,
                hint=f"there are: {_some(tensors)}; or give the cell whose weights have these names",
            )  # fmt: skip

    def graph(self) -> Graph:
        layers = 1 + max(int(match["layer"]) for match in self.keys)
        backs = ["", "_reverse"] if any(match["back"] for match in self.keys) else [""]
        return graph_of_layers([[self._layer(at, back) for back in backs] for at in range(layers)])

    def _get(self, part: str, layer: int, back: str) -> Array | None:
        return self.tensors.get(f"{self.prefix}{part}_l{layer}{back}")

    def _layer(self, at: int, back: str) -> LayerSpec:
        w, r, hr = (self._get(part, at, back) for part in ("weight_ih", "weight_hh", "weight_hr"))
        if w is None or r is None or w.ndim != 2 or r.ndim != 2 or not r.size:
            raise BadNetwork(f"layer {at}{back} needs matrices weight_ih and weight_hh", where=self.where)
        recurrent = r.shape[1]
        hidden = recurrent if hr is None else hr.shape[1]
        gates, rest = divmod(r.shape[0], hidden)
        if rest or gates not in _GATES or w.shape[0] != r.shape[0] or (hr is not None and hr.shape[0] != recurrent):
            raise BadNetwork(
                f"layer {at}{back}: weight_ih {list(w.shape)} and weight_hh {list(r.shape)} fit no cell",
                where=self.where,
            )
        cell = self._cell(gates, hr is not None)
        bias = [self._get(part, at, back) for part in ("bias_ih", "bias_hh")]
        first, second = (np.zeros(gates * hidden, np.float32) if one is None else one for one in bias)
        if first.shape != (gates * hidden,) or second.shape != (gates * hidden,):
            raise BadNetwork(f"layer {at}{back}: a bias has not {gates * hidden} numbers", where=self.where)
        matrices, parameters = {}, {}
        for index, gate in enumerate(_GATES[gates]):
            rows = slice(index * hidden, (index + 1) * hidden)
            matrices[f"{gate}.x"], matrices[f"{gate}.h"] = w[rows].copy(), r[rows].copy()
            if gates == 3 and gate == "n":
                parameters["n.b"], parameters["n.rb"] = first[rows].copy(), second[rows].copy()
            else:
                parameters[f"{gate}.b"] = first[rows] + second[rows]
        if hr is not None:
            matrices["projection"] = hr.copy()
        sizes = Sizes(w.shape[1], hidden, 0 if hr is None else recurrent)
        return LayerSpec(cell, sizes, Weights(matrices, parameters), self.kind, bool(back))

    def _cell(self, gates: int, projection: bool) -> Cell:
        name = self.cell or {4: "lstm", 3: "gru", 1: "rnn"}[gates]
        if {"lstm": 4, "gru": 3, "rnn": 1, "rnn-relu": 1}.get(name) != gates:
            raise BadNetwork(f"these weights have {gates} gates, which {name!r} has not", where=self.where)
        return library.lstm(projection=True) if projection else library.CELLS[name]()


def _some(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)[:6]) + (", ..." if len(names) > 6 else "")
