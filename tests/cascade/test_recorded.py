"""Features of Python functions: branches and loops, calls that are put off, and those that cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
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
    lineage = {group["name"]: group["columns"] for group in cascade.explain()["groups"]}
    assert lineage == {"town": ["home", "work", "away"], "code": ["x"], "squares": ["x"]}
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


def test_lineage_reaches_through_branches_loops_and_failures() -> None:
    X = pd.DataFrame({"kind": ["a", "b"] * 20, "size": np.arange(40.0), "parts": ["x y", "z"] * 20, "unread": 1.0})

    def function(row: Any) -> list[Any]:
        total = sum(len(part) for part in row["parts"].split())
        by_kind = {"a": row["size"], "b": 0.0}[row["kind"]]
        return [marked.near(by_kind), marked.town(row["kind"] + "x"), 1.0 + total]

    assert Recorded(function).fit(X).layout_.lineage == {
        "near": ("kind", "size"), "town": ("kind",), "code": ("parts",),
    }  # fmt: skip

    def strict(row: Any) -> list[Any]:
        if row["kind"] == "a" and row["parts"] == "z":
            raise RuntimeError("no such row")
        return [marked.near(row["size"])]

    assert Recorded(strict).fit(X).layout_.lineage == {"near": ("kind", "size", "parts")}


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


@pytest.mark.slow
def test_a_certificate_is_for_the_code_of_its_functions(tmp_path: Path) -> None:
    """In a process of its own each time: it has the module as it is then."""
    make = (
        "import numpy as np, pandas as pd\n"
        "from sklearn.linear_model import LogisticRegression\n"
        "from sklearn.pipeline import make_pipeline\n"
        "from sklearn.compose import ColumnTransformer\n"
        "from sklearn.preprocessing import FunctionTransformer\n"
        "from shoal.cascade import optimize\n"
        "import mine\n"
        "X = pd.DataFrame(np.random.default_rng(0).normal(size=(3000, 2)) * [1, 20], columns=['x', 'y'])\n"
        "parts = [('x', FunctionTransformer(mine.half), ['x']), ('y', 'passthrough', ['y'])]\n"
        "c = optimize(make_pipeline(ColumnTransformer(parts), LogisticRegression()), X, X.x + X.y > 0, max_loss=0.05,"
        " objective='single')\n"
        "print(c.certificate is not None, c.explain().get('reason')); c.save('one.cascade')\n"
    )
    look = (
        "from shoal.cascade import Cascade\n"
        "c = Cascade.load('one.cascade'); print(c.certificate, c.explain()['reason'])"
    )
    code = "import time\n\n\ndef half(x):\n    time.sleep(1e-4)\n    return x / 2\n"
    (tmp_path / "mine.py").write_text(code)
    assert "True" in ran(make, tmp_path)
    (tmp_path / "mine.py").write_text(code.replace("/ 2", "/ 3"))
    assert "None the code of mine:half is not what was certified" in ran(look, tmp_path)


def ran(script: str, folder: Path) -> str:
    path = f"{folder}:{Path(__file__).parents[2]}"
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    ).stdout
