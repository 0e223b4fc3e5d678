"""Each instruction as a function on a block's registers; what is not here raises UnsupportedInstruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shoal.device.ptx.tree import Address, Instruction, Name, Negated, Number, Operand, Pair, Sum, Vector
from tests.device.ptx.arithmetic import (
    ATOMIC,
    COMPARE,
    NUMPY,
    Array,
    arithmetic,
    bits_of,
    clamped,
    compared,
    converted,
    literal,
)
from tests.device.ptx.program import (
    LOCAL_WINDOW,
    SHARED_WINDOW,
    SPECIAL,
    InterpreterError,
    Program,
    UnsupportedInstruction,
)

if TYPE_CHECKING:
    from tests.device.ptx.interpreter import BlockState

Lanes = npt.NDArray[np.int64]
Act = Callable[["BlockState", Lanes], None]
Value = Callable[["BlockState", Lanes], Array]
Put = Callable[["BlockState", Lanes, Array], None]


@dataclass(frozen=True)
class Barrier:
    """A barrier's number and how many threads it wants (0: all), what happens when they are there, and whether the
    threads wait for it."""

    of: Callable[[BlockState, npt.NDArray[np.int64]], tuple[int, int]]
    finish: Callable[[BlockState, Lanes, Lanes], None]
    waits: bool


@dataclass(frozen=True)
class Operation:
    run: Act
    guard: tuple[int, bool] | None = None
    jumps: Callable[[BlockState, Lanes], Array | int] | None = None
    ends: bool = False
    barrier: Barrier | None = None
    warp: Callable[[BlockState, Lanes], Array] | None = None
    """For each thread the mask of those in its warp that execute this together."""


def compile_program(program: Program, symbols: Mapping[str, int]) -> tuple[list[Operation], list[str]]:
    """The operations, and the names of the registers that they use, in order."""
    compiler = _Compiler(program, symbols)
    return [compiler.compile(at) for at in range(len(program.flow.instructions))], list(compiler.registers)


def _nothing(_block: BlockState, _lanes: Lanes) -> None:
    pass


class _Compiler:
    def __init__(self, program: Program, symbols: Mapping[str, int]) -> None:
        self._program = program
        self._symbols = {**symbols, **program.shared, **program.local, **program.parameters}
        self.registers: dict[str, int] = {}

    def compile(self, at: int) -> Operation:
        instruction = self._program.flow.instructions[at]
        guard = None
        if instruction.guard is not None:
            guard = (self._slot(instruction.guard.name.text), instruction.guard.negated)
        try:
            return self._operation(at, instruction, guard)
        except (KeyError, IndexError, TypeError, ValueError):
            raise UnsupportedInstruction(instruction.text, instruction.line) from None

    def _slot(self, name: str) -> int:
        if name.startswith("%") and name not in SPECIAL and name.split(".")[0].rstrip("0123456789") in _OTHER_SPECIAL:
            raise InterpreterError(f"the interpreter does not know {name}")
        return self.registers.setdefault(name, len(self.registers))

    def _value(self, operand: Operand, type_: str) -> Value:
        match operand:
            case Number(text):
                constant = literal(text, type_)
                return lambda _block, lanes: np.full(len(lanes), constant)
            case Name(text) if text in self._symbols:
                place = converted(np.array(self._symbols[text], np.uint64), type_)
                return lambda _block, lanes: np.full(len(lanes), place)
            case Name(text):
                slot = self._slot(text)
                return lambda block, lanes: converted(block.registers[slot, lanes], type_)
            case Sum(base, offset):
                left, right = self._value(base, type_), self._value(offset, type_)
                return lambda block, lanes: left(block, lanes) + right(block, lanes)
            case Negated(name):
                plain = self._value(name, "pred")
                return lambda block, lanes: ~plain(block, lanes)
        raise ValueError(operand)

    def _put(self, operand: Operand) -> Put:
        if not isinstance(operand, Name):
            raise ValueError(operand)
        if operand.text == "_":
            return lambda _block, _lanes, _value: None
        slot = self._slot(operand.text)

        def put(block: BlockState, lanes: Lanes, value: Array) -> None:
            block.registers[slot, lanes] = bits_of(value)

        return put

    def _puts(self, operand: Operand) -> list[Put]:
        """One for each element of a vector."""
        return [self._put(item) for item in (operand.items if isinstance(operand, Vector) else (operand,))]

    def _values(self, operand: Operand, type_: str) -> list[Value]:
        return [self._value(item, type_) for item in (operand.items if isinstance(operand, Vector) else (operand,))]

    def _operation(self, at: int, i: Instruction, guard: tuple[int, bool] | None) -> Operation:
        words = frozenset(i.modifiers)
        match i.opcode:
            case "bra":
                (target,) = self._program.flow.jumps(at)
                return Operation(_nothing, guard, lambda _block, _lanes: target)
            case "brx":
                targets = np.array(self._program.flow.jumps(at))
                index = self._value(i.operands[0], "u32")
                return Operation(_nothing, guard, lambda block, lanes: targets[index(block, lanes)])
            case "ret" | "exit":
                return Operation(_nothing, guard, ends=True)
            case "bar" | "barrier" if "warp" not in words and "cluster" not in words:
                return Operation(_nothing, guard, barrier=self._barrier(i))
            case "shfl" | "vote" | "bar":
                mask = self._value(i.operands[-1], "u32")
                return Operation(self._warp_act(i), guard, warp=mask)
            case "mma" | "ldmatrix":
                return Operation(self._warp_act(i), guard, warp=lambda _block, lanes: np.full(len(lanes), 0xFFFFFFFF))
        return Operation(self._act(i, words), guard)

    def _act(self, i: Instruction, words: frozenset[str]) -> Act:
        match i.opcode:
            case "membar" | "fence" | "nanosleep" | "pragma" | "prefetch":
                return _nothing
            case "trap":
                return _trap
            case "ld":
                return self._load(i, words)
            case "st":
                return self._store(i, words)
            case "atom" | "red":
                return self._atomic(i, words)
            case "mov":
                return self._move(i)
            case "cvt":
                return self._convert(i)
            case "cvta":
                return self._generic(i, words)
            case "setp":
                return self._compare(i)
        _only(i, words, _QUIET)
        type_ = i.modifiers[-1]
        put = self._put(i.operands[0])
        if i.opcode == "selp":
            a, b, p = (self._value(o, t) for o, t in zip(i.operands[1:], (type_, type_, "pred"), strict=True))
            return lambda block, lanes: put(block, lanes, np.where(p(block, lanes), a(block, lanes), b(block, lanes)))
        function, types = arithmetic(i.opcode, words, type_)
        values = [self._value(o, t) for o, t in zip(i.operands[1:], types, strict=True)]
        return lambda block, lanes: put(block, lanes, function(*(value(block, lanes) for value in values)))

    def _move(self, i: Instruction) -> Act:
        """Between a whole and its parts too: `mov.b64 {lo, hi}, whole`."""
        (type_,) = i.modifiers
        target, source = i.operands
        if not isinstance(target, Vector) and not isinstance(source, Vector):
            put, value = self._put(target), self._value(source, type_)
            return lambda block, lanes: put(block, lanes, value(block, lanes))
        bits = NUMPY[type_].itemsize * 8
        puts = self._puts(target)
        from_ = bits // len(source.items) if isinstance(source, Vector) else bits
        to = bits // len(puts)
        values = self._values(source, f"u{from_}")

        def act(block: BlockState, lanes: Lanes) -> None:
            whole = np.zeros(len(lanes), np.uint64)
            for index, value in enumerate(values):
                whole |= value(block, lanes).astype(np.uint64) << np.uint64(index * from_)
            for index, put in enumerate(puts):
                put(block, lanes, (whole >> np.uint64(index * to)) & np.uint64((1 << to) - 1))

        return act

    def _compare(self, i: Instruction) -> Act:
        comparison, *more, type_ = i.modifiers
        compare = COMPARE[comparison]
        a, b = (self._value(operand, compared(comparison, type_)) for operand in i.operands[1:3])
        target = i.operands[0]
        names: tuple[Operand, ...] = (target.first, target.second) if isinstance(target, Pair) else (target,)
        puts = [self._put(name) for name in names]
        combine = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[more[0]] if more else None
        third = self._value(i.operands[3], "pred") if more else None

        def act(block: BlockState, lanes: Lanes) -> None:
            result = compare(a(block, lanes), b(block, lanes))
            for put, one in zip(puts, (result, ~result), strict=False):
                if combine is not None and third is not None:
                    one = combine(one, third(block, lanes))
                put(block, lanes, one)

        return act

    def _convert(self, i: Instruction) -> Act:
        *rounding, to, from_ = i.modifiers
        if not {"rn", "rni", "rzi", "rmi", "rpi", "rz"} >= set(rounding):
            raise ValueError(rounding)
        put, value = self._put(i.operands[0]), self._value(i.operands[1], from_)
        target = NUMPY[to]
        whole = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}.get("".join(rounding))

        def act(block: BlockState, lanes: Lanes) -> None:
            result = value(block, lanes)
            if whole is not None:
                result = whole(result)
            if result.dtype.kind == "f" and target.kind in "iu":
                limits = np.iinfo(target)
                result = np.array([clamped(float(x), limits.min, limits.max) for x in result], target)
            put(block, lanes, result.astype(target))

        return act

    def _generic(self, i: Instruction, words: frozenset[str]) -> Act:
        put, value = self._put(i.operands[0]), self._value(i.operands[1], "u64")
        base = SHARED_WINDOW if "shared" in words else LOCAL_WINDOW if "local" in words else 0
        shift = np.uint64((-base if "to" in words else base) % 2**64)
        return lambda block, lanes: put(block, lanes, value(block, lanes) + shift)

    # Memory

    def _address(self, operand: Operand, words: frozenset[str]) -> tuple[str, Value]:
        """The space and the address in it."""
        if not isinstance(operand, Address):
            raise ValueError(operand)
        (item,) = operand.items
        base = item.base if isinstance(item, Sum) else item
        wide = "u64"
        if isinstance(base, Name) and base.text not in self._symbols and words & {"shared", "shared::cta"}:
            wide = "u32"  # such a register may be narrow, and a negative offset must not leave 32 bits
        value = self._value(item, wide)
        if words & {"shared", "shared::cta"}:
            return "shared", value
        if any(word.startswith("param") for word in words):
            own = isinstance(base, Name) and base.text in self._program.local
            return ("local" if own else "param"), value
        for space in ("local", "global", "const"):
            if space in words:
                return ("global" if space == "const" else space), value
        return "generic", value

    def _load(self, i: Instruction, words: frozenset[str]) -> Act:
        _only(i, words, _MEMORY_WORDS)
        type_ = i.modifiers[-1]
        dtype = NUMPY[type_]
        puts = self._puts(i.operands[0])
        space, address = self._address(i.operands[1], words)

        def act(block: BlockState, lanes: Lanes) -> None:
            place = address(block, lanes)
            for index, put in enumerate(puts):
                at = place + np.asarray(index * dtype.itemsize, place.dtype)
                if space == "param":
                    bytes_ = at.astype(np.int64)[:, None] + np.arange(dtype.itemsize)
                    value = block.parameters[bytes_].view(dtype)[:, 0]
                else:
                    value = block.load(space, at, dtype.itemsize, lanes).view(dtype)
                put(block, lanes, value)

        return act

    def _store(self, i: Instruction, words: frozenset[str]) -> Act:
        _only(i, words, _MEMORY_WORDS)
        type_ = i.modifiers[-1]
        dtype = NUMPY[type_]
        values = self._values(i.operands[1], type_)
        space, address = self._address(i.operands[0], words)

        def act(block: BlockState, lanes: Lanes) -> None:
            place = address(block, lanes)
            for index, value in enumerate(values):
                at = place + np.asarray(index * dtype.itemsize, place.dtype)
                block.store(space, at, value(block, lanes), lanes)

        return act

    def _atomic(self, i: Instruction, words: frozenset[str]) -> Act:
        name = next(word for word in i.modifiers if word in ATOMIC)
        _only(i, words, _MEMORY_WORDS | {name})
        change = ATOMIC[name]
        type_ = i.modifiers[-1]
        dtype = NUMPY[type_]
        operands = i.operands if i.opcode == "atom" else (Name("_"), *i.operands)
        put = self._put(operands[0])
        space, address = self._address(operands[1], words)
        values = [self._value(operand, type_) for operand in operands[2:]]

        def act(block: BlockState, lanes: Lanes) -> None:
            place = address(block, lanes)
            given = [value(block, lanes) for value in values]
            found = np.zeros(len(lanes), dtype)
            for index in range(len(lanes)):  # one thread after another
                here, one = place[index : index + 1], lanes[index : index + 1]
                found[index : index + 1] = block.load(space, here, dtype.itemsize, one).view(dtype)
                new = change(found[index], *(value[index] for value in given))
                block.store(space, here, np.array([new], dtype), one)
            put(block, lanes, found)

        return act

    # Threads together

    def _barrier(self, i: Instruction) -> Barrier:
        reduction = next((word for word in i.modifiers if word in ("popc", "and", "or")), "")
        arrive = "arrive" in i.modifiers
        operands = list(i.operands)
        put = self._put(operands.pop(0)) if reduction else None
        predicate = self._value(operands.pop(), "pred") if reduction else None
        identity, count = ([self._value(operand, "u32") for operand in operands] + [None])[:2]
        assert identity is not None

        def of(block: BlockState, group: npt.NDArray[np.int64]) -> tuple[int, int]:
            return int(identity(block, group)[0]), int(count(block, group)[0]) if count is not None else 0

        def finish(block: BlockState, lanes: Lanes, everyone: Lanes) -> None:
            if put is not None and predicate is not None:
                told = predicate(block, everyone)
                results = {"popc": np.uint32(told.sum()), "and": np.bool_(told.all()), "or": np.bool_(told.any())}
                put(block, lanes, np.asarray(results[reduction]))

        return Barrier(of, finish, not arrive)

    def _warp_act(self, i: Instruction) -> Act:
        match i.opcode, i.modifiers:
            case "bar", _:
                return _nothing
            case "shfl", ("sync", mode, "b32"):
                return self._shuffle(i, mode)
            case "vote", ("sync", mode, _):
                return self._vote(i, mode)
            case "mma", ("sync", "aligned", "m16n8k16", "row", "col", "f32", "f16", "f16", "f32"):
                return self._multiply(i)
            case "ldmatrix", ("sync", "aligned", "m8n8", *_):
                return self._load_matrix(i)
        raise ValueError(i.text)

    def _shuffle(self, i: Instruction, mode: str) -> Act:
        target = i.operands[0]
        names = (target.first, target.second) if isinstance(target, Pair) else (target, Name("_"))
        put, put_inside = (self._put(name) for name in names)
        value, by, clamp = (self._value(operand, "u32") for operand in i.operands[1:4])

        def act(block: BlockState, lanes: Lanes) -> None:
            lane = lanes % 32
            b = by(block, lanes).astype(np.int64) & 31
            c = clamp(block, lanes).astype(np.int64)
            limit, segment = c & 31, (c >> 8) & 31
            first, last = lane & segment, (lane & segment) | (limit & ~segment)
            source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": first | (b & ~segment)}[mode]
            inside = source >= last if mode == "up" else source <= last
            values = np.zeros(block.threads, np.uint32)
            values[lanes] = value(block, lanes)
            from_ = np.where(inside, lanes - lane + source, lanes)
            put_inside(block, lanes, inside)
            put(block, lanes, values[np.minimum(from_, block.threads - 1)])

        return act

    def _vote(self, i: Instruction, mode: str) -> Act:
        put, predicate = self._put(i.operands[0]), self._value(i.operands[1], "pred")

        def act(block: BlockState, lanes: Lanes) -> None:
            told = predicate(block, lanes)
            result = np.zeros(len(lanes), np.uint32 if mode == "ballot" else bool)
            for warp in np.unique(lanes // 32):
                own = lanes // 32 == warp
                bits = int((told[own].astype(np.int64) << (lanes[own] % 32)).sum())
                result[own] = {"ballot": bits, "any": bits != 0, "all": told[own].all()}[mode]
            put(block, lanes, result)

        return act

    def _load_matrix(self, i: Instruction) -> Act:
        """Each quarter of a warp names the rows of one 8 x 8 matrix of 16 bits."""
        words = frozenset(i.modifiers)
        _only(i, words, {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16"})
        puts = self._puts(i.operands[0])
        space, address = self._address(i.operands[1], words)

        def act(block: BlockState, lanes: Lanes) -> None:
            place = address(block, lanes).astype(np.int64).reshape(-1, 32)
            for index, put in enumerate(puts):
                rows = place[:, 8 * index : 8 * index + 8, None] + 2 * np.arange(8)
                flat = rows.reshape(-1)
                matrix = block.load(space, flat, 2, np.zeros(len(flat), np.int64)).reshape(-1, 8, 8)
                if "trans" in words:
                    matrix = matrix.transpose(0, 2, 1)
                pairs = matrix.reshape(-1, 32, 2).astype(np.uint32)
                put(block, lanes, (pairs[..., 0] | (pairs[..., 1] << np.uint32(16))).reshape(-1))

        return act

    def _multiply(self, i: Instruction) -> Act:
        """A warp's 16 x 16 by 16 x 8 product of halves, added to single floats."""
        puts = self._puts(i.operands[0])
        left, right, added = (self._values(o, t) for o, t in zip(i.operands[1:], ("u32", "u32", "f32"), strict=True))
        lane = np.arange(32)
        row, column = lane // 4, lane % 4 * 2

        def halves(block: BlockState, lanes: Lanes, value: Value) -> Array:
            return value(block, lanes).reshape(-1, 32, 1).view(np.float16).astype(np.float64)

        def act(block: BlockState, lanes: Lanes) -> None:
            warps = len(lanes) // 32
            matrix_a, matrix_b = np.zeros((warps, 16, 16)), np.zeros((warps, 16, 8))
            for index, value in enumerate(left):
                both = halves(block, lanes, value)
                for part in range(2):
                    matrix_a[:, row + index % 2 * 8, column + index // 2 * 8 + part] = both[..., part]
            for index, value in enumerate(right):
                both = halves(block, lanes, value)
                for part in range(2):
                    matrix_b[:, column + index * 8 + part, row] = both[..., part]
            product = matrix_a @ matrix_b
            results = []
            for index, value in enumerate(added):
                own = product[:, row + index // 2 * 8, column + index % 2].reshape(-1)
                results.append((own + value(block, lanes)).astype(np.float32))
            for put, result in zip(puts, results, strict=True):
                put(block, lanes, result)

        return act


def _trap(_block: BlockState, _lanes: Lanes) -> None:
    raise InterpreterError("the program has trapped")


def _only(i: Instruction, words: frozenset[str], known: frozenset[str] | set[str]) -> None:
    if any(word not in known and word not in NUMPY for word in words):
        raise ValueError(i.text)


_OTHER_SPECIAL = frozenset({
    "%gridid", "%smid", "%nsmid", "%nwarpid", "%clock", "%clock_hi", "%globaltimer", "%envreg", "%clusterid",
    "%nclusterid", "%cluster_ctaid", "%cluster_ctarank", "%dynamic_smem_size", "%total_smem_size", "%ctaid", "%nctaid",
    "%tid", "%ntid",
})  # fmt: skip
_QUIET = frozenset({"rn", "lo", "hi", "wide", "approx", "full", "uni"})
_MEMORY_WORDS = frozenset({
    "global", "shared", "shared::cta", "local", "param", "param::entry", "param::func", "const", "volatile", "relaxed",
    "acquire", "release", "acq_rel", "weak", "nc", "ca", "cg", "cs", "cv", "wb", "cta", "gpu", "sys", "v2", "v4",
    "L1::no_allocate", "L1::evict_last", "L1::evict_first",
})  # fmt: skip
