"""Arithmetic on vectors of fp32: the operations of cells as LLVM instructions.

exp and log are the polynomials of the Cephes library (S. Moshier) at fp32's precision; sigmoid and tanh build on them.
What is not a number stays so, and infinities come out as the functions' limits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

Value = Any
I8, I32, I64, F32, VOID, PTR = (
    ir.IntType(8),
    ir.IntType(32),
    ir.IntType(64),
    ir.FloatType(),
    ir.VoidType(),
    ir.PointerType(),
)

_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
        2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
_LN2_HIGH, _LN2_LOW, _LOG2E = 0.693359375, -2.12194440e-4, 1.44269504088896341
_LARGEST, _LEAST = 88.0, -87.0
_SQRT_HALF = 0.707106781186547524


class _Splat(ir.Constant):  # type: ignore[misc]  # llvmlite has no types
    """The same constant in all lanes, in LLVM's short form: a module's text is a third as long."""

    def __init__(self, kind: ir.VectorType, one: str) -> None:
        super().__init__(kind, None)
        self._one = one

    def _to_string(self) -> str:
        return f"{self.type} {self.get_reference()}"

    def get_reference(self) -> str:
        return f"splat ({self._one})"


class Vectors:
    """A builder with a vector width. `fused`: the target multiplies and adds in one instruction."""

    def __init__(self, module: ir.Module, builder: ir.IRBuilder, lanes: int, *, fused: bool) -> None:
        self.module, self.b, self.lanes, self._fused = module, builder, lanes, fused
        self.floats = ir.VectorType(F32, lanes)
        self.ints = ir.VectorType(I32, lanes)

    def number(self, value: float) -> Value:
        """The same fp32 number in all lanes."""
        return _Splat(self.floats, str(ir.Constant(F32, _fp32(value))))

    def integer(self, value: int) -> Value:
        return _Splat(self.ints, f"i32 {int(value)}")

    def at(self, pointer: Value, offset: int | Value) -> Value:
        """The address `offset` bytes on."""
        if isinstance(offset, int):
            if offset == 0:
                return pointer
            offset = ir.Constant(I64, offset)
        return self.b.gep(pointer, [offset], source_etype=I8)

    def load(self, pointer: Value, kind: Any = None) -> Value:
        return self.b.load(pointer, typ=kind or self.floats, align=4)

    def store(self, value: Value, pointer: Value) -> None:
        self.b.store(value, pointer, align=1 if value.type in (I8,) else 4)

    def splat(self, scalar: Value, lanes: int | None = None) -> Value:
        """The scalar in all lanes."""
        count = lanes or self.lanes
        kind = ir.VectorType(scalar.type, count)
        one = self.b.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(I32, 0))
        zeros = ir.Constant(ir.VectorType(I32, count), None)
        return self.b.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros)

    def call(self, name: str, result: Any, args: Sequence[Value]) -> Value:
        """Call an intrinsic. The name is one of ours, never a text from outside."""
        function = self.module.globals.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, [one.type for one in args]), name)
        return self.b.call(function, args)

    def _overloaded(self, name: str, *args: Value) -> Value:
        return self.call(f"llvm.{name}.v{self.lanes}f32", self.floats, args)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c; rounded once where the processor has such an instruction."""
        return self._overloaded("fma", a, b, c) if self._fused else self.b.fadd(self.b.fmul(a, b), c)

    def bits(self, value: Value) -> Value:
        return self.b.bitcast(value, self.ints)

    def from_bits(self, value: Value) -> Value:
        return self.b.bitcast(value, self.floats)

    def apply(self, op: str, args: Sequence[Value]) -> Value:
        """One operation of a cell."""
        b = self.b
        simple: dict[str, Callable[..., Value]] = {
            "add": b.fadd, "sub": b.fsub, "mul": b.fmul, "div": b.fdiv, "neg": b.fneg, "exp": self.exp, "log": self.log,
            "sigmoid": self.sigmoid, "tanh": self.tanh,
        }  # fmt: skip
        if op in simple:
            return simple[op](*args)
        if op in ("max", "min"):
            return self._overloaded({"max": "maximum", "min": "minimum"}[op], *args)
        if op in ("abs", "sqrt"):
            return self._overloaded({"abs": "fabs", "sqrt": "sqrt"}[op], *args)
        assert op == "where"
        return b.select(b.fcmp_ordered(">", args[0], args[1]), args[2], args[3])

    def _within(self, x: Value, least: float, largest: float) -> Value:
        """x in a range; what is not a number stays so."""
        b, low, high = self.b, self.number(least), self.number(largest)
        x = b.select(b.fcmp_ordered(">", x, high), high, x)
        return b.select(b.fcmp_ordered("<", x, low), low, x)

    def _reduced(self, x: Value) -> tuple[Value, Value]:
        """exp(x) - 1 of what is left of x after whole powers of two, and that power: exp(x) = (q + 1) * 2^n."""
        b = self.b
        n = self._overloaded("rint", b.fmul(x, self.number(_LOG2E)))
        r = self.fma(n, self.number(-_LN2_HIGH), x)
        r = self.fma(n, self.number(-_LN2_LOW), r)
        p = self.number(_EXP[0])
        for coefficient in _EXP[1:]:
            p = self.fma(p, r, self.number(coefficient))
        q = self.fma(p, b.fmul(r, r), r)
        ordered = b.fcmp_ordered("ord", n, n)
        whole = b.fptosi(b.select(ordered, n, self.number(0.0)), self.ints)
        power = self.from_bits(b.shl(b.add(whole, self.integer(127)), self.integer(23)))
        return q, power

    def exp(self, x: Value) -> Value:
        b = self.b
        q, power = self._reduced(self._within(x, _LEAST, _LARGEST))
        found = self.fma(q, power, power)
        found = b.select(b.fcmp_ordered("<", x, self.number(_LEAST)), self.number(0.0), found)
        return b.select(b.fcmp_ordered(">", x, self.number(_LARGEST)), self.number(math.inf), found)

    def sigmoid(self, x: Value) -> Value:
        b, one = self.b, self.number(1.0)
        q, power = self._reduced(self._within(b.fneg(x), _LEAST, _LARGEST))
        return b.fdiv(one, b.fadd(one, self.fma(q, power, power)))

    def tanh(self, x: Value) -> Value:
        """By exp(2x) - 1, which is exact near zero."""
        b, one, two = self.b, self.number(1.0), self.number(2.0)
        q, power = self._reduced(self._within(b.fadd(x, x), -40.0, 40.0))
        e = self.fma(q, power, b.fsub(power, one))
        return b.fdiv(e, b.fadd(e, two))

    def log(self, x: Value) -> Value:
        b = self.b
        least_normal = self.from_bits(self.integer(0x00800000))
        bits = self.bits(b.select(b.fcmp_ordered("<", x, least_normal), least_normal, x))
        exponent = b.sub(b.lshr(bits, self.integer(23)), self.integer(126))
        half = self.from_bits(b.or_(b.and_(bits, self.integer(0x007FFFFF)), self.integer(0x3F000000)))
        small = b.fcmp_ordered("<", half, self.number(_SQRT_HALF))
        e = b.sitofp(b.select(small, b.sub(exponent, self.integer(1)), exponent), self.floats)
        m = b.fsub(b.select(small, b.fadd(half, half), half), self.number(1.0))
        z = b.fmul(m, m)
        p = self.number(_LOG[0])
        for coefficient in _LOG[1:]:
            p = self.fma(p, m, self.number(coefficient))
        y = b.fmul(b.fmul(p, m), z)
        y = self.fma(e, self.number(_LN2_LOW), y)
        y = self.fma(z, self.number(-0.5), y)
        found = self.fma(e, self.number(_LN2_HIGH), b.fadd(m, y))
        found = b.select(b.fcmp_ordered(">", x, self.number(3.4e38)), x, found)
        nothing = b.select(b.fcmp_ordered("==", x, self.number(0.0)), self.number(-math.inf), self.number(math.nan))
        return b.select(b.fcmp_ordered(">", x, self.number(0.0)), found, nothing)


def _fp32(value: float) -> float:
    if math.isinf(value) or math.isnan(value):
        return value
    return float(struct.unpack("f", struct.pack("f", value))[0])
