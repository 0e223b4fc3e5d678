"""Arrays that a captured program gives to pandas, pending or tracked: each call shows what pandas shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from shoal.offload import OffloadSettings, install, uninstall

TAKING: dict[str, Any] = {
    "series": lambda a: pd.Series(a),
    "series that shares": lambda a: pd.Series(a, copy=False),
    "index": lambda a: pd.Index(a).get_indexer(a),
    "frame": lambda a: pd.DataFrame({"x": a}, copy=False)["x"],
    "column": lambda a: pd.DataFrame({"y": range(100)}).assign(x=a)["x"],
    "inserted": lambda a: _with_column(a)["x"],
    "labels": lambda a: pd.DataFrame({"x": a}).set_index(a).loc[float(a[3])],
    "new labels": lambda a: _labelled(a).loc[float(a[3]), "y"],
    "cut": lambda a: pd.cut(a, 5).codes,
    "quantiles": lambda a: pd.qcut(a, 4).codes,
    "extension": lambda a: pd.arrays.NumpyExtensionArray(a),
    "masked": lambda a: pd.array(a, dtype="Float64") * 2,
    "times": lambda a: pd.to_datetime(a, unit="s"),
    "intervals": lambda a: pd.to_timedelta(a, unit="s"),
    "breaks": lambda a: pd.IntervalIndex.from_breaks(a).left,
    "groups": lambda a: pd.Series(a).groupby(a).sum(),
    "categories": lambda a: pd.Categorical(a).codes,
}


def _with_column(a: Any) -> Any:
    frame = pd.DataFrame({"y": range(100)})
    frame.insert(0, "x", a)
    return frame


def _labelled(a: Any) -> Any:
    frame = pd.DataFrame({"y": range(100)})
    frame.index = a
    return frame


def shared(a: Any) -> list[float]:
    """What is seen after a write through a Series that may share the array's memory."""
    series = pd.Series(a, copy=False)
    later = a + 1
    series.iloc[0] = 100.0
    a[1] = 50.0
    return [float(each) for each in (later[0], a[0], series.iloc[0], series.iloc[1], (a + 1)[0])]


TAKING["what shares memory"] = shared


@pytest.mark.parametrize("name", TAKING)
@pytest.mark.parametrize("make", [lambda: np.arange(100.0), lambda: np.arange(100.0) * 2 + 1])
def test_pandas_takes_captured_arrays_as_plain_ones(name: str, make: Any, tmp_path: Path) -> None:
    uninstall()
    expected = TAKING[name](make())
    install(OffloadSettings(threshold=1, threads=2, home=str(tmp_path)))
    try:
        found = TAKING[name](make())
        kept = pd.arrays.NumpyExtensionArray(make())._ndarray
        assert type(kept) is type(pd.Series(make())._mgr.blocks[0].values) is np.ndarray
    finally:
        uninstall()
    assert type(found) is type(expected)
    assert repr(found) == repr(expected)


def test_uninstall_puts_back_how_pandas_takes_arrays(tmp_path: Path) -> None:
    uninstall()
    before = {name: getattr(pd, name) for name in ("array", "to_datetime", "to_timedelta")}
    stored = pd.core.series.sanitize_array
    install(OffloadSettings(threshold=1, home=str(tmp_path)))
    assert pd.core.series.sanitize_array is not stored
    uninstall()
    assert pd.core.series.sanitize_array is stored
    assert {name: getattr(pd, name) for name in before} == before
