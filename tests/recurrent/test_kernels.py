"""Compiled kernels against the interpreter in 64 bits, over cells, sizes, number types, targets and schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.recurrent.cells import library
from shoal.recurrent.layers.layer import LayerSpec, Schedules
from shoal.recurrent.layers.make import make_layer
from shoal.recurrent.llvm.cache import KernelCache
from shoal.recurrent.llvm.target import TARGETS, Target, fitting, host_features
from shoal.recurrent.nest.ir import Sizes
from shoal.recurrent.nest.transform import Schedule
from shoal.recurrent.numbers import NumberType
from tests.recurrent.support import distance, reference, spec_for, states_for

CELLS = {
    **library.CELLS,
    "lstm-peepholes": lambda: library.lstm(peepholes=True, coupled=True, clip=0.4),
    "lstm-projection": lambda: library.lstm(projection=True),
    "gru-before": lambda: library.gru(reset_after=False),
}
HERE = fitting("x86_64", host_features()) or [TARGETS["sse2"]]
EXACT = {NumberType.FP32: 2e-6, NumberType.BF16: 5e-3, NumberType.INT8: 1e-2, NumberType.INT4: 0.12}
"""The bounds against weights of fp32."""


def run(
    spec: LayerSpec, target: Target, schedule: Schedule, x: Any, states: Any, lengths: Any = None
) -> tuple[Any, Any]:
    layer = make_layer(spec, target, Schedules(schedule, schedule), KernelCache(None))
    out = np.full((*x.shape[:2], spec.output_size), np.nan, np.float32)
    return out, layer.run(x, states, lengths, out)


@pytest.mark.few(count=11)
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("kind", NumberType)
def test_every_cell_gives_what_the_interpreter_gives(name: str, kind: NumberType) -> None:
    noise = np.random.default_rng(1)
    spec = spec_for(CELLS[name](), Sizes(13, 37, 11 if name == "lstm-projection" else 0), kind=kind)
    x, states = noise.uniform(-1, 1, (9, 3, 13)).astype(np.float32), states_for(spec, 3, noise)
    rounded, last = reference(spec, x, states, kind)
    exact, _ = reference(spec, x, states, NumberType.FP32)
    for target in HERE if name in ("lstm", "gru-before") else HERE[:1]:
        if target.bf16.value == "vdpbf16ps" and kind is NumberType.BF16:
            continue  # it rounds the vectors too, which the interpreter does not
        found, after = run(spec, target, Schedule(2, 1, 2, True, 2), x, states)
        assert distance(found, rounded) < 2e-6, target.name
        assert distance(found, exact) < EXACT[kind], target.name
        for state, value in last.items():
            assert distance(after[state], value) < 2e-6, (target.name, state)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_no_schedule_changes_a_bit(data: st.DataObject) -> None:
    """Sums run in one order, whatever is tiled, unrolled, hoisted or swept backward."""
    draw = data.draw
    cell = CELLS[draw(st.sampled_from(sorted(CELLS)))]()
    sizes = Sizes(draw(st.integers(1, 40)), draw(st.integers(1, 70)), draw(st.integers(1, 20)) if cell.projected else 0)
    spec = spec_for(cell, sizes, kind=draw(st.sampled_from(list(NumberType))), seed=draw(st.integers(0, 9)))
    steps, rows = draw(st.integers(0, 9)), draw(st.integers(1, 6))
    noise = np.random.default_rng(draw(st.integers(0, 9)))
    x, states = noise.uniform(-1, 1, (steps, rows, sizes.input)).astype(np.float32), states_for(spec, rows, noise)
    target = HERE[0]
    plain, last = run(spec, target, Schedule(1, 1, 1, False, 1, False), x, states)
    schedule = Schedule(
        draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.booleans()),
        draw(st.integers(1, 3)), draw(st.booleans()), draw(st.integers(0, 3)), draw(st.integers(0, 3)),
    )  # fmt: skip
    found, after = run(spec, target, schedule, x, states)
    assert np.array_equal(found, plain)
    for state, value in last.items():
        assert np.array_equal(after[state], value)


@settings(max_examples=10, deadline=None)
@given(data=st.data())
@pytest.mark.slow
def test_lengths_and_directions_are_those_of_each_row_alone(data: st.DataObject) -> None:
    draw = data.draw
    steps, rows = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    lengths = np.array(draw(st.lists(st.integers(0, steps), min_size=rows, max_size=rows)))
    spec = spec_for(
        library.gru(), Sizes(5, 19), kind=draw(st.sampled_from(list(NumberType))), reverse=draw(st.booleans())
    )
    noise = np.random.default_rng(3)
    x, states = noise.uniform(-1, 1, (steps, rows, 5)).astype(np.float32), states_for(spec, rows, noise)
    schedule = Schedule(hoist=draw(st.booleans()))
    found, after = run(spec, HERE[0], schedule, x, states, lengths)
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        alone, last = run(spec, HERE[0], schedule, x[:length, one], {"h": states["h"][one]})
        assert np.array_equal(found[:length, row], alone[:, 0])
        assert not found[length:, row].any()
        assert np.array_equal(after["h"][row], last["h"][0])


def test_a_long_sequence_runs_in_pieces() -> None:
    """100,000 steps do not need the memory of 100,000 hoisted products, and states go on from piece to piece."""
    spec = spec_for(library.rnn(), Sizes(2, 3))
    x = np.random.default_rng(0).uniform(-1, 1, (100_000, 1, 2)).astype(np.float32)
    states = {"h": np.zeros((1, 3), np.float32)}
    found, last = run(spec, HERE[0], Schedule(), x, states)
    tail, _ = reference(spec, x[-300:], states, NumberType.FP32)
    assert distance(found[-50:], tail[-50:]) < 2e-6
    assert np.array_equal(last["h"], found[-1])


@pytest.mark.parametrize("kind", NumberType)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_a_number_comes_out_where_the_reference_has_it(kind: NumberType, bad: float) -> None:
    spec = spec_for(library.lstm(), Sizes(4, 20), kind=kind)
    x = np.random.default_rng(0).uniform(-1, 1, (5, 2, 4)).astype(np.float32)
    x[2, 1, 3] = bad
    states = {name: np.zeros((2, 20), np.float32) for name in "hc"}
    found, _ = run(spec, HERE[0], Schedule(), x, states)
    wanted, _ = reference(spec, x, states, kind)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert np.isfinite(found[:, 0]).all()


@pytest.mark.few(count=7)
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kind", NumberType)
def test_every_target_compiles(name: str, kind: NumberType) -> None:
    from shoal.recurrent.llvm.engine import compile_object
    from shoal.recurrent.llvm.kernel import emit
    from shoal.recurrent.llvm.layout import Layout
    from shoal.recurrent.nest.transform import lower

    target = TARGETS[name]
    code = compile_object(
        emit(Layout(lower(library.gru(), Sizes(8, 16), Schedule(), target.lanes), kind, target)), target
    )
    assert code.startswith(b"\x7fELF")
    assert int.from_bytes(code[18:20], "little") == (62 if target.x86 else 183)  # the machine of an ELF file
