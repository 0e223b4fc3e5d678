"""The meaning of a nest, in NumPy: the reference that every compiled kernel is held against, and the last resort."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.recurrent.cells.symbols import Expression
from shoal.recurrent.nest.ir import (
    Convert,
    Loop,
    Mean,
    Nest,
    Node,
    Order,
    Pointwise,
    Reduce,
    Store,
)
from shoal.recurrent.numbers import NumberType, from_bf16, quantise, quantise_groups, to_bf16

Array = NDArray[Any]


@dataclass(frozen=True)
class Weights:
    """Matrices of shape [units, elements] and parameters of shape [units], by name, in fp32."""

    matrices: Mapping[str, Array]
    parameters: Mapping[str, Array]

    def __post_init__(self) -> None:
        for table in (self.matrices, self.parameters):
            for array in table.values():
                array.flags.writeable = False

    @property
    def count(self) -> int:
        """Numbers in all of them."""
        return sum(one.size for table in (self.matrices, self.parameters) for one in table.values())


class Interpreter:
    """Runs a nest. `exact`: all numbers are 64 bits wide, which makes it an oracle."""

    def __init__(
        self, nest: Nest, weights: Weights, kind: NumberType = NumberType.FP32, *, exact: bool = False
    ) -> None:
        self.nest = nest
        self.type = np.float64 if exact else np.float32
        self.kind = kind
        self.parameters = {name: one.astype(self.type) for name, one in weights.parameters.items()}
        self.matrices: dict[str, Array] = {}
        self.scales: dict[str, Array] = {}
        for name, one in weights.matrices.items():
            if kind is NumberType.INT8:
                integers, self.scales[name] = quantise(one)
                self.matrices[name] = integers.astype(np.int64)
            elif kind is NumberType.INT4:
                groups, scales = quantise_groups(one)
                wide: Array = groups.astype(self.type)
                self.matrices[name] = (wide * scales[..., None]).reshape(len(one), -1)
            else:
                rounded = from_bf16(to_bf16(one)) if kind is NumberType.BF16 else one
                self.matrices[name] = rounded.astype(self.type)

    def run(self, x: Array, states: Mapping[str, Array]) -> tuple[Array, dict[str, Array]]:
        """All steps of x [steps, rows, input] from states [rows, units] by name; the first state after each step, and
        all states after the last."""
        steps, rows, _ = x.shape
        frame = _Frame(self, x.astype(self.type), {k: v.astype(self.type) for k, v in states.items()})
        out = next(iter(self.nest.cell.states))
        outputs = np.zeros((steps, rows, states[out].shape[1]), self.type)
        with np.errstate(all="ignore"):
            for phase in self.nest.phases:
                if phase.axis != "t":
                    frame.project(phase)
                    continue
                for step in range(steps):
                    frame.step = step
                    for node in phase.body:
                        frame.perform(node)
                    frame.states, frame.next = frame.next, {k: np.zeros_like(v) for k, v in frame.states.items()}
                    outputs[step] = frame.states[out]
        return outputs, frame.states


class _Frame:
    """One run: what is in memory."""

    def __init__(self, owner: Interpreter, x: Array, states: dict[str, Array]) -> None:
        self.owner, self.x, self.states = owner, x, states
        self.step = 0
        self.next = {name: np.zeros_like(one) for name, one in states.items()}
        sizes = owner.nest.sizes
        self.scratch = {name: np.zeros((x.shape[1], sizes.of(space)), owner.type) for _, name, space in owner.nest.kept}
        self.means: dict[Expression, Array] = {}
        self.projected: dict[str, Array] = {}

    def project(self, phase: Loop) -> None:
        reduce = next(
            node for loop in phase.body if isinstance(loop, Loop) for node in loop.body if isinstance(node, Reduce)
        )
        steps, rows, size = self.x.shape
        flat = self.x.reshape(steps * rows, size)
        for dot in reduce.dots:
            self.projected[dot.name] = self.product(dot.name, flat).reshape(steps, rows, -1)

    def perform(self, node: Node) -> None:
        assert isinstance(node, Loop)
        if node.axis == "h":
            assert isinstance(node.extent, int)
            backward = node.order is Order.ALTERNATE and self.step % 2 == 1
            for low, high in tiles(node.extent, node.step * node.vector, backward=backward):
                for rows in node.body:
                    assert isinstance(rows, Loop)
                    for first, last in tiles(self.x.shape[1], rows.step, backward=False):
                        self.tile(rows.body, slice(first, last), slice(low, high))
            return
        for one in node.body:
            if isinstance(one, Mean):
                self.means[one.node] = self.scratch[one.vector.name].mean(axis=1, keepdims=True, dtype=self.owner.type)
            else:
                assert isinstance(one, Convert)  # `product` rounds what it reads

    def tile(self, body: tuple[Node, ...], rows: slice, units: slice) -> None:
        dots: dict[Expression, Array] = {}
        for node in body:
            if isinstance(node, Reduce):
                vector = self.vector(node)[rows]
                for dot in node.dots:
                    dots[dot] = self.product(dot.name, vector, units)
            elif isinstance(node, Pointwise):
                values = self.evaluate(node, dots, rows, units)
                for store in node.stores:
                    self.keep(store, values[store.value], rows, units)

    def vector(self, reduce: Reduce) -> Array:
        operand = reduce.operand
        if operand.kind == "input":
            return np.asarray(self.x[self.step])
        return np.asarray((self.states if operand.kind == "state" else self.scratch)[operand.name])

    def keep(self, store: Store, value: Array, rows: slice, units: slice) -> None:
        table = self.next if store.kind == "state" else self.scratch
        table[store.name][rows, units] = value

    def product(self, name: str, vectors: Array, units: slice = slice(None)) -> Array:
        owner, matrix = self.owner, self.owner.matrices[name][units]
        if owner.kind not in (NumberType.INT8, NumberType.INT4):
            return np.asarray((vectors @ matrix.T).astype(owner.type))
        integers, scales = quantise(vectors)
        if owner.kind is NumberType.INT4:
            weighted: Array = integers.astype(owner.type) @ matrix[:, : integers.shape[1]].T
            return np.asarray((weighted * scales[:, None]).astype(owner.type))
        total = (integers.astype(np.int64) @ matrix.T).astype(np.float32)
        return np.asarray((total * (owner.scales[name][units] * scales[:, None])).astype(owner.type))

    def evaluate(
        self, node: Pointwise, dots: Mapping[Expression, Array], rows: slice, units: slice
    ) -> dict[Expression, Array]:
        loads = dict(node.loads)
        values: dict[Expression, Array] = {}
        for one in node.order():
            if one in loads:
                values[one] = self.scratch[loads[one]][rows, units]
            elif one.op == "dot":
                values[one] = dots[one] if one in dots else self.projected[one.name][self.step][rows, units]
            elif one.op == "mean":
                values[one] = self.means[one][rows]
            elif one.args:
                values[one] = apply(one.op, [values[arg] for arg in one.args])
            else:
                values[one] = self.leaf(one, rows, units)
        return values

    def leaf(self, node: Expression, rows: slice, units: slice) -> Array:
        if node.op == "number":
            return np.asarray(node.value, self.owner.type)
        if node.op == "parameter":
            return self.owner.parameters[node.name][units]
        return self.states[node.name][rows, units]


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _where(a: Array, b: Array, c: Array, d: Array) -> Array:
    return np.asarray(np.where(a > b, c, d))


_OPERATIONS: Mapping[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
    "neg": np.negative, "abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "tanh": np.tanh,
    "sigmoid": _sigmoid, "where": _where,
}  # fmt: skip


def apply(op: str, args: Sequence[Array]) -> Array:
    """One element-wise operation."""
    return np.asarray(_OPERATIONS[op](*args))


def tiles(extent: int, step: int, *, backward: bool) -> Iterator[tuple[int, int]]:
    """(first, end) of each tile; the last one may be smaller."""
    found = [(low, min(low + step, extent)) for low in range(0, extent, step)]
    return reversed(found) if backward else iter(found)
