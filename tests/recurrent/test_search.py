"""The search and the models: deterministic under a recorded clock, within its limits, and what it prunes by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.recurrent.cells import library
from shoal.recurrent.chip.models import TABLE, Brainwave, Plasticine, Shape
from shoal.recurrent.compile import faster
from shoal.recurrent.layers.layer import Schedules
from shoal.recurrent.layers.make import best_target
from shoal.recurrent.llvm.cache import KernelCache
from shoal.recurrent.llvm.target import TARGETS, host_target
from shoal.recurrent.loading import maker, read
from shoal.recurrent.nest.ir import Sizes
from shoal.recurrent.nest.transform import Schedule
from shoal.recurrent.network.graph import Graph
from shoal.recurrent.numbers import NumberType
from shoal.recurrent.search.machine import Machine, measured
from shoal.recurrent.search.model import (
    candidates,
    cost_of,
    first_schedules,
    gates_of,
    predict_s,
    registers_needed,
    roofline_s,
)
from shoal.recurrent.search.tune import Search
from tests.recurrent.support import spec_for
from tests.recurrent.test_onnx import lstm_between_others

MACHINE = Machine(
    "made up",
    ((1 << 16, 100e9), (1 << 20, 50e9), (1 << 24, 20e9)),
    {NumberType.FP32: 100e9, NumberType.BF16: 100e9, NumberType.INT8: 200e9, NumberType.INT4: 200e9},
)
SPEC = spec_for(library.lstm(), Sizes(8, 16))


def recorded() -> Iterator[float]:
    """A clock whose every second reading is later by another amount."""
    now, turn = 0.0, 0
    while True:
        turn += 1
        now += 1e-3 * (1 + (turn * 7) % 5)
        yield now


def search(clock: Iterator[float], timed: int = 6) -> Search:
    target = host_target()
    assert target is not None
    return Search(target, MACHINE, KernelCache(None), steps=4, rows=2, timed=timed, rounds=2, clock=lambda: next(clock))


@pytest.mark.slow
def test_the_search_is_the_same_under_a_recorded_clock() -> None:
    first, second = search(recorded()).run(SPEC), search(recorded()).run(SPEC)
    assert first == second
    assert len(first.tried) == 6
    assert first.schedules.sequence == first.tried[0].schedule
    assert first.tried[0].measured_s == min(one.measured_s for one in first.tried if one.steps > 1)
    assert first.schedules.step in {one.schedule for one in first.tried if one.steps == 1}


def test_at_most_thirty_candidates_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def count(_self: Search, _spec: object, schedules: list[Schedule], *_: object) -> list[float]:
        counted.append(len(schedules))
        return [1.0] * len(schedules)

    monkeypatch.setattr(Search, "_time", count)
    search(recorded(), timed=500).run(SPEC)
    assert 20 < sum(counted) <= 30  # fewer where the space is smaller


@pytest.mark.parametrize("target", ["avx2", "avx512-bf16", "neon-dot"])
@pytest.mark.parametrize("name", library.CELLS)
def test_no_candidate_needs_more_registers_than_there_are(name: str, target: str) -> None:
    spec = spec_for(library.CELLS[name](), Sizes(8, 16))
    where = TARGETS[target]
    space = candidates(spec, where, steps=8, rows=8)
    assert space
    first = first_schedules(spec, where)
    for one in [*space, first.sequence, first.step]:
        most = gates_of(spec)
        hoisted = (1, one.steps if one.hoist else 1, one.hoisted_gates)
        for units, tile, gates in ((one.units, one.rows, one.gates), hoisted):
            assert units * tile == 1 or registers_needed(spec, where, units, tile, gates or most) <= where.registers
        assert (one.gates or most) * one.units * one.rows <= where.registers


def test_the_model_counts_bytes_and_operations() -> None:
    cost = cost_of(spec_for(library.lstm(), Sizes(8, 16), kind=NumberType.INT8), TARGETS["avx2"])
    assert (cost.recurrent_bytes, cost.input_bytes) == (4 * 16 * 16, 4 * 16 * 8)
    assert (cost.recurrent_ops, cost.input_ops) == (2 * 4 * 16 * 16, 2 * 4 * 16 * 8)


def test_more_bytes_from_farther_away_take_longer() -> None:
    assert MACHINE.bytes_per_s(1) == MACHINE.bytes_per_s(1 << 16) == 100e9
    assert MACHINE.bytes_per_s((1 << 16) + (1 << 20)) < 50e9
    assert 50e9 < MACHINE.bytes_per_s(1 << 18) < 100e9
    assert MACHINE.bytes_per_s(1 << 30) == 20e9
    large, small = (spec_for(library.lstm(), Sizes(size, size)) for size in (256, 64))
    target = TARGETS["avx2"]
    schedule = Schedule(units=3, rows=1)
    assert predict_s(large, target, MACHINE, schedule, 10, 1) > 10 * predict_s(small, target, MACHINE, schedule, 10, 1)
    alone = Schedule(units=1, rows=1, unroll=1)
    slow = replace(SPEC, kind=NumberType.INT8)
    assert predict_s(slow, target, MACHINE, alone, 10, 1) > predict_s(slow, target, MACHINE, schedule, 10, 1)
    for size in (64, 256):
        spec = spec_for(library.lstm(), Sizes(size, size))
        assert roofline_s(spec, target, MACHINE, 10) <= predict_s(spec, target, MACHINE, schedule, 10, 1)


def test_the_machine_is_measured_once(tmp_path: Path) -> None:
    target = host_target()
    assert target is not None
    first = measured(target, tmp_path)
    assert first == measured(target, tmp_path, clock=lambda: pytest.fail("it was measured again"))
    assert all(rate > 0 for _, rate in first.bandwidth)
    (entry,) = tmp_path.iterdir()
    entry.write_text("[]")
    assert measured(target, tmp_path).processor == first.processor


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.cell}-{row.hidden}")
def test_the_search_finds_the_table_of_the_paper(row: object) -> None:
    """All rows but the LSTM of 512 units, for which the model finds a mapping that is faster than what was printed."""
    from shoal.recurrent.chip.models import PrintedRow

    assert isinstance(row, PrintedRow)
    chip = Plasticine()
    shape = chip.best(row.cell, row.hidden)
    found = chip.seconds(row.cell, row.hidden, row.steps, shape) * 1e3
    if (row.cell, row.hidden) == ("lstm", 512):
        assert found < row.plasticine_ms
    elif (row.cell, row.hidden) == ("lstm", 256):
        assert found == pytest.approx(row.plasticine_ms, rel=0.03)
    elif (row.cell, row.hidden) == ("gru", 512):
        assert abs(found - row.plasticine_ms) <= 0.00005  # half of its last digit
    else:
        assert shape == (Shape(4, 8) if row.cell == "lstm" else Shape(5, 8))
        assert found == pytest.approx(row.plasticine_ms, rel=2e-3)
    if (row.cell, row.hidden) != ("gru", 512):  # one step: all of it is start-up
        assert Brainwave().seconds(row.cell, row.hidden, row.steps) * 1e3 == pytest.approx(row.brainwave_ms, rel=0.1)


def test_no_mapping_exceeds_the_chip() -> None:
    chip = Plasticine()
    for row in TABLE:
        shape = chip.best(row.cell, row.hidden)
        assert chip.compute_needed(row.cell, shape) <= chip.compute_units
        larger = Shape(shape.units + 1, shape.unroll)
        assert chip.compute_needed(row.cell, larger) > chip.compute_units or chip.cycles(
            row.cell, row.hidden, larger
        ) >= chip.cycles(row.cell, row.hidden, shape)


def test_a_network_runs_whole_where_that_is_faster(tmp_path: Path) -> None:
    """By a recorded clock: the calls of both in turns, each with a reading before and after."""
    path = lstm_between_others(tmp_path / "m.onnx")
    graph, whole = read(path), read(path, without="it is faster")
    plain = Schedules(Schedule(1, 1, 1, False, 1), Schedule(1, 1, 1, False, 1))
    make = maker(best_target(), KernelCache(None), lambda *_: plain)

    def chosen(ours: float, theirs: float) -> Graph:
        readings = [0.0]
        for took in (ours, theirs) * 5:
            readings += [readings[-1], readings[-1] + took]
        clock = iter([*readings, readings[-1]]).__next__
        return faster(graph, whole, make, steps=3, seconds=0.0, clock=clock)

    assert chosen(1.0, 2.0) is graph
    assert chosen(1.0, 0.97) is graph
    found = chosen(2.0, 1.0)
    assert not found.recurrences
    assert "all of it runs in ONNX Runtime" in found.remarks[-1]
