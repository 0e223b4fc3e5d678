"""One tile of a stage: some vectors of units, for some rows, from the dot products to the stores, in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from llvmlite import ir

from shoal.recurrent.cells.symbols import Expression
from shoal.recurrent.llvm.layout import ROW_BYTES, Group, Layout, Row
from shoal.recurrent.llvm.vectors import I64, PTR, VOID, Value, Vectors
from shoal.recurrent.nest.ir import Node, Pointwise, Reduce, Store


@dataclass(frozen=True)
class TileRow:
    """The addresses of one row in a tile."""

    state: Value
    next: Value
    x: Value
    y: Value
    projected: Value
    scratch: Value


Keep = Callable[[int, int, Expression, Value], None]
"""Takes the sum of a row, a block of units and a dot."""


class TileEmitter:
    """Writes the function of one tile: `function(constants, records, block)` for `units` blocks from `block` on and
    `rows` records. A function of its own keeps LLVM's register allocation to one loop. `whole`: the rows of the
    schedule's tile; one with fewer rows sums more gates in one pass, so that it has as many sums."""

    def __init__(self, module: ir.Module, layout: Layout, name: str, units: int, rows: int, whole: int) -> None:
        self.layout, self.units, self.rows, self._whole = layout, units, rows, whole
        kind = ir.FunctionType(VOID, [PTR, PTR, I64])
        self.function = ir.Function(module, kind, name)
        self.function.linkage = "internal"
        self.function.attributes.add("noinline")
        self.constants, self.records, self.block = self.function.args
        self.constants.add_attribute("noalias")
        self.b = ir.IRBuilder(self.function.append_basic_block())
        self.v = Vectors(module, self.b, layout.target.lanes, fused=layout.target.fused)

    def emit_recurrence(self, body: Sequence[Node], *, output: str, size: int) -> ir.Function:
        """A tile of the recurrence. `output`: the state that is also written to the outputs."""
        reduces = [node for node in body if isinstance(node, Reduce)]
        pointwise = [node for node in body if isinstance(node, Pointwise)]
        sums = _Sums(self, [dot for node in reduces for dot in node.dots])
        for node in reduces:
            vectors = [self._operand(node, self._row(index)) for index in range(self.rows)]
            self._reduce(self.layout.groups[node], vectors, sums.keep)
        with self._each_row() as (index, addresses):
            for work in pointwise:
                for unit in range(self.units):
                    self._pointwise(work, addresses, unit, sums.of(index, unit), output, size)
        self.b.ret_void()
        return self.function

    @contextmanager
    def _each_row(self) -> Iterator[tuple[Value, TileRow]]:
        """The body for the one row, or a loop over rows: the element-wise work is once in the code."""
        if self.rows == 1:
            yield ir.Constant(I64, 0), self._row(0)
            return
        b, before = self.b, self.b.block
        loop, after = self.function.append_basic_block(), self.function.append_basic_block()
        b.branch(loop)
        b.position_at_end(loop)
        index = b.phi(I64)
        index.add_incoming(ir.Constant(I64, 0), before)
        yield index, self._row(index)
        following = b.add(index, ir.Constant(I64, 1))
        index.add_incoming(following, b.block)
        b.cbranch(b.icmp_unsigned("<", following, ir.Constant(I64, self.rows)), loop, after)
        b.position_at_end(after)

    def emit_projection(self, reduce: Reduce) -> ir.Function:
        """A tile of the hoisted product: `rows` time steps of the one row whose record it gets."""
        first = self._row(0)
        step = self.v.load(self.v.at(self.records, 8 * Row.X_STEP), I64)
        vectors = [self.v.at(first.x, self.b.mul(step, ir.Constant(I64, index))) for index in range(self.rows)]

        def keep(index: int, unit: int, dot: Expression, value: Value) -> None:
            place = self.v.at(first.projected, index * self.layout.projected_bytes)
            self.v.store(value, self._projected(place, dot.name, unit))

        self._reduce(self.layout.groups[reduce], vectors, keep)
        self.b.ret_void()
        return self.function

    def _row(self, index: int | Value) -> TileRow:
        offset = index * ROW_BYTES if isinstance(index, int) else self.b.mul(index, ir.Constant(I64, ROW_BYTES))
        record = self.v.at(self.records, offset)

        def read(which: Row) -> Value:
            return self.v.load(self.v.at(record, 8 * which), PTR)

        return TileRow(*map(read, (Row.STATE, Row.NEXT, Row.X, Row.Y, Row.PROJECTED, Row.SCRATCH)))

    def _operand(self, reduce: Reduce, row: TileRow) -> Value:
        vector = reduce.operand
        if vector.kind == "input":
            return row.x
        base, table = (row.state, self.layout.states) if vector.kind == "state" else (row.scratch, self.layout.scratch)
        offset = self.layout.converted.get((vector.kind, vector.name), table[vector.name])
        return self.v.at(base, offset)

    def _reduce(self, group: Group, vectors: Sequence[Value], keep: Keep) -> None:
        """The dot products of each row and block of units."""
        reduce = group.reduce
        count = len(reduce.dots)
        most = max(1, reduce.gates * self._whole // self.rows) if reduce.gates else count
        at_once = -(-count // -(-count // most))  # passes of about equal size
        for first in range(0, count, at_once):
            gates = range(first, min(first + at_once, count))
            totals = iter(self._pass(group, vectors, gates))
            for row, vector in enumerate(vectors):
                for unit in range(self.units):
                    scales = self._block_of(group.scale_block, group.scales, unit)
                    for gate in gates:
                        place = self.v.at(scales, gate * 8 * self.v.lanes)
                        total = self.layout.dot.finish(self.v, next(totals), place, vector)
                        keep(row, unit, reduce.dots[gate], total)

    def _pass(self, group: Group, vectors: Sequence[Value], gates: range) -> list[Value]:
        """The sums of some gates: for each vector, each block of units, each gate."""
        v, b, dot = self.v, self.b, self.layout.dot
        streams = [self._block_of(group.block, group.offset, unit) for unit in range(self.units)]
        width = len(group.reduce.dots) * dot.bytes

        def step(totals: Sequence[Value], k: Value) -> list[Value]:
            at = b.mul(k, ir.Constant(I64, width))
            places = [v.at(stream, at) for stream in streams]
            weights = [v.at(place, gate * dot.bytes) for place in places for gate in gates]
            made: list[Value] = [None] * len(totals)
            if len(vectors) > len(weights):  # the weights stay in registers, and each row's piece is read when needed
                for row, vector in enumerate(vectors):
                    piece = dot.broadcast(v, vector, k)
                    for index, weight in enumerate(weights, row * len(weights)):
                        made[index] = dot.add(v, totals[index], weight, piece)
                return made
            if len(vectors) == 1:
                return dot.add_each(v, totals, weights, dot.broadcast(v, vectors[0], k))
            pieces = [dot.broadcast(v, vector, k) for vector in vectors]
            for at_weight, weight in enumerate(weights):
                for row, piece in enumerate(pieces):
                    index = row * len(weights) + at_weight
                    made[index] = dot.add(v, totals[index], weight, piece)
            return made

        unroll = group.reduce.unroll if dot.unrolls else 1
        totals = [dot.zero(v)] * (len(vectors) * self.units * len(gates))
        turns, rest = divmod(group.groups, unroll)
        if turns:
            totals = self._loop(turns, unroll, totals, step)
        for left in range(rest):
            totals = step(totals, ir.Constant(I64, turns * unroll + left))
        return totals

    def _loop(
        self, turns: int, unroll: int, totals: Sequence[Value], step: Callable[[Sequence[Value], Value], list[Value]]
    ) -> list[Value]:
        b, before = self.b, self.b.block
        loop, after = self.function.append_basic_block(), self.function.append_basic_block()
        b.branch(loop)
        b.position_at_end(loop)
        k = b.phi(I64)
        k.add_incoming(ir.Constant(I64, 0), before)
        phis = []
        for total in totals:
            phi = b.phi(total.type)
            phi.add_incoming(total, before)
            phis.append(phi)
        made: list[Value] = list(phis)
        for turn in range(unroll):
            made = step(made, b.add(k, ir.Constant(I64, turn)))
        following = b.add(k, ir.Constant(I64, unroll))
        k.add_incoming(following, loop)
        for phi, total in zip(phis, made, strict=True):
            phi.add_incoming(total, loop)
        b.cbranch(b.icmp_unsigned("<", following, ir.Constant(I64, turns * unroll)), loop, after)
        b.position_at_end(after)
        return made

    def _times(self, size: int, unit: int) -> Value:
        """The offset of one block among blocks of `size` bytes."""
        return self.b.mul(self.b.add(self.block, ir.Constant(I64, unit)), ir.Constant(I64, size))

    def _block_of(self, size: int, offset: int, unit: int) -> Value:
        """The address of a block in the constants."""
        return self.v.at(self.constants, self.b.add(self._times(size, unit), ir.Constant(I64, offset)))

    def _units(self, base: Value, offset: int, unit: int) -> Value:
        """The address of a block of units in an fp32 vector."""
        return self.v.at(base, self.b.add(self._times(4 * self.v.lanes, unit), ir.Constant(I64, offset)))

    def _projected(self, base: Value, name: str, unit: int) -> Value:
        offset, block, own = self.layout.projected[name]
        return self.v.at(base, self.b.add(self._times(block, unit), ir.Constant(I64, offset + own)))

    def _pointwise(
        self, node: Pointwise, row: TileRow, unit: int, dots: Mapping[Expression, Value], output: str, size: int
    ) -> None:
        layout, v = self.layout, self.v
        loads = dict(node.loads)
        values: dict[Expression, Value] = {}
        for one in node.order():
            if one in dots:
                values[one] = dots[one]
            elif one in loads:
                values[one] = v.load(self._units(row.scratch, layout.scratch[loads[one]], unit))
            elif one.op == "dot":
                values[one] = v.load(self._projected(row.projected, one.name, unit))
            elif one.op == "mean":
                values[one] = v.splat(v.load(v.at(row.scratch, layout.means[id(one)]), v.floats.element))
            elif one.args:
                values[one] = v.apply(one.op, [values[arg] for arg in one.args])
            elif one.op == "number":
                values[one] = v.number(one.value)
            elif one.op == "parameter":
                values[one] = v.load(self._units(self.constants, layout.parameters[one.name], unit))
            else:
                values[one] = v.load(self._units(row.state, layout.states[one.name], unit))
        for store in node.stores:
            self._store(store, values[store.value], row, unit, output, size)

    def _store(self, store: Store, value: Value, row: TileRow, unit: int, output: str, size: int) -> None:
        layout, v = self.layout, self.v
        if size % v.lanes:  # the units that fill up the last vector stay zero: products and maxima read them
            mask = v.load(self._units(self.constants, layout.masks[size], unit), v.ints)
            value = v.from_bits(self.b.and_(v.bits(value), mask))
        if store.kind == "scratch":
            v.store(value, self._units(row.scratch, layout.scratch[store.name], unit))
            return
        v.store(value, self._units(row.next, layout.states[store.name], unit))
        if store.name == output:
            v.store(value, self._units(row.y, 0, unit))


class _Sums:
    """The sums of a tile: in registers for one row; those of more rows wait on the stack, in the nearest cache."""

    def __init__(self, tile: TileEmitter, dots: Sequence[Expression]) -> None:
        self._tile, self._dots, self._width = tile, dots, 4 * tile.v.lanes
        self._values: dict[tuple[int, Expression], Value] = {}
        self._row = tile.units * len(dots) * self._width
        count = tile.rows * tile.units * len(dots)
        self._place = None if tile.rows == 1 else tile.b.alloca(tile.v.floats, count)

    def keep(self, row: int, unit: int, dot: Expression, value: Value) -> None:
        if self._place is None:
            self._values[unit, dot] = value
        else:
            self._tile.v.store(value, self._tile.v.at(self._place, row * self._row + self._offset(unit, dot)))

    def of(self, row: Value, unit: int) -> dict[Expression, Value]:
        """The sums of a block of units of a row."""
        if self._place is None:
            return {dot: self._values[unit, dot] for dot in self._dots}
        v = self._tile.v
        start = v.at(self._place, v.b.mul(row, ir.Constant(I64, self._row)))
        return {dot: v.load(v.at(start, self._offset(unit, dot))) for dot in self._dots}

    def _offset(self, unit: int, dot: Expression) -> int:
        return (unit * len(self._dots) + self._dots.index(dot)) * self._width
