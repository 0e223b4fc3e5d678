"""A layer in one direction: a cell with weights, run over sequences and step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shoal.recurrent.cells.cell import Cell
from shoal.recurrent.nest.interpret import Interpreter, Weights
from shoal.recurrent.nest.ir import Sizes
from shoal.recurrent.nest.transform import Schedule, lower
from shoal.recurrent.numbers import Floats, NumberType

Array = NDArray[Any]
States = Mapping[str, Floats]
"""[rows, units] by the name of the state."""


@dataclass(frozen=True)
class LayerSpec:
    """What a layer computes. `reverse`: from the last step to the first."""

    cell: Cell
    sizes: Sizes
    weights: Weights
    kind: NumberType = NumberType.FP32
    reverse: bool = False

    @cached_property
    def output_size(self) -> int:
        return self.sizes.of(self.cell.spaces[self.cell.states[0]])

    @cached_property
    def state_sizes(self) -> Mapping[str, int]:
        """The units of each state, by name."""
        return {name: self.sizes.of(space) for name, space in self.cell.spaces.items()}

    def state_size(self, name: str) -> int:
        return self.state_sizes[name]


@dataclass(frozen=True, slots=True)
class Schedules:
    """Of sequences and of single steps."""

    sequence: Schedule
    step: Schedule


class Steps(Protocol):
    """The memory of some rows that keep their states: what sessions are made of."""

    x: Floats
    """[rows, input]: where the inputs of the next step go."""
    y: Floats
    """[rows, output]: the outputs of the last step."""

    def step(self, rows: Sequence[int]) -> None:
        """One step of these rows, which are all different."""
        ...

    def read(self, rows: Sequence[int]) -> dict[str, Floats]:
        """The states of these rows, [rows, units] by name."""
        ...

    def write(self, rows: Sequence[int], states: Mapping[str, Floats]) -> None: ...

    def swap(self, row: int) -> None:
        """Take back the last step of a row, once."""
        ...


class Layer(Protocol):
    """A layer of some back end."""

    spec: LayerSpec

    def run(self, x: Array, states: States, lengths: Array | None, out: Floats) -> dict[str, Floats]:
        """All steps of x [steps, rows, input] into out [steps, rows, output], which may be a view; the states after
        the last step of each row. Where a row has ended, its outputs are zero."""
        ...

    def steps(self, rows: int) -> Steps: ...


def run_of(rows: Sequence[int]) -> slice | list[int]:
    """The rows as an index of NumPy: a slice, which copies nothing, where they follow one another."""
    first, count = rows[0], len(rows)
    return slice(first, first + count) if list(rows) == [*range(first, first + count)] else list(rows)


def spans(lengths: Array | None, steps: int, rows: int) -> tuple[Array, list[tuple[int, int, int]]]:
    """The order of rows by length, longest first, and (first step, end, rows still running) of each span."""
    if lengths is None:
        return np.arange(rows), [(0, steps, rows)] if steps and rows else []
    order = np.argsort(-lengths, kind="stable")
    found, at = [], 0
    for count in range(rows, 0, -1):
        end = int(lengths[order[count - 1]])
        if end > at:
            found.append((at, end, count))
            at = end
    return order, found


class InterpretedLayer:
    """The reference back end: slow, and right by construction."""

    def __init__(self, spec: LayerSpec) -> None:
        self.spec = spec
        nest = lower(spec.cell, spec.sizes, Schedule(hoist=False), spec.sizes.hidden)
        self._interpreter = Interpreter(nest, spec.weights, spec.kind)

    def run(self, x: Array, states: States, lengths: Array | None, out: Floats) -> dict[str, Floats]:
        """See `Layer`."""
        steps, rows, _ = x.shape
        found = {name: np.array(one, np.float32) for name, one in states.items()}
        out[...] = 0
        ends = np.full(rows, steps) if lengths is None else lengths
        for row in range(rows):
            order = np.arange(int(ends[row]))[:: -1 if self.spec.reverse else 1]
            one = slice(row, row + 1)
            y, after = self._interpreter.run(x[order, one], {name: value[one] for name, value in found.items()})
            out[order, one] = y
            for name, value in after.items():
                found[name][row] = value[0]
        return found

    def steps(self, rows: int) -> Steps:
        return _InterpretedSteps(self.spec, self._interpreter, rows)


class _InterpretedSteps:
    def __init__(self, spec: LayerSpec, interpreter: Interpreter, rows: int) -> None:
        self._interpreter = interpreter
        self.x = np.zeros((rows, spec.sizes.input), np.float32)
        self.y = np.zeros((rows, spec.output_size), np.float32)
        self._states = {name: np.zeros((rows, spec.state_size(name)), np.float32) for name in spec.cell.states}
        self._before = {name: one.copy() for name, one in self._states.items()}

    def step(self, rows: Sequence[int]) -> None:
        for row in rows:
            one = slice(row, row + 1)
            y, after = self._interpreter.run(self.x[None, one], {k: v[one] for k, v in self._states.items()})
            self.y[one] = y[0]
            for name, value in after.items():
                self._before[name][one] = self._states[name][one]
                self._states[name][one] = value

    def read(self, rows: Sequence[int]) -> dict[str, Floats]:
        return {name: one[list(rows)] for name, one in self._states.items()}

    def write(self, rows: Sequence[int], states: Mapping[str, Floats]) -> None:
        for name, value in states.items():
            self._states[name][list(rows)] = value

    def swap(self, row: int) -> None:
        for name, one in self._states.items():
            one[row] = self._before[name][row]
