"""A layer of compiled kernels: one for sequences, one for steps, over the same constants."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.recurrent.layers.kernel import Kernel
from shoal.recurrent.layers.layer import Array, LayerSpec, Schedules, States, run_of, spans
from shoal.recurrent.layers.memory import address, zeroed
from shoal.recurrent.llvm.dots import HEADER
from shoal.recurrent.llvm.layout import ROW_BYTES, Call, Layout, Row
from shoal.recurrent.nest.transform import Schedule
from shoal.recurrent.numbers import Floats, NumberType, quantise, to_bf16

_CHUNK_BYTES = 2 << 20
"""Of the hoisted products: more steps at once would not stay in the cache between the projection and the recurrence."""
_FIELDS = ROW_BYTES // 8


class CompiledLayer:
    """See `Layer`. Kernels of one layer differ in their schedules only; each is compiled when it is first needed."""

    def __init__(self, spec: LayerSpec, schedules: Schedules, compile_: Callable[[Schedule], Kernel]) -> None:
        self.spec, self.schedules, self._compile = spec, schedules, compile_
        self._kernels: dict[Schedule, Kernel] = {}
        layout = self.kernel(schedules.sequence).layout
        self.constants = zeroed(layout.constant_bytes)
        self.constants[: layout.constant_bytes] = layout.pack(spec.weights)
        self._spare: list[_Workspace] = []
        self._stepping: list[CompiledSteps] = []

    def kernel(self, schedule: Schedule) -> Kernel:
        """The kernel of a schedule."""
        if schedule not in self._kernels:
            self._kernels[schedule] = self._compile(schedule)
        return self._kernels[schedule]

    def run(self, x: Array, states: States, lengths: Array | None, out: Floats) -> dict[str, Floats]:
        """See `Layer`."""
        steps, rows, _ = x.shape
        if steps == 1 and lengths is None and rows:
            return self._run_step(x[0], states, out[0])
        kernel = self.kernel(self.schedules.step if steps == 1 else self.schedules.sequence)
        layout: Layout = kernel.layout
        x = self._readable(x, layout)
        order, parts = spans(lengths, steps, rows)
        work = self._workspace(layout, rows, steps)
        memory, chunk = work.memory, work.chunk
        slots = np.arange(rows)
        memory.write(slots, {name: one[order] for name, one in states.items()})
        padded = layout.padded(out.shape[2])
        direct = padded == out.shape[2] and out.strides[2] == 4
        y = out if direct else np.empty((steps, rows, padded), np.float32)
        if lengths is not None:
            y[...] = 0
        self._place(memory, x, y, order, lengths, layout)
        call = memory.call(self.constants)
        for first, end, running in parts:
            for at in range(first, end, chunk):
                count = min(chunk, end - at)
                memory.rewind(work.projected, chunk * layout.projected_bytes, work.inputs, chunk * layout.input_bytes)
                call[Call.STEPS], call[Call.ROWS] = count, running
                kernel.run(address(call))
                memory.advance_source(count, running)
        if not direct:
            out[...] = y[..., : out.shape[2]]
        found = {name: np.empty((rows, self.spec.state_size(name)), np.float32) for name in self.spec.cell.states}
        for name, value in memory.read(slots).items():
            found[name][order] = value
        self._spare[:] = [work]
        return found

    def _run_step(self, x: Array, states: States, out: Floats) -> dict[str, Floats]:
        """One step, in the memory of the call before if it had as many rows: streaming calls with one row each time."""
        rows = len(x)
        try:
            memory = self._stepping.pop()
        except IndexError:
            memory = CompiledSteps(self, rows)
        if len(memory.x) != rows:
            memory = CompiledSteps(self, rows)
        every = range(rows)
        memory.write(every, states)
        memory.x[:] = x
        memory.step(every)
        out[:] = memory.y
        found = memory.read(every)
        self._stepping[:] = [memory]
        return found

    def _workspace(self, layout: Layout, rows: int, steps: int) -> _Workspace:
        """The one of the call before, if it fits and no other thread has it: fresh pages cost more than short runs."""
        try:
            spare = self._spare.pop()
        except IndexError:
            return _Workspace(layout, rows, steps)
        return spare if spare.fits(layout, rows, steps) else _Workspace(layout, rows, steps)

    def with_schedule(self, schedule: Schedule) -> CompiledLayer:
        """The same layer by another schedule, over the same constants."""
        other = copy.copy(self)
        other.schedules = Schedules(schedule, schedule)
        other._spare, other._stepping = [], []
        return other

    def steps(self, rows: int) -> CompiledSteps:
        return CompiledSteps(self, rows)

    def _readable(self, x: Array, layout: Layout) -> Array:
        """x as the kernel can read it: whole vectors where it converts, whole groups where it does not."""
        size = x.shape[2]
        whole = layout.target.lanes if layout.dot.converts else layout.dot.pack
        wide = -(-size // whole) * whole
        if wide != size:
            padded = np.zeros((*x.shape[:2], wide), np.float32)
            padded[..., :size] = x
            return padded
        usable = x.dtype == np.float32 and (x.strides[2] == 4 or size == 1) and x.flags.aligned
        return x if usable else np.ascontiguousarray(x, np.float32)

    def _place(
        self, memory: RowMemory, x: Array, y: Array, order: Array, lengths: Array | None, layout: Layout
    ) -> None:
        """Point each row at its first step."""
        sign = -1 if self.spec.reverse else 1
        first = np.zeros(len(order), np.int64)
        if self.spec.reverse:
            first = (np.full(len(order), len(x)) if lengths is None else lengths[order]) - 1
        source, step = (Row.SOURCE, Row.SOURCE_STEP) if layout.input_bytes else (Row.X, Row.X_STEP)
        memory.records[:, source] = address(x) + first * x.strides[0] + order * x.strides[1]
        memory.records[:, step] = sign * x.strides[0]
        memory.records[:, Row.Y] = address(y) + first * y.strides[0] + order * y.strides[1]
        memory.records[:, Row.Y_STEP] = sign * y.strides[0]


class _Workspace:
    """What one run of a layer needs beside its arguments."""

    def __init__(self, layout: Layout, rows: int, steps: int) -> None:
        each = rows * (layout.projected_bytes + layout.input_bytes)
        self._layout, self._rows = layout, rows
        self._all = max(8, _CHUNK_BYTES // each) if each else 1 << 30
        self.chunk = min(steps, self._all)
        self.memory = RowMemory(layout, rows)
        self.projected = zeroed(self.chunk * rows * layout.projected_bytes)
        self.inputs = zeroed(self.chunk * rows * layout.input_bytes)

    def fits(self, layout: Layout, rows: int, steps: int) -> bool:
        return layout is self._layout and rows == self._rows and self.chunk >= min(steps, self._all)


class RowMemory:
    """The states, records and scratch of some rows."""

    def __init__(self, layout: Layout, rows: int) -> None:
        self.layout = layout
        half = layout.state_bytes
        self._states = zeroed(2 * half * rows)
        self._scratch = zeroed(layout.scratch_bytes * rows)
        self.records = zeroed(ROW_BYTES * rows).view(np.int64).reshape(rows, _FIELDS)
        base = address(self._states) + 2 * half * np.arange(rows)
        self._halves = self._states.reshape(rows, 2, half)
        self._floats = self._halves.view(np.float32)
        self._base = base
        self.records[:, Row.STATE], self.records[:, Row.NEXT] = base, base + half
        cell, sizes = layout.nest.cell, layout.nest.sizes
        self._places = {name: (layout.states[name], sizes.of(cell.spaces[name])) for name in cell.states}
        self.records[:, Row.SCRATCH] = address(self._scratch) + layout.scratch_bytes * np.arange(rows)

    def call(self, constants: Array) -> Array:
        """A `Call` for all rows."""
        call = zeroed(8 * len(Call)).view(np.int64)
        call[Call.RECORDS], call[Call.CONSTANTS] = address(self.records), address(constants)
        call[Call.STEPS], call[Call.ROWS] = 1, len(self.records)
        return call

    def rewind(self, projected: Array, projected_bytes: int, inputs: Array, input_bytes: int) -> None:
        """The places of the hoisted products and of the converted inputs are used again by each chunk."""
        rows = np.arange(len(self.records))
        self.records[:, Row.PROJECTED] = address(projected) + projected_bytes * rows
        if input_bytes:
            self.records[:, Row.X] = address(inputs) + input_bytes * rows
            self.records[:, Row.X_STEP] = self.layout.input_bytes

    def advance_source(self, steps: int, rows: int) -> None:
        if self.layout.input_bytes:
            self.records[:rows, Row.SOURCE] += steps * self.records[:rows, Row.SOURCE_STEP]

    def write(self, rows: Array, states: Mapping[str, Array]) -> None:
        """Set states, [rows, units] by name, of these rows."""
        now = self._now(rows)
        for name, value in states.items():
            at, size = self._places[name]
            self._floats[rows, now, at // 4 : at // 4 + size] = value
            converted = self.layout.converted.get(("state", name))
            if converted is not None:
                whole = self._floats[rows, now, at // 4 : at // 4 + self.layout.padded(size)]
                self._convert(rows, now, whole, converted)

    def read(self, rows: Array) -> dict[str, Floats]:
        """A copy of the states of these rows, [rows, units] by name."""
        now = self._now(rows)
        return {name: self._floats[rows, now, at // 4 : at // 4 + size] for name, (at, size) in self._places.items()}

    def swap(self, row: int) -> None:
        """Go back one step: of the states there are two copies, and the one before the last step is still there."""
        self.records[row, [Row.STATE, Row.NEXT]] = self.records[row, [Row.NEXT, Row.STATE]]

    def _now(self, rows: Array) -> Array:
        """Which of the two copies the next step of each row reads."""
        return np.asarray(self.records[rows, Row.STATE] != self._base[rows], np.intp)

    def _convert(self, rows: Array, now: Array, values: Floats, at: int) -> None:
        """As the kernel converts what it computes."""
        if self.layout.kind in (NumberType.INT8, NumberType.INT4):
            integers, scale = quantise(values)
            self._floats[rows, now, at // 4] = scale
            stored: Any = integers.view(np.uint8) ^ (128 if self.layout.dot.offset else 0)
        else:
            stored = to_bf16(values).view(np.uint8)
        self._halves[rows, now, at + HEADER : at + HEADER + stored.shape[1]] = stored


class CompiledSteps:
    """See `Steps`. A step of one row touches no other memory than the row's own."""

    def __init__(self, layer: CompiledLayer, rows: int) -> None:
        # A hoisted product moves on with every step, in memory that a sequence has and a session has not.
        # Each is compiled when it is first needed: many sessions never meet others in a batch.
        self._layer = layer
        self._alone, self._together = (
            replace(one, hoist=False) for one in (layer.schedules.sequence, layer.schedules.step)
        )
        layout: Layout = layer.kernel(self._alone).layout
        self._memory = RowMemory(layout, rows)
        wide = -(-layer.spec.sizes.input // layout.target.lanes) * layout.target.lanes
        out = layout.padded(layer.spec.output_size)
        x = zeroed(4 * wide * rows).view(np.float32).reshape(rows, wide)
        y = zeroed(4 * out * rows).view(np.float32).reshape(rows, out)
        self._wide = (x, y)
        self.x, self.y = x[:, : layer.spec.sizes.input], y[:, : layer.spec.output_size]
        self._inputs = zeroed(rows * layout.input_bytes)
        self._place(rows, layout)
        calls = zeroed(8 * len(Call) * (rows + 1)).view(np.int64).reshape(rows + 1, len(Call))
        calls[:] = self._memory.call(layer.constants)
        calls[:rows, Call.RECORDS] += ROW_BYTES * np.arange(rows)
        calls[:rows, Call.ROWS] = 1
        self._calls = calls
        self._addresses = [address(calls) + at * calls.strides[0] for at in range(rows + 1)]

    def _place(self, rows: int, layout: Layout) -> None:
        records, at = self._memory.records, np.arange(rows)
        x, y = self._wide
        records[:, Row.Y] = address(y) + at * y.strides[0]
        records[:, Row.X] = address(x) + at * x.strides[0]
        if layout.input_bytes:
            records[:, Row.SOURCE] = records[:, Row.X]
            records[:, Row.X] = address(self._inputs) + at * layout.input_bytes

    def step(self, rows: Sequence[int]) -> None:
        """See `Steps`."""
        if len(rows) == 1:
            self._layer.kernel(self._alone).run(self._addresses[rows[0]])
            return
        run, records, call = self._layer.kernel(self._together).run, self._memory.records, self._calls[-1]
        call[Call.ROWS] = len(rows)
        at = run_of(rows)
        if isinstance(at, slice):
            call[Call.RECORDS] = self._calls[at.start, Call.RECORDS]
            run(self._addresses[-1])
        else:  # the records of the rows stand together while the kernel runs
            together = records[at]
            call[Call.RECORDS] = address(together)
            run(self._addresses[-1])
            records[at] = together

    def read(self, rows: Sequence[int]) -> dict[str, Floats]:
        return self._memory.read(np.asarray(rows))

    def write(self, rows: Sequence[int], states: Mapping[str, Floats]) -> None:
        self._memory.write(np.asarray(rows), states)

    def swap(self, row: int) -> None:
        self._memory.swap(row)
