"""The programs by hand give what the plain ones give: else nothing could be said of their speed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shoal.offload.workloads import WORKLOADS, digest

pytest.importorskip("pandas")
pytest.importorskip("sklearn")

SIZES = {"dbscan": 320, "pca": 64, "tsvd": 64, "n-body": 60, "shallow-water": 16, "knn": 300}


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_program_by_hand_gives_what_the_plain_one_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from offload_programs import programs

    size = SIZES.get(name, 5000)
    assert WORKLOADS[name].elements(1 << 12) > 0
    found = programs(name)
    inputs = WORKLOADS[name].make(size)
    expected = digest(found["plain"](*inputs))
    for backend, program in found.items():
        if backend != "torch":  # to compile it takes a minute
            assert np.allclose(digest(program(*inputs)), expected, rtol=1e-6, atol=1e-6), backend
