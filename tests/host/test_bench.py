"""The processes that the host component is measured with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from host.kernels import MemoryKernel
from host.neighbour import counter
from host.pipeline import BATCH, CHANNELS, CROP, FEATURES, STAGES, Pipeline
from host.rig import Phase, Rig, Window, told_twice
from host.trial import compare, settled_s

from shoal.core import Unavailable
from shoal.ring import Unit

ALONE_S = 1e-3


def steps(began_s: float, seconds: float, cpu_s: float) -> tuple[Unit, ...]:
    """Back to back, each as long as its CPU time."""
    return tuple(Unit(began_s + (n + 1) * cpu_s, cpu_s, cpu_s) for n in range(int(seconds / cpu_s)))


def window(*units: Unit, told: Collection[bool] = (True,), moved: int = 0) -> Window:
    first, last = units[0], units[-1]
    return Window(frozenset(told), first.end_s - first.wall_s, last.end_s, units, {MemoryKernel.NT_STORE: moved}, 0.01)


def test_contention_is_settled_when_steps_are_fast_again_and_stay_so() -> None:
    slow, back = steps(0.0, 0.2, 2.5 * ALONE_S), steps(0.2, 1.0, 1.02 * ALONE_S)
    found = settled_s(window(*slow, *back), ALONE_S, 1.055)
    assert found is not None
    assert 0.15 <= found <= 0.2
    assert settled_s(window(*steps(0.0, 1.0, 1.2 * ALONE_S)), ALONE_S, 1.055) is None
    assert settled_s(window(*steps(0.0, 1.0, ALONE_S)), ALONE_S, 1.055) == 0.0
    again = steps(0.5, 0.6, 1.3 * ALONE_S)
    assert settled_s(window(*slow, *steps(0.2, 0.3, ALONE_S), *again), ALONE_S, 1.055) is None


def test_ratios_are_to_alone_before_and_after() -> None:
    alone, hit = window(*steps(0.0, 0.5, ALONE_S)), window(*steps(1.0, 0.5, 1.25 * ALONE_S), moved=10**9)
    found = compare([Phase((MemoryKernel.NT_STORE,), 0.5)], alone, [hit], alone, max_slowdown=1.05)
    assert found is not None
    assert (found.same, found.flaw) == (True, "")
    assert found.speed == pytest.approx(0.8)
    assert (found.p50, found.p99) == (pytest.approx(1.25), pytest.approx(1.25))
    assert found.bytes_per_s == pytest.approx(2e9, rel=0.01)
    assert found.limiting == pytest.approx(0.02, rel=0.01)


@pytest.mark.parametrize(
    ("hit", "after", "flaw"),
    [
        (window(*steps(1.0, 0.5, ALONE_S), told={False}), window(*steps(2.0, 0.5, ALONE_S)), "another memory domain"),
        (window(*steps(1.0, 0.5, ALONE_S), told={True, False}), window(*steps(2.0, 0.5, ALONE_S)), "a CPU moved"),
        (window(*steps(1.0, 0.5, ALONE_S)), window(*steps(2.0, 0.5, 1.2 * ALONE_S)), "18% faster or slower"),
        (window(*steps(1.0, 0.01, ALONE_S)), window(*steps(2.0, 0.5, ALONE_S)), "interrupted"),
        (
            window(*steps(1.0, 0.5, ALONE_S), Unit(2.0, 0.5, 0.001)),
            window(*steps(2.0, 0.5, ALONE_S)),
            "got 50% of its CPU",
        ),
        (
            replace(window(*steps(1.0, 0.5, ALONE_S)), taken=0.2),
            window(*steps(2.0, 0.5, ALONE_S)),
            "others took 40% of the neighbours' CPU",
        ),
    ],
)
def test_what_says_nothing_of_the_setting_is_named(hit: Window, after: Window, flaw: str) -> None:
    before = window(*steps(0.0, 0.5, ALONE_S))
    found = compare([Phase((MemoryKernel.NT_STORE,), 0.5)], before, [hit], after, max_slowdown=1.05)
    assert found is not None
    assert flaw in found.flaw


def test_where_nothing_was_told_of_the_cpus_the_windows_around_tell() -> None:
    alone, untold = window(*steps(0.0, 0.5, ALONE_S)), window(*steps(1.0, 0.5, ALONE_S), told=())
    phase = [Phase((MemoryKernel.NT_STORE,), 0.5)]
    found = compare(phase, alone, [untold], alone, max_slowdown=1.05)
    assert found is not None
    assert (found.same, found.flaw) == (True, "")
    found = compare(phase, untold, [untold], untold, max_slowdown=1.05)
    assert found is not None
    assert found.flaw == "whether the CPUs share a memory domain could not be told"


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([True, True], True),
        ([None, None, True, None, True], True),
        ([False, True, None, True], True),
        ([False, False], False),
        ([None] * 12, None),
        ([True, *[None] * 11], None),
    ],
)
def test_a_single_answer_about_two_cpus_is_not_believed(answers: list[bool | None], told: bool | None) -> None:
    left = iter(answers)
    assert told_twice(lambda: next(left)) is told
    assert next(left, "none") == "none", "it is asked no more often than needed"


def test_onsets_are_where_a_flood_follows_upon_none() -> None:
    calm, storm = Phase((MemoryKernel.SPIN,), 1.0), Phase((MemoryKernel.NT_STORE,), 1.0)
    alone = window(*steps(0.0, 1.0, ALONE_S))
    found = compare([calm, storm, storm, calm], alone, [alone] * 4, alone, max_slowdown=1.05)
    assert found is not None
    assert found.settled_s == (0.0,)


def test_the_pipeline_normalises_and_lays_out_batches() -> None:
    pipeline = Pipeline(images=16)
    products = [pipeline.step() for _ in range(STAGES + 1)]
    assert products[0].shape == (CROP, FEATURES)
    stages = pipeline._stages
    assert stages.shape == (STAGES, BATCH, CHANNELS, CROP, CROP)
    assert np.all(stages == np.float32((7 - 127) / 64))  # every image is filled with 7, and every stage was written
    assert np.array_equal(products[0], products[-1])


def test_a_counter_is_seen_by_others(tmp_path: Path) -> None:
    first, second = counter(tmp_path / "page"), counter(tmp_path / "page")
    first.value = 1 << 40
    assert second.value == 1 << 40


def test_the_rig_wants_cpus_that_it_may_use() -> None:
    with pytest.raises(Unavailable):
        Rig(cpu=0, neighbour_cpu=4095)


@pytest.mark.slow
def test_a_window_tells_of_both_sides() -> None:
    try:
        rig = Rig()
    except Unavailable as problem:
        pytest.skip(str(problem))
    with rig:
        found = rig.window(MemoryKernel.NT_STORE, seconds=0.2)
    assert found.per_s(MemoryKernel.NT_STORE) > 0
    assert len(found.steps_s) > 0
    assert found.percentile_s(50) <= found.percentile_s(99)
