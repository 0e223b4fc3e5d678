"""Machine code: instructions that this machine may lack in software, and what inner loops consist of.

The text of a kernel is the same but for the intrinsics of short numbers. Those are defined here as the manuals of the
processors have them, so the layouts, corrections and conversions of every target run everywhere.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoal.recurrent.cells import library
from shoal.recurrent.layers.compiled import CompiledLayer
from shoal.recurrent.layers.kernel import Kernel
from shoal.recurrent.layers.layer import LayerSpec, Schedules
from shoal.recurrent.llvm.engine import Loaded, _machine, _module, compile_object
from shoal.recurrent.llvm.kernel import emit
from shoal.recurrent.llvm.layout import Layout
from shoal.recurrent.llvm.target import TARGETS, Target, host_target
from shoal.recurrent.nest.ir import Sizes
from shoal.recurrent.nest.transform import Schedule, lower
from shoal.recurrent.numbers import NumberType
from shoal.recurrent.search.model import first_schedules
from tests.recurrent.support import distance, reference, spec_for, states_for

HOST = host_target()
assert HOST is not None


def four_products(name: str, lanes: int, first: str) -> str:
    """Four products of bytes added to each 32-bit lane; `first` widens the first operand."""
    total, wide = f"<{lanes} x i32>", f"<{4 * lanes} x i32>"
    lines = [
        f'define {total} @"{name}"({total} %a, <{4 * lanes} x i8> %b, <{4 * lanes} x i8> %c) {{',
        f"  %bw = {first} <{4 * lanes} x i8> %b to {wide}",
        f"  %cw = sext <{4 * lanes} x i8> %c to {wide}",
        f"  %p = mul {wide} %bw, %cw",
    ]
    before = "%a"
    for byte in range(4):
        picks = ", ".join(f"i32 {4 * lane + byte}" for lane in range(lanes))
        lines.append(f"  %s{byte} = shufflevector {wide} %p, {wide} poison, <{lanes} x i32> <{picks}>")
        lines.append(f"  %t{byte} = add {total} {before}, %s{byte}")
        before = f"%t{byte}"
    return "\n".join([*lines, f"  ret {total} {before}", "}"])


def two_halves(name: str) -> str:
    """Two products of bfloat16 added to each fp32 lane."""
    lines = [f'define <16 x float> @"{name}"(<16 x float> %a, <32 x bfloat> %b, <32 x bfloat> %c) {{']
    for which in "bc":
        lines += [
            f"  %{which}i = bitcast <32 x bfloat> %{which} to <16 x i32>",
            f"  %{which}e0 = shl <16 x i32> %{which}i, splat (i32 16)",
            f"  %{which}o0 = and <16 x i32> %{which}i, splat (i32 -65536)",
            f"  %{which}e = bitcast <16 x i32> %{which}e0 to <16 x float>",
            f"  %{which}o = bitcast <16 x i32> %{which}o0 to <16 x float>",
        ]
    lines += [
        "  %p = fmul <16 x float> %bo, %co", "  %q = fmul <16 x float> %be, %ce", "  %r = fadd <16 x float> %a, %p",
        "  %s = fadd <16 x float> %r, %q", "  ret <16 x float> %s", "}",
    ]  # fmt: skip
    return "\n".join(lines)


SOFTWARE = {
    "llvm.x86.avx512.vpdpbusd.512": four_products("soft.0", 16, "zext"),
    "llvm.x86.avx512.vpdpbusd.256": four_products("soft.1", 8, "zext"),
    "llvm.aarch64.neon.sdot.v4i32.v16i8": four_products("soft.2", 4, "sext"),
    "llvm.x86.avx512bf16.dpbf16ps.512": two_halves("soft.3"),
}


def in_software(text: str) -> str:
    assert HOST is not None
    for name, body in SOFTWARE.items():
        made = re.search(r'@"(soft\.\d)"', body)
        assert made is not None
        if f'"{name}"' in text:
            text = re.sub(rf'^declare [^\n]*@"{re.escape(name)}"[^\n]*$', lambda _, body=body: body, text, flags=re.M)
            text = text.replace(f'"{name}"', f'"{made[1]}"')
    return re.sub(r'target triple = "[^"]*"', f'target triple = "{HOST.triple}"', text)


def layer_for(spec: LayerSpec, target: Target, schedule: Schedule) -> CompiledLayer:
    """As on a machine that has the target's instructions."""

    def compile_(one: Schedule) -> Kernel:
        assert HOST is not None
        nest = lower(spec.cell, spec.sizes, one, target.lanes)
        layout = Layout(nest, spec.kind, target)
        loaded = Loaded(compile_object(in_software(emit(layout)), HOST), HOST)
        return Kernel(one, nest, layout, loaded.run, loaded)

    return CompiledLayer(spec, Schedules(schedule, schedule), compile_)


@pytest.mark.parametrize("kind", [NumberType.INT8, NumberType.INT4, NumberType.BF16])
@pytest.mark.parametrize("name", ["avx512-bf16", "avx-vnni", "neon-dot", "neon"])
@pytest.mark.slow
def test_a_target_that_is_not_here_gives_the_same_numbers(name: str, kind: NumberType) -> None:
    target = TARGETS[name]
    noise = np.random.default_rng(0)
    spec = spec_for(library.gru(reset_after=False), Sizes(11, 37), kind=kind)
    x, states = noise.uniform(-1, 1, (5, 3, 11)).astype(np.float32), states_for(spec, 3, noise)
    rounded, _ = reference(spec, x, states, kind)
    exact, _ = reference(spec, x, states, NumberType.FP32)
    native = kind is NumberType.BF16 and target.bf16.value == "vdpbf16ps"
    found = {}
    for hoist in (False, True):
        layer = layer_for(spec, target, Schedule(2, 2, 2, hoist, 2))
        out = np.empty((5, 3, 37), np.float32)
        layer.run(x, states, None, out)
        found[hoist] = out
        memory = layer.steps(3)
        for row in range(3):
            memory.write([row], {"h": states["h"][row : row + 1]})
        for step in range(5):
            memory.x[:] = x[step]
            memory.step([2, 0, 1])
            assert np.array_equal(memory.y, out[step])
    assert np.array_equal(found[False], found[True])
    assert distance(found[True], exact) < {"bf16": 5e-3, "int8": 1e-2, "int4": 0.12}[kind]
    assert native or distance(found[True], rounded) < 2e-6


def assembly_of(text: str, target: Target) -> str:
    machine = _machine(target)
    return str(machine.emit_assembly(_module(text, machine)))


def inner_loops(assembly: str) -> list[list[str]]:
    """The blocks of products that end with a jump back to their own label. The loop over the rows of a tile is none: it
    divides."""
    found: list[list[str]] = []
    label, block = "", list[str]()
    for line in (one.strip() for one in assembly.splitlines()):
        if re.match(r"\.LBB\w+:", line):
            label, block = line.partition(":")[0], []
            continue
        block.append(line)
        if re.match(rf"j\w+\s+{re.escape(label)}$", line) and label:
            multiplies = any(re.match(r"vfmadd|vpdpbusd|vdpbf16|vpmaddubsw", one) for one in block)
            if multiplies and not any(one.startswith("vdiv") for one in block):
                found.append(block)
            label, block = "", []
    return found


@pytest.mark.few(count=4)
@pytest.mark.parametrize(
    ("name", "kind"),
    # Not bf16 on AVX2: with 16 registers LLVM keeps widened weights in memory, and it is still faster than fewer sums.
    [(name, kind) for name in ("avx512-bf16", "avx2") for kind in NumberType if (name, kind) != ("avx2", "bf16")],
)
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_inner_loops_neither_spill_nor_copy(cell: str, name: str, kind: NumberType) -> None:
    target = TARGETS[name]
    spec = spec_for(library.CELLS[cell](), Sizes(64, 128), kind=kind)
    schedules = first_schedules(spec, target)
    # With the input in the loop, AVX2 has too few registers for the sums of both products; what is timed decides there.
    for schedule in [schedules.sequence] + [replace(schedules.step, rows=1 if kind is NumberType.INT4 else 2)] * (
        target.registers == 32
    ):
        text = emit(Layout(lower(spec.cell, spec.sizes, schedule, target.lanes), kind, target))
        loops = inner_loops(assembly_of(text, target))
        assert loops
        for loop in loops:
            assert not [line for line in loop if "(%rsp)" in line or "(%rbp)" in line]
            assert not [line for line in loop if re.match(r"v(mov\w+|movdqa\w*)\s+%[xyz]mm\d+, %[xyz]mm\d+", line)]
            products = [line for line in loop if re.match(r"vfmadd|vpdpbusd|vdpbf16|vpmaddubsw", line)]
            assert len(loop) <= 6 * len(products) + 10


def test_no_text_of_a_file_reaches_the_compiler() -> None:
    """Names of weights and of states are any text; functions and values of a module have names of ours."""
    from shoal.recurrent.cells.cell import Cell, checked
    from shoal.recurrent.cells.symbols import dot, make, parameter

    evil = 'x" } define void @evil() { ret void } ;'
    state = make("state", name=evil)
    cell = checked(Cell(evil, {evil: dot(evil + ".x", make("input", name="x")) * parameter(evil + ".p") + state}))
    spec = spec_for(cell, Sizes(3, 4))
    assert HOST is not None
    text = emit(Layout(lower(cell, spec.sizes, Schedule(), HOST.lanes), spec.kind, HOST))
    assert "evil" not in text
    layer = layer_for(spec, HOST, Schedule())
    out: Any = np.empty((2, 1, 4), np.float32)
    layer.run(np.ones((2, 1, 3), np.float32), {evil: np.zeros((1, 4), np.float32)}, None, out)
    assert np.isfinite(out).all()
