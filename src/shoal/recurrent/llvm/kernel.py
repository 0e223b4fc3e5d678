"""From a nest to an LLVM module with one function: `run(call)`, all steps of all rows.

The module's loops are those of the nest; each tile is a function of its own (`tile`). Offsets and sizes are numbers in
the code. No text from outside becomes part of it: functions have names of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from llvmlite import ir

from shoal.recurrent.llvm.dots import HEADER
from shoal.recurrent.llvm.layout import ROW_BYTES, Call, Layout, Row
from shoal.recurrent.llvm.tile import TileEmitter
from shoal.recurrent.llvm.vectors import F32, I8, I32, I64, PTR, VOID, Value, Vectors
from shoal.recurrent.nest.ir import Axis, Convert, Loop, Mean, Order, Reduce, Vector
from shoal.recurrent.numbers import LEAST, NumberType

ENTRY = "run"
_FLUSH = 0x8040
"""Of MXCSR: subnormal results and operands count as zero, so that a state that fades away costs no time."""


def emit(layout: Layout) -> str:
    """The module's text."""
    return _Module(layout).text()


class _Module:
    def __init__(self, layout: Layout) -> None:
        self.layout, self.nest, self.target = layout, layout.nest, layout.target
        self.module = ir.Module(name="recurrent")
        self.module.triple = self.target.triple
        self.function = ir.Function(self.module, ir.FunctionType(VOID, [PTR]), ENTRY)
        self.b = ir.IRBuilder(self.function.append_basic_block())
        self.v = Vectors(self.module, self.b, self.target.lanes, fused=self.target.fused)
        self._names = 0

    def text(self) -> str:
        v, call = self.v, self.function.args[0]
        self.steps, self.rows = (v.load(v.at(call, 8 * one), I64) for one in (Call.STEPS, Call.ROWS))
        self.records, self.constants = (v.load(v.at(call, 8 * one), PTR) for one in (Call.RECORDS, Call.CONSTANTS))
        before = self._flush_subnormals()
        if self.layout.input_bytes:
            self._convert_inputs()
        for phase in self.nest.phases:
            if phase.axis is Axis.UNIT:
                self._projection(phase)
            else:
                self._recurrence(phase)
        if before is not None:
            self.b.call(self._control("llvm.x86.sse.ldmxcsr"), [before])
        self.b.ret_void()
        return str(self.module)

    # Loops

    @contextmanager
    def _range(self, count: Value, step: int = 1, start: Value | None = None) -> Iterator[Value]:
        """A loop over start, start + step, ... below count; what is in the block is its body."""
        b, first = self.b, start if start is not None else ir.Constant(I64, 0)
        before = b.block
        head, body, after = (self.function.append_basic_block() for _ in range(3))
        b.branch(head)
        b.position_at_end(head)
        index = b.phi(I64)
        index.add_incoming(first, before)
        b.cbranch(b.icmp_signed("<", index, count), body, after)
        b.position_at_end(body)
        yield index
        following = b.add(index, ir.Constant(I64, step))
        index.add_incoming(following, b.block)
        b.branch(head)
        b.position_at_end(after)

    def _record(self, row: Value) -> Value:
        return self.v.at(self.records, self.b.mul(row, ir.Constant(I64, ROW_BYTES)))

    def _name(self, what: str) -> str:
        self._names += 1
        return f"{what}.{self._names}"

    # Phases

    def _projection(self, phase: Loop) -> None:
        """The hoisted products: for each block of units, for each row, some steps at once."""
        steps = phase.body[0]
        assert isinstance(steps, Loop)
        assert isinstance(phase.extent, int)
        reduce = steps.body[0]
        assert isinstance(reduce, Reduce)
        sizes = _tile_sizes(steps.step)
        tiles = [
            TileEmitter(self.module, self.layout, self._name("project"), phase.step, size, steps.step).emit_projection(
                reduce
            )
            for size in sizes
        ]
        blocks = self.layout.padded(phase.extent) // self.target.lanes
        v, b = self.v, self.b
        with self._range(ir.Constant(I64, blocks)) as block, self._range(self.rows) as row:
            record = self._record(row)
            x, x_step = (v.load(v.at(record, 8 * one), I64) for one in (Row.X, Row.X_STEP))
            projected = v.load(v.at(record, 8 * Row.PROJECTED), I64)

            def call(index: int, step: Value) -> None:
                at = b.add(projected, b.mul(step, ir.Constant(I64, self.layout.projected_bytes)))
                b.store(b.add(x, b.mul(step, x_step)), v.at(record, 8 * Row.X))
                b.store(at, v.at(record, 8 * Row.PROJECTED))
                b.call(tiles[index], [self.constants, record, block])

            self._tiled(self.steps, sizes, call)
            b.store(x, v.at(record, 8 * Row.X))
            b.store(projected, v.at(record, 8 * Row.PROJECTED))

    def _tiled(self, count: Value, sizes: list[int], call: Callable[[int, Value], None]) -> None:
        """Cover `count` with tiles of these sizes, the largest first."""
        start: Value = ir.Constant(I64, 0)
        for index, size in enumerate(sizes):
            end = self.b.sub(count, self.b.srem(self.b.sub(count, start), ir.Constant(I64, size)))
            with self._range(end, size, start) as at:
                call(index, at)
            start = end

    def _recurrence(self, phase: Loop) -> None:
        with self._range(self.steps) as step:
            for node in phase.body:
                assert isinstance(node, Loop)
                if node.axis is Axis.UNIT:
                    self._sweep(node, step)
                else:
                    self._whole_vectors(node)
            with self._range(self.rows) as row:
                self._move_on(self._record(row))

    def _sweep(self, loop: Loop, step: Value) -> None:
        """One pass over the units of a stage."""
        rows = loop.body[0]
        assert isinstance(rows, Loop)
        extent = loop.extent
        assert isinstance(extent, int)
        output = self.nest.cell.states[0]
        full, rest = divmod(self.layout.padded(extent) // self.target.lanes, loop.step)
        sizes = _tile_sizes(rows.step)

        def tiles(units: int) -> list[ir.Function]:
            return [
                TileEmitter(self.module, self.layout, self._name("stage"), units, size, rows.step).emit_recurrence(
                    rows.body, output=output, size=extent
                )
                for size in sizes
            ]

        def call_all(made: list[ir.Function], block: Value) -> None:
            self._tiled(
                self.rows,
                sizes,
                lambda index, row: self.b.call(made[index], [self.constants, self._record(row), block]),
            )

        b = self.b
        if full:
            made = tiles(loop.step)
            with self._range(ir.Constant(I64, full)) as index:
                at = index
                if loop.order is Order.ALTERNATE:
                    odd = b.trunc(step, ir.IntType(1))
                    at = b.select(odd, b.sub(ir.Constant(I64, full - 1), index), index)
                call_all(made, b.mul(at, ir.Constant(I64, loop.step)))
        if rest:
            call_all(tiles(rest), ir.Constant(I64, full * loop.step))

    def _move_on(self, record: Value) -> None:
        """The next step reads what this one wrote."""
        v, b = self.v, self.b

        def field(which: Row) -> Value:
            return v.load(v.at(record, 8 * which), I64)

        state, following = field(Row.STATE), field(Row.NEXT)
        b.store(following, v.at(record, 8 * Row.STATE))
        b.store(state, v.at(record, 8 * Row.NEXT))
        for place, by in ((Row.X, field(Row.X_STEP)), (Row.Y, field(Row.Y_STEP))):
            b.store(b.add(field(place), by), v.at(record, 8 * place))
        projected = b.add(field(Row.PROJECTED), ir.Constant(I64, self.layout.projected_bytes))
        b.store(projected, v.at(record, 8 * Row.PROJECTED))

    # Whole vectors: conversion and means

    def _whole_vectors(self, loop: Loop) -> None:
        layout, v = self.layout, self.v
        wanted = [one for one in loop.body if isinstance(one, Mean) or layout.dot.converts]
        if not wanted:
            return
        with self._range(self.rows) as row:
            record = self._record(row)
            base = {
                "state": v.load(v.at(record, 8 * Row.NEXT), PTR),
                "scratch": v.load(v.at(record, 8 * Row.SCRATCH), PTR),
            }
            for node in wanted:
                assert isinstance(node, Convert | Mean)
                vector = node.vector
                table = layout.states if vector.kind == "state" else layout.scratch
                source = v.at(base[vector.kind], table[vector.name])
                if isinstance(node, Mean):
                    self._mean(source, vector, v.at(base["scratch"], layout.means[id(node.node)]))
                else:
                    place = v.at(base[vector.kind], layout.converted[vector.kind, vector.name])
                    self._convert(source, vector.size, place)

    def _convert_inputs(self) -> None:
        v, b = self.v, self.b
        with self._range(self.rows) as row:
            record = self._record(row)
            source, source_step, x = (
                v.load(v.at(record, 8 * one), I64) for one in (Row.SOURCE, Row.SOURCE_STEP, Row.X)
            )
            with self._range(self.steps) as step:
                at = b.inttoptr(b.add(source, b.mul(step, source_step)), PTR)
                place = b.inttoptr(b.add(x, b.mul(step, ir.Constant(I64, self.layout.input_bytes))), PTR)
                self._convert(at, self.nest.sizes.input, place)

    def _blocks(self, size: int) -> Value:
        return ir.Constant(I64, self.layout.padded(size) // self.target.lanes)

    def _mean(self, source: Value, vector: Vector, place: Value) -> None:
        """What fills up the vector is zero."""
        total = self._accumulate(source, vector.size, self.v.number(0.0), lambda sum_, value: self.b.fadd(sum_, value))
        whole = self._across(total, lambda a, b: self.b.fadd(a, b))
        self.b.store(self.b.fdiv(whole, ir.Constant(F32, float(vector.size))), place)

    def _accumulate(self, source: Value, size: int, start: Value, fold: Callable[[Value, Value], Value]) -> Value:
        b, v = self.b, self.v
        before = b.block
        loop, after = self.function.append_basic_block(), self.function.append_basic_block()
        b.branch(loop)
        b.position_at_end(loop)
        index, total = b.phi(I64), b.phi(start.type)
        index.add_incoming(ir.Constant(I64, 0), before)
        total.add_incoming(start, before)
        made = fold(total, v.load(v.at(source, b.mul(index, ir.Constant(I64, 4 * v.lanes)))))
        following = b.add(index, ir.Constant(I64, 1))
        index.add_incoming(following, loop)
        total.add_incoming(made, loop)
        b.cbranch(b.icmp_signed("<", following, self._blocks(size)), loop, after)
        b.position_at_end(after)
        return made

    def _across(self, vector: Value, fold: Callable[[Value, Value], Value]) -> Value:
        """All lanes folded into one, in halves."""
        b, width = self.b, self.v.lanes
        nothing = ir.Constant(vector.type, ir.Undefined)
        while width > 1:
            width //= 2
            picks = [ir.Constant(I32, lane + width if lane < width else 0) for lane in range(self.v.lanes)]
            vector = fold(vector, b.shuffle_vector(vector, nothing, ir.Constant(self.v.ints, picks)))
        return b.extract_element(vector, ir.Constant(I32, 0))

    def _convert(self, source: Value, size: int, place: Value) -> None:
        if self.layout.kind in (NumberType.INT8, NumberType.INT4):
            self._to_int8(source, size, place)
        else:
            self._to_bf16(source, size, place)

    def _to_int8(self, source: Value, size: int, place: Value) -> None:
        """Scale by the largest magnitude. As integers, the bits of magnitudes are in the same order, and what is not a
        number is above all of them."""
        b, v = self.b, self.v
        positive = v.integer(0x7FFFFFFF)

        def larger(a: Value, c: Value) -> Value:
            return b.select(b.icmp_signed(">", a, c), a, c)

        found = self._accumulate(
            source, size, v.integer(0), lambda most, value: larger(most, b.and_(v.bits(value), positive))
        )
        bits = self._across(found, larger)
        largest = b.bitcast(bits, F32)
        infinite = b.icmp_signed(">=", bits, ir.Constant(I32, 0x7F800000))
        tiny = b.fcmp_ordered("<", largest, ir.Constant(F32, float(LEAST)))
        usable = b.select(b.or_(tiny, infinite), ir.Constant(F32, 1.0), largest)
        inverse = b.fdiv(ir.Constant(F32, 127.0), usable)
        inverse = b.select(tiny, ir.Constant(F32, 0.0), inverse)
        scale = b.fdiv(largest, ir.Constant(F32, 127.0))
        scale = b.select(infinite, ir.Constant(F32, float("nan")), scale)
        b.store(scale, place)
        factor = v.splat(inverse)
        bytes_ = ir.VectorType(I8, v.lanes)
        with self._range(self._blocks(size)) as index:
            value = b.fmul(v.load(v.at(source, b.mul(index, ir.Constant(I64, 4 * v.lanes)))), factor)
            whole = v.call(f"llvm.rint.v{v.lanes}f32", v.floats, [value])
            within = b.fcmp_ordered("<=", v.call(f"llvm.fabs.v{v.lanes}f32", v.floats, [whole]), v.number(127.0))
            integers = b.fptosi(b.select(within, whole, v.number(0.0)), v.ints)
            short = b.trunc(integers, bytes_)
            if self.layout.dot.offset:
                short = b.xor(short, ir.Constant(bytes_, [ir.Constant(I8, -128)] * v.lanes))
            b.store(short, v.at(v.at(place, HEADER), b.mul(index, ir.Constant(I64, v.lanes))), align=4)

    def _to_bf16(self, source: Value, size: int, place: Value) -> None:
        b, v = self.b, self.v
        shorts = ir.VectorType(ir.IntType(16), v.lanes)
        with self._range(self._blocks(size)) as index:
            value = v.load(v.at(source, b.mul(index, ir.Constant(I64, 4 * v.lanes))))
            bits = v.bits(value)
            even = b.and_(b.lshr(bits, v.integer(16)), v.integer(1))
            rounded = b.lshr(b.add(b.add(bits, even), v.integer(0x7FFF)), v.integer(16))
            number = b.fcmp_ordered("ord", value, value)
            short = b.trunc(b.select(number, rounded, v.integer(0x7FC0)), shorts)
            b.store(short, v.at(v.at(place, HEADER), b.mul(index, ir.Constant(I64, 2 * v.lanes))), align=4)

    # Subnormal numbers

    def _control(self, name: str) -> ir.Function:
        found = self.module.globals.get(name)
        return found or ir.Function(self.module, ir.FunctionType(VOID, [PTR]), name)

    def _flush_subnormals(self) -> Value | None:
        """The place that keeps the processor's modes for the caller; None where they stay as they are."""
        if not self.target.x86:
            return None
        b = self.b
        before, during = b.alloca(I32), b.alloca(I32)
        b.call(self._control("llvm.x86.sse.stmxcsr"), [before])
        b.store(b.or_(b.load(before, typ=I32), ir.Constant(I32, _FLUSH)), during)
        b.call(self._control("llvm.x86.sse.ldmxcsr"), [during])
        return before


def _tile_sizes(largest: int) -> list[int]:
    """The sizes of tiles that cover any number of rows: the largest, then powers of two down to one."""
    return [largest, *(size for size in (16, 8, 4, 2, 1) if size < largest)]
