"""Services with everything killed at random."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.engine.simulated import run
from tests.serve.live.simulation import simulate


@pytest.mark.few
@pytest.mark.parametrize("seed", range(2))
def test_no_service_is_lost_or_doubled_whatever_dies(seed: int, tmp_path: Path) -> None:
    world = run(simulate(seed, tmp_path), start=1_700_000_000)
    assert world.crashes > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 250))
def test_no_service_is_lost_or_doubled_many_seeds(seed: int, tmp_path: Path) -> None:
    run(simulate(seed, tmp_path, wishes=60, crash_rate=0.05), start=1_700_000_000)
