"""The analytic model: what a step reads and computes, and how long that takes on a machine at least."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from shoal.recurrent.layers.layer import LayerSpec, Schedules
from shoal.recurrent.llvm.target import Bf16Dot, Int8Dot, Target
from shoal.recurrent.nest.transform import Schedule
from shoal.recurrent.numbers import BYTES, NumberType
from shoal.recurrent.search.machine import Machine

_COSTLY = {"exp": 18, "log": 22, "sigmoid": 22, "tanh": 22, "div": 5, "sqrt": 6}
"""Instructions of an operation, counted in the machine code; all others are one."""
_LATENCY = {NumberType.FP32: 4, NumberType.BF16: 4, NumberType.INT8: 3, NumberType.INT4: 1}
"""Instructions that could have started while a sum waits for its last addition."""
_CALL_S = 1e-6
_NEAR = 1 << 18
"""Bytes of a cache that holds one block of weights: each tile of rows reads it again from there."""
_LINE = 64
"""Bytes that a processor reads at once."""
_UNITS, _ROWS = range(1, 9), range(1, 9)
"""Of tiles: with more rows the addresses of their vectors do not fit the registers of x86."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one time step of one call: bytes of weights that are read again in each, operations of the dot products,
    element-wise instructions."""

    recurrent_bytes: int
    input_bytes: int
    recurrent_ops: int
    input_ops: int
    instructions: float


def gates_of(spec: LayerSpec) -> int:
    """The most dot products that one unit sums at once."""
    by_operand: dict[object, int] = {}
    for dot in spec.cell.dots:
        by_operand[dot.args[0]] = by_operand.get(dot.args[0], 0) + 1
    return max(by_operand.values(), default=1)


def cost_of(spec: LayerSpec, target: Target) -> Cost:
    """Of one row."""
    bytes_, ops = [0, 0], [0, 0]
    for dot in spec.cell.dots:
        size = spec.weights.matrices[dot.name].size
        first = dot.args[0].op == "input"
        bytes_[first] += int(size * BYTES[spec.kind])
        ops[first] += 2 * size
    blocks = -(-spec.sizes.hidden // target.lanes)
    instructions = sum(_COSTLY.get(node.op, 1) for node in spec.cell.nodes if node.args) * blocks
    return Cost(bytes_[0], bytes_[1], ops[0], ops[1], instructions)


def roofline_s(spec: LayerSpec, target: Target, machine: Machine, steps: int) -> float:
    """The least time of a sequence of one row: its weights from where they lie, the hoisted product at the peak."""
    cost = cost_of(spec, target)
    reading = cost.recurrent_bytes / machine.bytes_per_s(cost.recurrent_bytes)
    computing = cost.recurrent_ops / machine.peak[spec.kind]
    first = max(
        cost.input_bytes / machine.bytes_per_s(cost.input_bytes), steps * cost.input_ops / machine.peak[spec.kind]
    )
    return steps * max(reading, computing) + first


def predict_s(spec: LayerSpec, target: Target, machine: Machine, schedule: Schedule, steps: int, rows: int) -> float:
    """The time of one call of `steps` steps of `rows` rows."""
    cost = cost_of(spec, target)
    peak, gates = machine.peak[spec.kind], gates_of(spec)
    clock = machine.peak[NumberType.FP32] / (4.0 * target.lanes)  # two multiply-adds a cycle
    sums = schedule.units * schedule.rows * (schedule.gates or gates)
    slow = max(1.0, 2.0 * _LATENCY[spec.kind] / sums)
    turn = 1.0 + 1.5 / (schedule.unroll * sums)
    footprint = cost.recurrent_bytes + (0 if schedule.hoist else cost.input_bytes)
    reading = footprint / machine.bytes_per_s(footprint) * (0.93 if schedule.alternate else 1.0)
    again = footprint * -(-rows // schedule.rows) / machine.bytes_per_s(_NEAR)
    ops = rows * (cost.recurrent_ops + (0 if schedule.hoist else cost.input_ops))
    each = max(reading, again, ops / peak * slow * turn) + rows * cost.instructions / (2.0 * clock)
    if not schedule.hoist:
        return _CALL_S + steps * each
    share = min(steps, schedule.steps)
    wide = max(1.0, 2.0 * _LATENCY[spec.kind] / (share * (schedule.hoisted_gates or gates)))
    first = max(
        rows * steps * cost.input_ops / peak * wide,
        rows * cost.input_bytes * -(-steps // share) / machine.bytes_per_s(_NEAR),
        cost.input_bytes / machine.bytes_per_s(cost.input_bytes),
    )
    return _CALL_S + steps * each + first


def registers_needed(spec: LayerSpec, target: Target, units: int, tile: int, gates: int) -> int:
    """Of a tile's inner loop: its sums, the smaller side of the tile (weights, or a group of each row's vector), what
    one product takes, and what LLVM reads ahead (seen in the machine code)."""
    weights = units * gates
    held = min(tile, weights)
    ahead = 2 if tile > weights or target.registers < 32 else 4
    match spec.kind:
        case NumberType.FP32:
            return weights * tile + held + (2 if tile > weights else 1 + ahead)
        case NumberType.BF16 if target.bf16 is Bf16Dot.WIDEN:
            return weights * tile + 2 * held + 2 + (0 if tile > weights else ahead)
        case NumberType.INT8 if target.int8 is Int8Dot.PAIRS:
            return weights * tile + (held + 4 if tile > weights else 2 * held + 2 + ahead)
        case NumberType.INT4:  # an integer sum beside each; for several rows too much would be kept
            return 2 * weights + 6 + (8 if target.registers == 32 else 0) if tile == 1 else target.registers + 1
        case _:
            return weights * tile + held + 2 + (0 if tile > weights else ahead)


def gates_for(spec: LayerSpec, target: Target, units: int, tile: int) -> int | None:
    """How many gates one pass sums at most, as a schedule says it (0: all); None where not one fits. Passes are about
    equal: one of few sums would wait for each of them."""
    most = gates_of(spec)
    for gates in (-(-most // passes) for passes in range(1, most + 1)):
        if gates < most and gates * 4 * target.lanes < _LINE:
            return None  # the gates of a unit lie side by side: each pass would read the other gates' halves of lines
        if units * tile * gates == 1 or registers_needed(spec, target, units, tile, gates) <= target.registers:
            return 0 if gates == most else gates
    return None


def _intensity(spec: LayerSpec, target: Target, units: int, tile: int) -> float:
    """Products for each value that is read; on AVX2 an 8-bit value of a vector takes one more instruction."""
    gates = gates_of(spec)
    passes = -(-gates // (gates_for(spec, target, units, tile) or gates))
    pairs = spec.kind is NumberType.INT8 and target.int8 is Int8Dot.PAIRS
    return units * gates * tile / (units * gates + passes * tile * (2 if pairs else 1))


def first_schedules(spec: LayerSpec, target: Target) -> Schedules:
    """Good schedules without a search: tiles that do many products for each value that they read."""
    fitting = {(u, r): g for u in _UNITS for r in _ROWS if (g := gates_for(spec, target, u, r)) is not None}
    units = max((u for (u, r), gates in fitting.items() if r == 1 and not gates), default=1)
    steps = max((r for u, r in fitting if u == 1), key=lambda one: _intensity(spec, target, 1, one))
    tile = max(fitting, key=lambda one: (_intensity(spec, target, *one), -one[0]))
    sequence = Schedule(units, 1, 2, hoist=True, steps=steps, hoisted_gates=fitting[1, steps])
    return Schedules(sequence, Schedule(*tile, 2, hoist=False, steps=1, gates=fitting[tile]))


def candidates(spec: LayerSpec, target: Target, *, steps: int, rows: int) -> list[Schedule]:
    """The space: every schedule whose tiles fit the registers. A sequence of one step has nothing to hoist."""
    first = first_schedules(spec, target).sequence
    plain = max(r for r in _ROWS if gates_for(spec, target, 1, r) == 0 or r == 1)
    found = []
    for units, tile, unroll, alternate in product(_UNITS, _ROWS, (1, 2, 4), (False, True)):
        gates = gates_for(spec, target, units, tile)
        if tile > rows or gates is None or (alternate and steps == 1):
            continue
        for at_once in sorted({1, plain, first.steps}) if steps > 1 else (1,):
            split = first.hoisted_gates if at_once == first.steps and steps > 1 else 0
            found.append(Schedule(units, tile, unroll, steps > 1, at_once, alternate, gates, split))
    return found
