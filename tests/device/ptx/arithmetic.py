"""Arithmetic on the values of many threads at once, as devices do it."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

NUMPY = {
    **{f"{kind}{bits}": np.dtype(f"{letter}{bits // 8}") for kind, letter in (("u", "u"), ("b", "u"), ("s", "i"))
       for bits in (8, 16, 32, 64)},
    "f16": np.dtype("f2"), "f32": np.dtype("f4"), "f64": np.dtype("f8"), "pred": np.dtype("?"),
}  # fmt: skip


def converted(bits: Array, type_: str) -> Array:
    """A register's 64 bits as a value of a type."""
    dtype = NUMPY[type_]
    value: Array = bits != 0 if type_ == "pred" else bits.astype(f"u{dtype.itemsize}").view(dtype)
    return value


def bits_of(value: Array) -> Array:
    """A value as 64 bits; negative ones keep their sign in a wider register."""
    value = np.asarray(value)
    if value.dtype.kind == "b" or value.dtype.kind == "u":
        return value.astype(np.uint64)
    if value.dtype.kind == "i":
        return value.astype(np.int64).view(np.uint64)
    return value.view(f"u{value.dtype.itemsize}").astype(np.uint64)


def literal(text: str, type_: str) -> Any:
    dtype = NUMPY[type_]
    if text[:2].lower() in ("0f", "0d"):
        kind = "f" if text[1].lower() == "f" else "d"
        number = struct.unpack(f">{kind}", bytes.fromhex(text[2:]))[0]
        if dtype.kind == "f":
            return dtype.type(number)
        return np.frombuffer(struct.pack(f"<{kind}", number), f"u{len(text[2:]) // 2}")[0]
    if dtype.kind == "f":
        return dtype.type(float(text))
    value = ~int(text[1:].rstrip("U"), 0) if text[0] == "~" else int(text.rstrip("U"), 0)
    if dtype.kind == "b":
        return np.bool_(value)
    return np.frombuffer((value % 2**64).to_bytes(8, "little")[: dtype.itemsize], dtype)[0]


def clamped(value: float, least: int, most: int) -> int:
    return 0 if value != value else least if value <= least else most if value >= most else int(value)


def compared(comparison: str, type_: str) -> str:
    """`lo`, `ls`, `hi` and `hs` compare without a sign whatever the type says."""
    return f"u{type_[1:]}" if comparison in ("lo", "ls", "hi", "hs") else type_


COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
    "equ": lambda a, b: ~((a < b) | (a > b)), "neu": lambda a, b: a != b,
    "ltu": lambda a, b: ~(a >= b), "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b), "geu": lambda a, b: ~(a < b),
}  # fmt: skip

ATOMIC: dict[str, Callable[..., Any]] = {
    "add": operator.add, "and": operator.and_, "or": operator.or_, "xor": operator.xor, "min": min, "max": max,
    "exch": lambda _old, new: new, "cas": lambda old, expected, new: new if old == expected else old,
    "inc": lambda old, most: 0 if old >= most else old + 1,
    "dec": lambda old, most: most if old == 0 or old > most else old - 1,
}  # fmt: skip


def arithmetic(op: str, words: frozenset[str], type_: str) -> tuple[Callable[..., Array], tuple[str, ...]]:
    """The function and the types of its operands."""
    dtype = NUMPY[type_]
    if op in ("mul", "mad"):
        function, third = _product(words, type_)
        if op == "mul":
            return function, (type_, type_)
        return lambda a, b, c: function(a, b) + c, (type_, type_, third)
    if op == "fma":
        # The product of two single floats is exact in double ones.
        return lambda a, b, c: (a.astype(np.float64) * b + c).astype(dtype), (type_,) * 3
    if op in ("shl", "shr"):
        return partial(_shift, op == "shl"), (type_, "u32")
    if op in ("bfe", "bfi"):
        return (_extract, (type_, "u32", "u32")) if op == "bfe" else (_insert, (type_, type_, "u32", "u32"))
    if dtype.kind == "b":
        return {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not}[op], (
            ("pred",) if op == "not" else ("pred", "pred")
        )
    if op in _UNARY:
        return _UNARY[op], (type_,)
    if op in ("div", "rem") and dtype.kind != "f":
        return partial(_divide, op == "div"), (type_, type_)
    if op in ("min", "max") and dtype.kind == "f":
        return {"min": np.fmin, "max": np.fmax}[op], (type_, type_)
    return _BINARY[op], (type_, type_)


def _product(words: frozenset[str], type_: str) -> tuple[Callable[[Array, Array], Array], str]:
    dtype = NUMPY[type_]
    if dtype.kind == "f":
        return np.multiply, type_
    bits = dtype.itemsize * 8
    wide = f"{type_[0]}{bits * 2}"
    if "wide" in words:
        return lambda a, b: a.astype(NUMPY[wide]) * b.astype(NUMPY[wide]), wide
    if "hi" in words:
        return lambda a, b: np.array([(int(x) * int(y)) >> bits for x, y in np.broadcast(a, b)], dtype), type_
    return np.multiply, type_


def _shift(left: bool, value: Array, by: Array) -> Array:
    bits = value.dtype.itemsize * 8
    clamped = np.minimum(by, np.uint32(bits - 1)).astype(value.dtype)
    shifted = value << clamped if left else value >> clamped
    gone = value >> clamped if not left and value.dtype.kind == "i" else np.zeros_like(value)
    return np.where(by >= bits, gone, shifted)


def _divide(quotient: bool, a: Array, b: Array) -> Array:
    """Toward zero; by zero all bits are set, as devices do."""
    divisor = np.where(b == 0, np.ones_like(b), b)
    whole = a // divisor
    rest = a - whole * divisor
    below = ((rest != 0) & ((rest < 0) != (a < 0))).astype(a.dtype)
    if quotient:
        return np.where(b == 0, ~np.zeros_like(a), whole + below)
    return np.where(b == 0, a, rest - below * divisor)


def _extract(a: Array, position: Array, length: Array) -> Array:
    bits = a.dtype.itemsize * 8
    results = []
    for x, p, n in np.broadcast(a, position, length):
        p, n = int(p) & 255, int(n) & 255
        value = int(x) >> min(p, bits) & (1 << n) - 1
        if a.dtype.kind == "i" and n and value >> (n - 1) & 1:
            value -= 1 << n
        results.append(value % 2**bits)
    return np.array(results, f"u{a.dtype.itemsize}").view(a.dtype)


def _insert(a: Array, b: Array, position: Array, length: Array) -> Array:
    bits = a.dtype.itemsize * 8
    results = []
    for x, y, p, n in np.broadcast(a, b, position, length):
        mask = (((1 << (int(n) & 255)) - 1) << (int(p) & 255)) % 2**bits
        results.append((int(y) & ~mask) | (int(x) << (int(p) & 255)) & mask)
    return np.array(results, a.dtype)


def _each(function: Callable[[int, int], int]) -> Callable[[Array], Array]:
    return lambda a: np.array([function(int(x), a.dtype.itemsize * 8) for x in a], np.uint32)


_UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "not": np.invert,
    "sqrt": np.sqrt,
    "rcp": np.reciprocal,
    "ex2": np.exp2,
    "lg2": np.log2,
    "popc": _each(lambda x, _bits: x.bit_count()),
    "clz": _each(lambda x, bits: bits - x.bit_length()),
}
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "min": np.minimum, "max": np.maximum, "div": np.divide,
}  # fmt: skip
