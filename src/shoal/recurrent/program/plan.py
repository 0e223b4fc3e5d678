"""From a graph of fixed shapes to a program.

A tensor is a table of places in the arena, so what only moves numbers costs nothing while it is planned. A product is
held back until its values are needed: element-wise work and slices of its units become part of its cell. Convolutions
read windows of rows [positions, channels], in which the elements of a window lie side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from shoal.recurrent.cells.cell import Cell, checked
from shoal.recurrent.cells.symbols import Expression, binary, dot, make, parameter, relu, unary, walk
from shoal.recurrent.layers.layer import Array, LayerSpec
from shoal.recurrent.nest.interpret import Weights
from shoal.recurrent.nest.ir import Sizes
from shoal.recurrent.network.graph import Graph, Recurrence, Segment
from shoal.recurrent.numbers import NumberType
from shoal.recurrent.program.steps import ALIGNED, ZERO, Map, Plan, Product, Recur, Unsupported

_MOVES = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Tile",
     "Transpose", "Unsqueeze"}
)  # fmt: skip
_UNARY = {"Sigmoid": "sigmoid", "Tanh": "tanh", "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Abs": "abs", "Neg": "neg"}
_BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}
_LARGEST = 1 << 22
"""Numbers of an arena: programs are for small parts."""
_X, _NOTHING = make("input", name="x"), make("number", value=0.0)

StateLayout = Callable[[LayerSpec], tuple[int, Mapping[str, int]]]
"""The size of a layer's states, and where each lies in it, in numbers."""


@dataclass(frozen=True)
class _Placed:
    """A tensor in the arena. `rows`: (first place, numbers of a row, rows of zeros around) where it is [1, channels,
    positions] and lies as rows of channels."""

    table: Array
    rows: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class _Held:
    """Products whose values nothing has needed yet: [1, units, positions], or [positions, units] where `flat`."""

    x: int
    x_step: int
    window: int
    positions: int
    units: int
    weights: Mapping[str, Array]
    value: Expression
    flat: bool

    def sliced(self, units: slice, name: Callable[[], str]) -> _Held:
        """Some of the units, under names of their own."""
        names = {one: name() for one in self.weights}
        return replace(
            self, units=len(range(self.units)[units]), value=_renamed(self.value, names),
            weights={names[one]: array[units] for one, array in self.weights.items()},
        )  # fmt: skip


def plan(graph: Graph, lanes: int, state_layout: StateLayout, kind: NumberType, *, whole: int) -> Plan:
    """The program of a graph. `lanes`: units of a vector; `whole`: a window is a multiple of this number. Raises
    Unsupported."""
    return _Planner(graph, lanes, state_layout, kind, whole).plan()


class _Planner:
    def __init__(self, graph: Graph, lanes: int, state_layout: StateLayout, kind: NumberType, whole: int) -> None:
        self._graph, self._lanes, self._state_layout, self._kind, self._whole = graph, lanes, state_layout, kind, whole
        self._plan = Plan(ALIGNED)
        self._values: dict[str, _Placed | _Held | Array] = {}
        self._names = 0

    def plan(self) -> Plan:
        inputs = {}
        for one in self._graph.inputs:
            if one.kind != "float32" or any(side < 1 for side in one.shape):
                raise Unsupported(f"the input {one.name!r} has no fixed shape of fp32 numbers")
            at = self._take(int(np.prod(one.shape)))
            inputs[one.name] = (at, one.shape)
            self._values[one.name] = _Placed(np.arange(at, at + int(np.prod(one.shape))).reshape(one.shape))
        for step in self._graph.steps:
            if isinstance(step, Segment):
                self._segment(step)
            else:
                self._recurrence(step)
        outputs = {}
        for one in self._graph.outputs:
            table = self._table(one.name)
            outputs[one.name] = (self._contiguous(table.reshape(-1)), table.shape)
        self._plan.inputs, self._plan.outputs = inputs, outputs
        self._plan.size += ALIGNED
        return self._plan

    def _take(self, count: int) -> int:
        at = self._plan.size
        self._plan.size += -(-count // ALIGNED) * ALIGNED + ALIGNED
        if self._plan.size > _LARGEST:
            raise Unsupported("it has too many numbers")
        return at

    def _name(self) -> str:
        self._names += 1
        return f"w{self._names}"

    # Values

    def _value(self, name: str) -> _Placed | _Held | Array:
        if name not in self._values:
            raise Unsupported(f"nothing makes {name!r}")
        return self._values[name]

    def _table(self, name: str) -> Array:
        """Where the numbers of a tensor lie."""
        return self._placed(name).table

    def _placed(self, name: str, border: int = 0) -> _Placed:
        """The tensor in the arena. `border`: rows of zeros around it, where it is written now."""
        value = self._value(name)
        if isinstance(value, _Held):
            value = self._written(value, border)
        elif not isinstance(value, _Placed):
            if value.dtype != np.float32:
                raise Unsupported(f"{name!r} is {value.dtype}")
            at = self._take(value.size)
            self._plan.constants[at] = value.reshape(-1)
            value = _Placed(np.arange(at, at + value.size).reshape(value.shape))
        self._values[name] = value
        return value

    def _written(self, held: _Held, border: int) -> _Placed:
        """A product in the program, and where its values come to lie."""
        wide = -(-held.units // self._lanes) * self._lanes
        first = self._take((held.positions + 2 * border) * wide)
        out = first + border * wide
        cell = checked(Cell("product", MappingProxyType({"h": held.value})))
        matrices = {node.name: np.ascontiguousarray(held.weights[node.name]) for node in cell.dots}
        parameters = {name: np.ascontiguousarray(held.weights[name]) for name in cell.parameters}
        layer = LayerSpec(cell, Sizes(held.window, held.units), Weights(matrices, parameters), self._kind)
        self._plan.steps.append(Product(layer, held.positions, held.x, held.x_step, out, wide))
        table = out + wide * np.arange(held.positions)[:, None] + np.arange(held.units)
        return _Placed(table) if held.flat else _Placed(table.T[None], (out, wide, border))

    def _contiguous(self, table: Array) -> int:
        """Where these numbers lie side by side, copied if they do not."""
        if len(table) and np.array_equal(table, np.arange(table[0], table[0] + len(table))):
            return int(table[0])
        return self._map([table], parameter("0"))

    def _map(self, tables: list[Array], value: Expression, out: int | None = None) -> int:
        out = self._take(len(tables[0])) if out is None else out
        self._plan.steps.append(Map(out, tuple(np.ascontiguousarray(one, np.int32) for one in tables), value))
        return out

    # Nodes

    def _segment(self, segment: Segment) -> None:
        import onnx

        model = onnx.load_from_string(segment.model)
        for one in model.graph.initializer:
            self._values[one.name] = np.asarray(onnx.numpy_helper.to_array(one))
        opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 17)
        for node in model.graph.node:
            attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
            self._node(node, attributes, opset)

    def _node(self, node: Any, attributes: Mapping[str, Any], opset: int) -> None:
        op, out = node.op_type, node.output[0]
        if node.domain not in ("", "ai.onnx"):
            raise Unsupported(f"{op} of {node.domain}")
        if op == "Constant" and "value" in attributes:
            import onnx

            self._values[out] = np.asarray(onnx.numpy_helper.to_array(attributes["value"]))
        elif op in _MOVES:
            self._move(node, opset)
        elif op == "ReduceMean":
            self._values[out] = self._mean_of_one(node, attributes)
        elif op == "Conv":
            self._values[out] = self._convolution(node, attributes)
        elif op in ("Gemm", "MatMul"):
            self._values[out] = self._matrix(node, attributes)
        else:
            self._values[out] = self._element_wise(node)

    def _constant(self, name: str) -> Array:
        value = self._value(name)
        if isinstance(value, _Placed | _Held):
            raise Unsupported(f"{name!r} is computed")
        return value

    def _move(self, node: Any, opset: int) -> None:
        """What only moves numbers, done to their places: by the reference of the `onnx` package."""
        first = self._value(node.input[0])
        if isinstance(first, _Held) and node.op_type == "Slice" and not first.flat:
            sliced = self._sliced(node, first)
            if sliced is not None:
                self._values[node.output[0]] = sliced
                return
        count = len(node.input) if node.op_type == "Concat" else 1
        if node.op_type == "Pad" and any(one and self._constant(one).any() for one in node.input[2:]):
            raise Unsupported("Pad with a number that is not zero, or of some axes")
        given = [self._table(one) for one in node.input[:count]]
        given += [self._constant(one) if one else np.zeros((), np.int64) for one in node.input[count:]]
        if node.op_type == "Pad":
            given = given[:2]
        for name, table in zip(node.output, _moved(node, given, opset), strict=True):
            self._values[name] = _Placed(np.asarray(table))

    def _sliced(self, node: Any, held: _Held) -> _Held | None:
        """Some units of a product."""
        starts, ends, axes, *steps = (self._constant(one).reshape(-1) for one in node.input[1:])
        if list(axes) not in ([1], [-2]) or (steps and list(steps[0]) != [1]):
            return None
        return held.sliced(slice(int(starts[0]), int(min(ends[0], held.units))), self._name)

    def _mean_of_one(self, node: Any, attributes: Mapping[str, Any]) -> _Placed:
        table = self._table(node.input[0])
        axes = attributes.get("axes") or (self._constant(node.input[1]).reshape(-1) if len(node.input) > 1 else None)
        axes = range(table.ndim) if axes is None else [int(one) % table.ndim for one in axes]
        if any(table.shape[axis] != 1 for axis in axes):
            raise Unsupported("ReduceMean of more than one number")
        return _Placed(table if attributes.get("keepdims", 1) else table.squeeze(tuple(axes)))

    def _element_wise(self, node: Any) -> _Placed | _Held:
        values = [self._value(one) for one in node.input]
        held = [one for one in values if isinstance(one, _Held)]
        if held and all(_alike(one, held[0]) for one in held):
            weights = {name: array for one in held for name, array in one.weights.items()}
            operands = [one.value if isinstance(one, _Held) else self._beside(one, held[0], weights) for one in values]
            if all(one is not None for one in operands):
                return replace(held[0], value=self._applied(node, operands, values), weights=weights)
        kept = [
            name
            for name, one in zip(node.input, values, strict=True)
            if not (isinstance(one, np.ndarray) and one.size == 1)
        ]
        tables = np.broadcast_arrays(*map(self._table, kept))
        places = iter(range(len(tables)))
        operands = [
            make("number", value=_number(one))
            if isinstance(one, np.ndarray) and one.size == 1
            else parameter(str(next(places)))
            for one in values
        ]
        value = self._applied(node, operands, values)
        out = self._map([one.reshape(-1) for one in tables], value)
        return _Placed(np.arange(out, out + tables[0].size).reshape(tables[0].shape))

    def _beside(self, value: Any, held: _Held, weights: dict[str, Array]) -> Expression | None:
        """A constant as an operand of a cell: a number, or one for each unit."""
        if isinstance(value, _Placed):
            return None
        if value.size == 1:
            return make("number", value=_number(value))
        shape = (held.units,) if held.flat else (held.units, 1)
        if value.dtype != np.float32 or value.size != held.units or value.shape[-len(shape) :] != shape:
            return None
        name = self._name()
        weights[name] = value.reshape(-1)
        return parameter(name)

    def _applied(self, node: Any, operands: list[Any], values: list[Any]) -> Expression:
        op = node.op_type
        if op == "Relu":
            return relu(operands[0])
        if op in _UNARY:
            return unary(_UNARY[op], operands[0])
        if op in _BINARY:
            return binary(_BINARY[op], operands[0], operands[1])
        if op == "Pow" and isinstance(values[1], np.ndarray) and values[1].size == 1 and _number(values[1]) == 2.0:
            return binary("mul", operands[0], operands[0])
        raise Unsupported(op)

    # Products

    def _convolution(self, node: Any, attributes: Mapping[str, Any]) -> _Held:
        weight = self._constant(node.input[1])
        plain = attributes.get("group", 1) == 1 and list(attributes.get("dilations", [1])) == [1]
        if weight.ndim != 3 or not plain or attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            raise Unsupported("Conv with groups, dilations, its own borders, or not of one dimension")
        units, channels, taps = weight.shape
        before, after = attributes.get("pads", [0, 0])
        stride = attributes.get("strides", [1])[0]
        placed = self._placed(node.input[0], border=max(before, after))
        table = placed.table
        if table.ndim != 3 or len(table) != 1 or table.shape[1] != channels:
            raise Unsupported("Conv of several rows")
        length = table.shape[2]
        positions = (length + before + after - taps) // stride + 1
        if positions < 1:
            raise Unsupported("Conv without a result")
        if placed.rows is not None and placed.rows[2] >= max(before, after):
            first, wide, _ = placed.rows
            first -= before * wide
        else:
            wide = channels if channels == 1 else -(-channels // self._lanes) * self._lanes
            rows = np.full((before + length + after, wide), ZERO)
            rows[before : before + length, :channels] = table[0].T
            first = self._map([rows.reshape(-1)], parameter("0"))
        matrix = np.zeros((units, taps, wide), np.float32)
        matrix[:, :, :channels] = weight.transpose(0, 2, 1)
        seen = [
            tap for tap in range(taps)
            if any(before <= at * stride + tap < before + length for at in range(positions))
        ]  # fmt: skip
        low, high = (seen[0], seen[-1] + 1) if seen else (0, taps)
        held = _Held(
            first + low * wide,
            stride * wide,
            (high - low) * wide,
            positions,
            units,
            {},
            _NOTHING,
            False,
        )
        return self._with_weights(held, matrix[:, low:high].reshape(units, -1), self._bias(node, units))

    def _matrix(self, node: Any, attributes: Mapping[str, Any]) -> _Held:
        weight = self._constant(node.input[1])
        if any(attributes.get(name, 1.0) != 1.0 for name in ("alpha", "beta")) or attributes.get("transA"):
            raise Unsupported("Gemm with factors")
        weight = weight if attributes.get("transB") else weight.T
        table = self._table(node.input[0])
        if weight.ndim != 2 or table.ndim != 2 or table.shape[1] != weight.shape[1]:
            raise Unsupported(f"{node.op_type} of tensors that are no matrices")
        wide = -(-table.shape[1] // self._whole) * self._whole
        rows = np.full((len(table), wide), ZERO)
        rows[:, : table.shape[1]] = table
        matrix = np.zeros((len(weight), wide), np.float32)
        matrix[:, : table.shape[1]] = weight
        x = self._contiguous(rows.reshape(-1))
        held = _Held(x, wide, wide, len(table), len(weight), {}, _NOTHING, True)
        return self._with_weights(held, matrix, self._bias(node, len(weight)))

    def _bias(self, node: Any, units: int) -> Array | None:
        if len(node.input) < 3 or not node.input[2]:
            return None
        found = self._constant(node.input[2])
        return np.ascontiguousarray(np.broadcast_to(found.reshape(-1), (units,)), np.float32)

    def _with_weights(self, held: _Held, matrix: Array, bias: Array | None) -> _Held:
        if held.window % self._whole:
            raise Unsupported("a window that is no multiple of what is read at once")
        name = self._name()
        value, weights = dot(name, _X), {name: np.ascontiguousarray(matrix, np.float32)}
        if bias is not None:
            name = self._name()
            value, weights = value + parameter(name), {**weights, name: bias}
        return replace(held, value=value, weights=weights)

    def _recurrence(self, step: Recurrence) -> None:
        if not step.streams or len(step.layers) != 1 or step.batch_first:
            raise Unsupported("a recurrent layer of several directions, with lengths, or rows first")
        layer = step.layers[0]
        table = self._table(step.x)
        if table.ndim != 3 or table.shape[1] != 1 or table.shape[2] != layer.sizes.input:
            raise Unsupported("a recurrent layer over several rows")
        count, wide = len(table), -(-layer.sizes.input // self._whole) * self._whole
        rows = np.full((count, wide), ZERO)
        rows[:, : layer.sizes.input] = table[:, 0]
        x = self._contiguous(rows.reshape(-1))
        size, places = self._state_layout(layer)
        state, following = self._take(size), self._take(size)
        for name, at in places.items():
            units = layer.state_size(name)
            given = self._table(step.initial[name]).reshape(-1) if step.initial.get(name) else np.full(units, ZERO)
            if given.shape != (units,):
                raise Unsupported("a first state of several rows")
            self._map([given], parameter("0"), state + at)
        out_wide = -(-layer.output_size // self._lanes) * self._lanes
        out = self._take(count * out_wide)
        self._plan.steps.append(Recur(layer, count, x, wide, out, out_wide, state, following))
        last = following if count % 2 else state
        for name, target in step.final.items():
            if target:
                at = last + places[name]
                self._values[target] = _Placed(np.arange(at, at + layer.state_size(name)).reshape(1, 1, -1))
        if step.y:
            y = out + out_wide * np.arange(count)[:, None] + np.arange(layer.output_size)
            self._values[step.y] = _Placed(y[:, None] if step.merged else y[:, None, None])


def _alike(one: _Held, other: _Held) -> bool:
    """Whether two products read the same windows and have as many units."""
    return all(
        getattr(one, name) == getattr(other, name) for name in ("x", "x_step", "window", "positions", "units", "flat")
    )


def _number(value: Array) -> float:
    return float(value.reshape(-1)[0])


def _renamed(root: Expression, names: Mapping[str, str]) -> Expression:
    """The expression with other names of weights."""
    made: dict[Expression, Expression] = {}
    for node in walk([root]):
        name = names.get(node.name, node.name)
        made[node] = make(node.op, [made[arg] for arg in node.args], name, node.value, node.space)
    return made[root]


def _moved(node: Any, given: list[Array], opset: int) -> list[Array]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    names = [f"i{at}" for at in range(len(given))]
    one = onnx.NodeProto()
    one.CopyFrom(node)
    del one.input[:]
    one.input.extend(names)
    graph = onnx.helper.make_graph(
        [one], "move", [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, None) for name in names],
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, None) for name in node.output],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        return list(ReferenceEvaluator(model).run(None, dict(zip(names, given, strict=True))))
    except Exception as error:  # whatever NumPy makes of the shapes
        raise Unsupported(f"{node.op_type}: {error}") from None
