"""A program in memory: its arena, its kernels, and one call for all of them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.base.machine_code import VERSION, LoadedCode, machine_for, optimised
from shoal.recurrent.layers.compiled import CompiledLayer
from shoal.recurrent.layers.layer import Array
from shoal.recurrent.layers.memory import address, zeroed
from shoal.recurrent.llvm.cache import KernelCache, key_of
from shoal.recurrent.llvm.layout import ROW_BYTES, Call, Layout, Row
from shoal.recurrent.llvm.target import Target
from shoal.recurrent.program.emit import CHAIN, ENTRY_BYTES, Entry, emit, map_name, padded
from shoal.recurrent.program.steps import Map, Plan, Product, Recur

_FIELDS = ROW_BYTES // 8


class Program:
    """`run` takes and gives arrays by name. Calls of several threads take turns."""

    def __init__(self, made: Plan, layers: Sequence[CompiledLayer | None], target: Target, cache: KernelCache) -> None:
        self._plan, self._lock = made, threading.Lock()
        self._arena = zeroed(4 * made.size).view(np.float32)
        for at, values in made.constants.items():
            self._arena[at : at + len(values)] = values
        text = emit(made, target)
        machine = machine_for(target.triple, target.cpu, target.features)
        data = cache.get(key_of(text, target, VERSION), lambda: bytes(machine.emit_object(optimised(text, machine))))
        self._code = LoadedCode(data, target.triple, machine)
        self._chain = self._code.function(CHAIN, None, ctypes.c_void_p)
        self._kept: list[Any] = [layers]
        entries = [
            self._of_map(index, step, target) if isinstance(step, Map) else self._of_layer(step, layers[index])
            for index, step in enumerate(made.steps)
        ]
        table = zeroed(ENTRY_BYTES * len(entries)).view(np.int64).reshape(len(entries), len(Entry))
        table[:] = entries
        call = zeroed(16).view(np.int64)
        call[:] = len(entries), address(table)
        self._kept += [table, call]
        self._call = address(call)
        self._inputs = {name: self._view(at, shape) for name, (at, shape) in made.inputs.items()}
        self._outputs = {name: self._view(at, shape) for name, (at, shape) in made.outputs.items()}

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        with self._lock:
            for name, place in self._inputs.items():
                place[...] = inputs[name]
            self._chain(self._call)
            return {name: self._outputs[name].copy() for name in outputs}

    @property
    def layers(self) -> int:
        """How many kernels of products and recurrent layers there are."""
        return sum(not isinstance(one, Map) for one in self._plan.steps)

    def _view(self, at: int, shape: tuple[int, ...]) -> Array:
        return self._arena[at : at + int(np.prod(shape))].reshape(shape)

    def _place(self, at: int) -> int:
        return address(self._arena) + 4 * at

    def _of_map(self, index: int, step: Map, target: Target) -> list[int]:
        argument = zeroed(8 * (1 + len(step.tables))).view(np.int64)
        argument[0] = address(self._arena)
        for at, places in enumerate(step.tables):
            table = zeroed(4 * padded(len(places), target.lanes)).view(np.int32)
            table[: len(places)] = places
            self._kept.append(table)
            argument[1 + at] = address(table)
        function = self._code.function(map_name(index), None, ctypes.c_void_p)
        self._kept += [argument, function]
        return [_address_of(function), address(argument), 0, 0, 0]

    def _of_layer(self, step: Product | Recur, layer: CompiledLayer | None) -> list[int]:
        assert layer is not None
        rows = step.positions if isinstance(step, Product) else 1
        schedules = layer.schedules
        kernel = layer.kernel(replace(schedules.sequence if rows == 1 else schedules.step, hoist=False))
        layout: Layout = kernel.layout
        fresh = zeroed(ROW_BYTES * rows).view(np.int64).reshape(rows, _FIELDS)
        scratch, inputs = zeroed(layout.scratch_bytes * rows), zeroed(layout.input_bytes * rows)
        at = np.arange(rows)
        fresh[:, Row.SCRATCH] = address(scratch) + layout.scratch_bytes * at
        fresh[:, Row.Y] = self._place(step.out) + 4 * step.wide * at
        source = Row.SOURCE if layout.input_bytes else Row.X
        fresh[:, source] = self._place(step.x) + 4 * step.x_step * at
        if layout.input_bytes:
            fresh[:, Row.X] = address(inputs) + layout.input_bytes * at
        if isinstance(step, Recur):
            fresh[:, Row.STATE], fresh[:, Row.NEXT] = self._place(step.state), self._place(step.following)
            fresh[:, Row.X_STEP], fresh[:, Row.Y_STEP] = 4 * step.x_step, 4 * step.wide
        else:
            unread = zeroed(layout.state_bytes)
            fresh[:, Row.STATE] = fresh[:, Row.NEXT] = address(unread)
            self._kept.append(unread)
        records = fresh.copy()
        call = zeroed(8 * len(Call)).view(np.int64)
        call[Call.STEPS], call[Call.ROWS] = (step.steps if isinstance(step, Recur) else 1), rows
        call[Call.RECORDS], call[Call.CONSTANTS] = address(records), address(layer.constants)
        self._kept += [fresh, records, scratch, inputs, call, kernel]
        return [_address_of(kernel.run), address(call), address(records), address(fresh), ROW_BYTES * rows]


def _address_of(function: Any) -> int:
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
