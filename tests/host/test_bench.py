"""The processes that the host room is measured with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shoal.core import Unavailable
from shoal.host.bench.neighbour import counter
from shoal.host.bench.pipeline import BATCH, CHANNELS, CROP, FEATURES, STAGES, Pipeline
from shoal.host.bench.rig import Rig
from shoal.host.native import Kernel


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
        window = rig.window(Kernel.NT_STORE, seconds=0.2)
    assert window.bytes_per_s > 0
    assert len(window.steps_s) > 0
    assert window.percentile_s(50) <= window.percentile_s(99)
