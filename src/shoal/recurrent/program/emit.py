"""The code of a program beside its layers: what moves numbers, and the loop that calls one kernel after the other."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from llvmlite import ir

from shoal.recurrent.cells.symbols import walk
from shoal.recurrent.llvm.target import Target
from shoal.recurrent.llvm.vectors import F32, I32, I64, PTR, VOID, Value, Vectors
from shoal.recurrent.program.steps import Map, Plan

CHAIN = "run"


class Entry(IntEnum):
    """The fields of one call of the chain, each 8 bytes. Kernels move their records on: a call begins with a copy of
    RECORDS_BYTES from FRESH to RECORDS."""

    FUNCTION = 0
    ARGUMENT = 1
    RECORDS = 2
    FRESH = 3
    RECORDS_BYTES = 4


ENTRY_BYTES = 8 * len(Entry)


def map_name(index: int) -> str:
    return f"map.{index}"


def emit(plan: Plan, target: Target) -> str:
    """A module with `run(count, entries)` and one function for each map, which takes the arena and its tables."""
    module = ir.Module(name="program")
    module.triple = target.triple
    for index, step in enumerate(plan.steps):
        if isinstance(step, Map):
            _map(module, map_name(index), step, target)
    _chain(module, target)
    return str(module)


def _chain(module: ir.Module, target: Target) -> None:
    function = ir.Function(module, ir.FunctionType(VOID, [PTR]), CHAIN)
    b = ir.IRBuilder(function.append_basic_block())
    v = Vectors(module, b, target.lanes, fused=target.fused)
    argument = function.args[0]
    count, entries = v.load(argument, I64), v.load(v.at(argument, 8), PTR)
    with _Loop(function, b, count) as index:
        entry = v.at(entries, b.mul(index, ir.Constant(I64, ENTRY_BYTES)))
        records, fresh, given = (
            v.load(v.at(entry, 8 * one), PTR) for one in (Entry.RECORDS, Entry.FRESH, Entry.ARGUMENT)
        )
        size = v.load(v.at(entry, 8 * Entry.RECORDS_BYTES), I64)
        with _Loop(function, b, size, 8) as at:
            b.store(v.load(v.at(fresh, at), I64), v.at(records, at))
        kind = ir.PointerType(ir.FunctionType(VOID, [PTR]))
        b.call(b.load(v.at(entry, 8 * Entry.FUNCTION), typ=kind), [given])
    b.ret_void()


def _map(module: ir.Module, name: str, step: Map, target: Target) -> None:
    """Whole vectors: a table has places for the last one too, and behind each region of the arena is room."""
    function = ir.Function(module, ir.FunctionType(VOID, [PTR]), name)
    b = ir.IRBuilder(function.append_basic_block())
    v = Vectors(module, b, target.lanes, fused=target.fused)
    lanes = target.lanes
    arena = v.load(function.args[0], PTR)
    tables = [v.load(v.at(function.args[0], 8 * (1 + at)), PTR) for at in range(len(step.tables))]
    order = walk([step.value])
    with _Loop(function, b, ir.Constant(I64, padded(step.count, lanes)), lanes) as index:
        offset = b.mul(index, ir.Constant(I64, 4))
        values = {}
        for node in order:
            if node.op == "parameter":
                at = int(node.name)
                values[node] = _read(v, arena, tables[at], step.tables[at], offset)
            elif node.op == "number":
                values[node] = v.number(node.value)
            else:
                values[node] = v.apply(node.op, [values[arg] for arg in node.args])
        v.store(values[step.value], v.at(v.at(arena, 4 * step.out), offset))
    b.ret_void()


def _read(v: Vectors, arena: Value, table: Value, places: np.ndarray, offset: Value) -> Value:
    """The next numbers of an operand: side by side, or one by one."""
    first = int(places[0])
    if np.array_equal(places, np.arange(first, first + len(places))):
        return v.load(v.at(v.at(arena, 4 * first), offset))
    found: Value = ir.Constant(v.floats, ir.Undefined)
    for lane in range(v.lanes):
        place = v.load(v.at(v.at(table, 4 * lane), offset), I32)
        number = v.load(v.at(arena, v.b.mul(v.b.zext(place, I64), ir.Constant(I64, 4))), F32)
        found = v.b.insert_element(found, number, ir.Constant(I32, lane))
    return found


def padded(count: int, lanes: int) -> int:
    return -(-count // lanes) * lanes


class _Loop:
    """A loop over 0, step, ... below count; what is in the block is its body."""

    def __init__(self, function: ir.Function, b: ir.IRBuilder, count: Value, step: int = 1) -> None:
        self._function, self._b, self._count, self._step = function, b, count, step

    def __enter__(self) -> Value:
        b, before = self._b, self._b.block
        self._head, body, self._after = (self._function.append_basic_block() for _ in range(3))
        b.branch(self._head)
        b.position_at_end(self._head)
        self._index = b.phi(I64)
        self._index.add_incoming(ir.Constant(I64, 0), before)
        b.cbranch(b.icmp_signed("<", self._index, self._count), body, self._after)
        b.position_at_end(body)
        return self._index

    def __exit__(self, *_: object) -> None:
        b = self._b
        self._index.add_incoming(b.add(self._index, ir.Constant(I64, self._step)), b.block)
        b.branch(self._head)
        b.position_at_end(self._after)
