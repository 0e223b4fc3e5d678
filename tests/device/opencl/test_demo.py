"""The two programs of the demo, beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.core import Unavailable
from shoal.device import demo, opencl


@pytest.mark.slow
def test_the_training_goes_whole_and_then_in_slices(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POCL_CACHE_DIR", environment["POCL_CACHE_DIR"])
    told = list(demo.show(6, every_s=3))
    assert [one.phase for one in told] == ["whole", "sliced"]
    whole, sliced = told
    assert whole.requests > 0
    assert sliced.requests > 0
    # The one that runs as the phase begins, and the one as it ends, are counted once or twice.
    assert abs(whole.pieces - whole.steps) <= 2
    # 512 groups in slices of 8.
    assert 64 * (sliced.steps - 2) <= sliced.pieces <= 64 * (sliced.steps + 2)
    assert sliced.pieces > 2
    assert 0 < whole.p50_ms <= whole.worst_ms


def test_without_opencl_it_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(opencl, "DIRECTORY", tmp_path)
    with pytest.raises(Unavailable, match="was not built"):
        list(demo.show())


def test_a_program_that_does_not_start_says_why(environment: dict[str, str]) -> None:
    with pytest.raises(Unavailable, match=r"inference program did not start .* did not match any platform"):
        demo.Program("inference", 25, {"PYOPENCL_CTX": "nonsense:9"})
