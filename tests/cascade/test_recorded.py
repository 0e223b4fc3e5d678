"""Features of Python functions: branches and loops, calls that are put off, and those that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from shoal.cascade import Cascade, Recorded, optimize
from shoal.core import Invalid
from tests.cascade import recorded_features as marked


def frame(rows: int = 800) -> tuple[pd.DataFrame, Any]:
    draw = np.random.default_rng(0)
    made = pd.DataFrame(
        {
            "home": draw.choice(["a", "bb", "ccc"], rows), "work": draw.choice(["a", "dddd"], rows),
            "away": draw.integers(0, 2, rows), "x": draw.normal(size=rows),
        }
    )  # fmt: skip
    return made, (made.x + 0.3 * made.home.str.len() > 0.5).astype(int).to_numpy()


def test_each_marked_function_is_a_group_and_the_predictions_are_those_of_the_function(tmp_path: Path) -> None:
    X, y = frame()
    cascade = optimize(make_pipeline(Recorded(marked.features), LogisticRegression()), X, y)
    assert [group.name for group in cascade.full.groups] == ["town", "code", "squares"]
    assert [group.width for group in cascade.full.groups] == [2, 3, 2]
    assert any("looked_at" in remark for remark in cascade.explain()["remarks"])
    plain = np.array(
        [[float(v) for item in marked.features(row) for v in np.ravel(item)] for row in X.to_dict("records")]
    )
    made = cascade.original[0].transform(X)
    np.testing.assert_array_equal(made, plain)
    np.testing.assert_array_equal(cascade.predict(X), cascade.original.predict(X))
    marked.CALLS.clear()
    cascade.predict(X[:100])
    assert marked.CALLS.count(("batch", 200)) == 1  # both calls of all rows
    assert marked.CALLS.count("squares") == 100
    cascade.save(tmp_path / "one.cascade")
    np.testing.assert_array_equal(Cascade.load(tmp_path / "one.cascade").predict(X), cascade.predict(X))


def test_outside_of_a_recording_a_marked_function_is_the_plain_one() -> None:
    assert marked.town("abc") == 3.0
    assert marked.squares(3.0) == (9.0, 3.0)


@pytest.mark.parametrize("function", [marked.branching, marked.rare])
def test_branches_that_give_another_feature_are_code_and_those_never_met_are_right(function: Any) -> None:
    X, _ = frame()
    recorded = Recorded(function).fit(X[X.x < 2])
    if function is marked.branching:
        assert recorded.layout_.names == ("code", "town", "code")
        assert recorded.layout_.eager >= {"near", "far"}
    X.loc[3:5, "x"] = 11.0
    plain = np.array([function(row) for row in X.to_dict("records")])
    places = [place for group in recorded.layout_.groups for place, name in enumerate(recorded.layout_.names) if
              name == group]  # fmt: skip
    np.testing.assert_array_equal(recorded.transform(X), plain[:, places])


def test_a_function_whose_features_differ_by_row_is_refused() -> None:
    X, y = frame()
    with pytest.raises(Invalid, match="returns \\[1, 2\\] features"):
        make_pipeline(Recorded(marked.uneven), LogisticRegression()).fit(X, y)


def test_a_function_that_cannot_be_imported_is_not_written(tmp_path: Path) -> None:
    X, y = frame()
    cascade = optimize(
        make_pipeline(Recorded(lambda row: [row["x"], marked.town(row["home"])]), LogisticRegression()), X, y
    )
    with pytest.raises(Invalid, match="cannot be imported"):
        cascade.save(tmp_path / "one.cascade")
