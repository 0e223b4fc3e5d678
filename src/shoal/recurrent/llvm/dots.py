"""Dot products by number type and target: how weights and vectors lie in memory, and the inner step of a reduction.

A block of weights has, for each group of `pack` elements of the vector, one register of `lanes` units for each gate: a
stream that is read once, in order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from llvmlite import ir

from shoal.recurrent.llvm.target import Bf16Dot, Int8Dot, Target
from shoal.recurrent.llvm.vectors import F32, I8, I32, Value, Vectors
from shoal.recurrent.numbers import GROUP, NumberType

HEADER = 64
"""Bytes before a rounded vector; its scale is in the first four."""


class Dot(ABC):
    """`pack`: elements of the vector in one group. `converts`: the vector is kept in another type than fp32.
    `bytes`: of one register of weights."""

    pack: int
    converts: bool
    unrolls = True
    """Several groups may make one turn of a loop; else one is long enough."""
    offset = False
    """The bytes of a converted vector are kept with 128 added."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.bytes = 4 * target.lanes

    def vector_bytes(self, elements: int) -> int:
        """The size of a converted vector of this number of elements, rounded up to whole registers."""
        return HEADER + -(-elements // self.target.lanes) * self.target.lanes * self.element_bytes

    element_bytes = 4

    @abstractmethod
    def zero(self, v: Vectors) -> Value:
        """An empty sum."""

    @abstractmethod
    def broadcast(self, v: Vectors, vector: Value, group: Value) -> Sequence[Value]:
        """One group of the vector, in all lanes."""

    @abstractmethod
    def add(self, v: Vectors, total: Value, weights: Value, group: Sequence[Value]) -> Value:
        """total + weights * group; `weights` is the address of one register."""

    def add_each(
        self, v: Vectors, totals: Sequence[Value], weights: Sequence[Value], group: Sequence[Value]
    ) -> list[Value]:
        """`add` of several registers of weights to the sums of one row."""
        return [self.add(v, total, place, group) for total, place in zip(totals, weights, strict=True)]

    def finish(self, v: Vectors, total: Value, scales: Value, vector: Value) -> Value:  # noqa: ARG002
        """The sum as fp32. `scales`: the address of the units' scales."""
        return total


class Fp32(Dot):
    pack, converts = 1, False

    def zero(self, v: Vectors) -> Value:
        return v.number(0.0)

    def broadcast(self, v: Vectors, vector: Value, group: Value) -> Sequence[Value]:
        return [v.splat(v.load(v.at(vector, v.b.mul(group, ir.Constant(group.type, 4))), F32))]

    def add(self, v: Vectors, total: Value, weights: Value, group: Sequence[Value]) -> Value:
        return v.fma(v.load(weights), group[0], total)


class WidenedBf16(Dot):
    """Weights of 16 bits, vectors of fp32: two steps of an fp32 sum for each register."""

    pack, converts = 2, False

    def zero(self, v: Vectors) -> Value:
        return v.number(0.0)

    def broadcast(self, v: Vectors, vector: Value, group: Value) -> Sequence[Value]:
        at = v.at(vector, v.b.mul(group, ir.Constant(group.type, 8)))
        return [v.splat(v.load(at, F32)), v.splat(v.load(v.at(at, 4), F32))]

    def add(self, v: Vectors, total: Value, weights: Value, group: Sequence[Value]) -> Value:
        pairs = v.load(weights, v.ints)
        even = v.from_bits(v.b.shl(pairs, v.integer(16)))
        odd = v.from_bits(v.b.and_(pairs, v.integer(-65536)))
        return v.fma(odd, group[1], v.fma(even, group[0], total))


class _BFloat(ir.types.Type):  # type: ignore[misc]  # llvmlite has no types
    """LLVM's bfloat, which llvmlite has no class for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


class NativeBf16(Dot):
    pack, converts, element_bytes = 2, True, 2

    def zero(self, v: Vectors) -> Value:
        return v.number(0.0)

    def broadcast(self, v: Vectors, vector: Value, group: Value) -> Sequence[Value]:
        at = v.at(v.at(vector, HEADER), v.b.mul(group, ir.Constant(group.type, 4)))
        return [v.b.bitcast(v.splat(v.load(at, I32)), self._halves())]

    def add(self, v: Vectors, total: Value, weights: Value, group: Sequence[Value]) -> Value:
        return v.call("llvm.x86.avx512bf16.dpbf16ps.512", v.floats, [total, v.load(weights, self._halves()), group[0]])

    def _halves(self) -> ir.VectorType:
        return ir.VectorType(_BFloat(), 2 * self.target.lanes)


class Int8(Dot):
    """Sums of 32 bits are exact, so every target gives the same integers. Where the instruction takes one operand
    without a sign, the vector is kept with 128 added, and `corrections` takes off what that adds."""

    pack, converts, element_bytes = 4, True, 1

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.offset = target.unsigned

    def zero(self, v: Vectors) -> Value:
        return v.integer(0)

    def broadcast(self, v: Vectors, vector: Value, group: Value) -> Sequence[Value]:
        at = v.at(v.at(vector, HEADER), v.b.mul(group, ir.Constant(group.type, 4)))
        four = v.splat(v.load(at, I32))
        if self.target.int8 is not Int8Dot.PAIRS:
            return [four]
        quads = v.b.bitcast(four, self._bytes())
        return [quads, v.call(f"llvm.abs.v{4 * v.lanes}i8", self._bytes(), [quads, ir.Constant(ir.IntType(1), 0)])]

    def add(self, v: Vectors, total: Value, weights: Value, group: Sequence[Value]) -> Value:
        match self.target.int8:
            case Int8Dot.VNNI_512 | Int8Dot.VNNI_256:
                width = 512 if self.target.int8 is Int8Dot.VNNI_512 else 256
                quads = [v.b.bitcast(group[0], self._bytes()), v.load(weights, self._bytes())]
                return v.call(f"llvm.x86.avx512.vpdpbusd.{width}", v.ints, [total, *quads])
            case Int8Dot.PAIRS:
                signed = v.call("llvm.x86.avx2.psign.b", self._bytes(), [v.load(weights, self._bytes()), group[0]])
                shorts = ir.VectorType(ir.IntType(16), 16)
                pairs = v.call("llvm.x86.avx2.pmadd.ub.sw", shorts, [group[1], signed])
                ones = ir.Constant(shorts, [ir.Constant(ir.IntType(16), 1)] * 16)
                return v.b.add(total, v.call("llvm.x86.avx2.pmadd.wd", v.ints, [pairs, ones]))
            case Int8Dot.NEON:
                quads = [v.load(weights, self._bytes()), v.b.bitcast(group[0], self._bytes())]
                return v.call("llvm.aarch64.neon.sdot.v4i32.v16i8", v.ints, [total, *quads])
        return _plain(v, total, v.load(weights, v.ints), group[0])

    def finish(self, v: Vectors, total: Value, scales: Value, vector: Value) -> Value:
        if self.target.unsigned:
            total = v.b.sub(total, v.load(v.at(scales, 4 * v.lanes), v.ints))
        scale = v.b.fmul(v.load(scales), v.splat(v.load(vector, F32)))
        return v.b.fmul(v.b.sitofp(total, v.floats), scale)

    def _bytes(self) -> ir.VectorType:
        return ir.VectorType(I8, 4 * self.target.lanes)


def _plain(v: Vectors, total: Value, weights: Value, four: Value) -> Value:
    """Byte by byte in 32-bit lanes, with shifts that carry the sign."""
    for byte in range(4):
        left, right = v.integer(24 - 8 * byte), v.integer(24)
        w, h = (v.b.ashr(v.b.shl(one, left), right) for one in (weights, four))
        total = v.b.add(total, v.b.mul(w, h))
    return total


class Int4(Dot):
    """Weights with 8 added, so that they are from 1 to 15 and two share a byte: `GROUP` elements of `lanes` units, then
    the units' scales. What the 8 adds is the same for all units, and is taken off each group's sum."""

    pack, converts, element_bytes, unrolls = GROUP, True, 1, False

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.bytes = (GROUP // 2 + 4) * target.lanes
        self._bytes = ir.VectorType(I8, 4 * target.lanes)
        self._shorts = ir.VectorType(ir.IntType(16), 2 * target.lanes)

    def vector_bytes(self, elements: int) -> int:
        return HEADER + -(-elements // GROUP) * GROUP

    def zero(self, v: Vectors) -> Value:
        return v.number(0.0)

    def broadcast(self, v: Vectors, vector: Value, group: Value) -> Sequence[Value]:
        """The address of the group: its elements stay in the nearest cache."""
        return [v.at(v.at(vector, HEADER), v.b.mul(group, ir.Constant(group.type, GROUP)))]

    def add(self, v: Vectors, total: Value, weights: Value, group: Sequence[Value]) -> Value:
        return self.add_each(v, [total], [weights], group)[0]

    def add_each(
        self, v: Vectors, totals: Sequence[Value], weights: Sequence[Value], group: Sequence[Value]
    ) -> list[Value]:
        """Of all weights one register after the other: each piece of the vector is read once, and not kept."""
        nibble = ir.Constant(self._bytes, [ir.Constant(I8, 15)] * (4 * v.lanes))
        four = ir.Constant(self._bytes, [ir.Constant(I8, 4)] * (4 * v.lanes))
        eights = ir.Constant(self._bytes, [ir.Constant(I8, 8)] * (4 * v.lanes))
        sums, added = [self._empty(v)] * len(weights), self._empty(v)
        for register in range(GROUP // 8):
            low, high = (self._quad(v, group[0], 2 * register + part) for part in (0, 1))
            for quad in (low, high):
                added = self._product(v, added, eights, quad)
            for at, place in enumerate(weights):
                both = v.load(v.at(place, 4 * v.lanes * register), self._bytes)
                sums[at] = self._product(v, sums[at], v.b.and_(both, nibble), low)
                sums[at] = self._product(v, sums[at], v.b.and_(v.b.lshr(both, four), nibble), high)
        too_much = self._whole(v, added)
        return [
            v.fma(v.b.fsub(self._whole(v, one), too_much), v.load(v.at(place, GROUP // 2 * v.lanes)), total)
            for one, place, total in zip(sums, weights, totals, strict=True)
        ]

    def _quad(self, v: Vectors, at: Value, index: int) -> Value:
        return v.b.bitcast(v.splat(v.load(v.at(at, 4 * index), I32)), self._bytes)

    def _empty(self, v: Vectors) -> Value:
        """AVX2 sums the products of a group in 16 bits, all others in 32."""
        return ir.Constant(self._shorts, None) if self.target.int8 is Int8Dot.PAIRS else v.integer(0)

    def _product(self, v: Vectors, total: Value, weights: Value, four: Value) -> Value:
        """Of bytes without a sign and elements of the vector."""
        match self.target.int8:
            case Int8Dot.PAIRS:
                return v.b.add(total, v.call("llvm.x86.avx2.pmadd.ub.sw", self._shorts, [weights, four]))
            case Int8Dot.VNNI_512 | Int8Dot.VNNI_256:
                width = 512 if self.target.int8 is Int8Dot.VNNI_512 else 256
                return v.call(f"llvm.x86.avx512.vpdpbusd.{width}", v.ints, [total, weights, four])
            case Int8Dot.NEON:
                return v.call("llvm.aarch64.neon.sdot.v4i32.v16i8", v.ints, [total, weights, four])
        return _plain(v, total, v.b.bitcast(weights, v.ints), v.b.bitcast(four, v.ints))

    def _whole(self, v: Vectors, total: Value) -> Value:
        """A group's sum as fp32."""
        if self.target.int8 is Int8Dot.PAIRS:
            ones = ir.Constant(self._shorts, [ir.Constant(ir.IntType(16), 1)] * (2 * v.lanes))
            total = v.call("llvm.x86.avx2.pmadd.wd", v.ints, [total, ones])
        return v.b.sitofp(total, v.floats)

    def finish(self, v: Vectors, total: Value, scales: Value, vector: Value) -> Value:  # noqa: ARG002
        return v.b.fmul(total, v.splat(v.load(vector, F32)))


def dot_of(kind: NumberType, target: Target) -> Dot:
    """The dot product of a number type on a target."""
    if kind is NumberType.FP32:
        return Fp32(target)
    if kind is NumberType.INT8:
        return Int8(target)
    if kind is NumberType.INT4:
        return Int4(target)
    return NativeBf16(target) if target.bf16 is Bf16Dot.NATIVE else WidenedBf16(target)
