"""Peak rates of this machine: bytes a second by footprint, and operations a second by number type.

Measured with two kernels of their own: one only reads, the other only multiplies. Kept for each processor model.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from llvmlite import ir

from shoal.base.files import write_whole
from shoal.recurrent.layers.memory import address, zeroed
from shoal.recurrent.llvm import engine
from shoal.recurrent.llvm.dots import dot_of
from shoal.recurrent.llvm.kernel import ENTRY
from shoal.recurrent.llvm.layout import Call
from shoal.recurrent.llvm.target import Target
from shoal.recurrent.llvm.vectors import I64, PTR, VOID, Value, Vectors
from shoal.recurrent.numbers import NumberType

FOOTPRINTS = tuple(1 << power for power in range(16, 27, 2))
"""64 KiB to 64 MiB: the caches of today's processors, and memory."""

_STREAMS = 8
_TURNS = 4096


@dataclass(frozen=True)
class Machine:
    """`bandwidth`: (bytes that are swept over again and again, bytes a second), by size. `peak`: operations a second, a
    multiplication and an addition being two."""

    processor: str
    bandwidth: tuple[tuple[int, float], ...]
    peak: Mapping[NumberType, float]

    def bytes_per_s(self, footprint: int) -> float:
        """Between two measured footprints, in proportion."""
        below = self.bandwidth[0]
        for size, rate in self.bandwidth:
            if footprint <= size:
                part = (footprint - below[0]) / (size - below[0]) if size > below[0] else 1.0
                return below[1] + max(0.0, part) * (rate - below[1])
            below = size, rate
        return below[1]


def processor(read: Callable[[], str] = lambda: Path("/proc/cpuinfo").read_text()) -> str:
    """The model of this processor."""
    try:
        lines = read().splitlines()
    except OSError:
        return "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def measured(target: Target, folder: Path | None, *, clock: Callable[[], float] = time.perf_counter) -> Machine:
    """The figures of this processor, from the folder or measured now (about a second)."""
    name = processor()
    key = hashlib.sha256(f"{name}\0{target.features}\0{engine.VERSION}".encode()).hexdigest()[:32]
    path = None if folder is None else folder / f"{key}.machine.json"
    found = None if path is None else _read(path, name)
    if found is not None:
        return found
    made = Machine(
        name,
        tuple((size, _bandwidth(target, size, clock)) for size in FOOTPRINTS),
        {kind: _peak(target, kind, clock) for kind in NumberType},
    )
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            data = {"bandwidth": made.bandwidth, "peak": made.peak}
            write_whole(path, json.dumps(data), durable=False)
        except OSError:
            return made  # measured again next time
    return made


def _read(path: Path, name: str) -> Machine | None:
    try:
        data = json.loads(path.read_text())
        bandwidth = tuple((int(size), float(rate)) for size, rate in data["bandwidth"])
        return Machine(name, bandwidth, {kind: float(data["peak"][kind]) for kind in NumberType})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _kernel(target: Target, body: Callable[[Vectors, ir.Function, Value, Value], list[Value]]) -> engine.Loaded:
    """A loop of STEPS turns around `body(vectors, function, memory, turn)`, whose results are kept alive."""
    module = ir.Module(name="machine")
    module.triple = target.triple
    function = ir.Function(module, ir.FunctionType(VOID, [PTR]), ENTRY)
    b = ir.IRBuilder(function.append_basic_block())
    v = Vectors(module, b, target.lanes, fused=target.fused)
    turns = v.load(v.at(function.args[0], 8 * Call.STEPS), I64)
    memory = v.load(v.at(function.args[0], 8 * Call.CONSTANTS), PTR)
    before, loop, after = b.block, function.append_basic_block(), function.append_basic_block()
    b.branch(loop)
    b.position_at_end(loop)
    turn = b.phi(I64)
    turn.add_incoming(ir.Constant(I64, 0), before)
    made = body(v, function, memory, turn)
    following = b.add(turn, ir.Constant(I64, 1))
    turn.add_incoming(following, loop)
    b.cbranch(b.icmp_unsigned("<", following, turns), loop, after)
    b.position_at_end(after)
    for index, value in enumerate(made):
        v.store(value, v.at(memory, index * 4 * target.lanes))
    b.ret_void()
    return engine.Loaded(engine.compile_object(str(module), target), target)


def _sums(v: Vectors, start: Value, count: int) -> list[Value]:
    """Sums that a loop carries; the block that it comes from is the function's first."""
    found = []
    for _ in range(count):
        phi = v.b.phi(start.type)
        phi.add_incoming(start, v.b.function.entry_basic_block)
        found.append(phi)
    return found


def _bandwidth(target: Target, size: int, clock: Callable[[], float]) -> float:
    width = 4 * target.lanes

    def body(v: Vectors, _function: ir.Function, memory: Value, turn: Value) -> list[Value]:
        sums = _sums(v, v.number(0.0), _STREAMS)
        at = v.at(memory, v.b.mul(turn, ir.Constant(I64, _STREAMS * width)))
        made = [v.b.fadd(total, v.load(v.at(at, index * width))) for index, total in enumerate(sums)]
        for phi, total in zip(sums, made, strict=True):
            phi.add_incoming(total, v.b.block)
        return made

    seconds = _best(
        _kernel(target, body), zeroed(size + 64), size // (_STREAMS * width), max(1, (1 << 20) // size), clock
    )
    return size / seconds


def _peak(target: Target, kind: NumberType, clock: Callable[[], float]) -> float:
    dot = dot_of(kind, target)
    count = target.registers - 6

    def body(v: Vectors, _function: ir.Function, memory: Value, turn: Value) -> list[Value]:
        sums = _sums(v, dot.zero(v), count)
        piece = dot.broadcast(v, memory, v.b.and_(turn, ir.Constant(I64, 7)))
        made = [
            dot.add(v, total, v.at(memory, 512 + (index % 8) * dot.bytes), piece) for index, total in enumerate(sums)
        ]
        for phi, total in zip(sums, made, strict=True):
            phi.add_incoming(total, v.b.block)
        return made

    seconds = _best(_kernel(target, body), zeroed(8192), _TURNS, 1, clock)
    return 2.0 * count * dot.pack * target.lanes * _TURNS / seconds


def _best(kernel: engine.Loaded, memory: object, turns: int, calls: int, clock: Callable[[], float]) -> float:
    """The least time of one call, of several rounds of `calls` calls."""
    call = zeroed(8 * len(Call)).view("int64")
    call[Call.STEPS], call[Call.CONSTANTS] = turns, address(memory)  # type: ignore[arg-type]
    at = ctypes.c_void_p(address(call))
    best = float("inf")
    for _ in range(12):
        began = clock()
        for _ in range(calls):
            kernel.run(at)
        best = min(best, (clock() - began) / calls)
    return best
