"""One row through joins and trees without arrays: the same as many rows, or left to the ordinary path."""

from __future__ import annotations

import datetime
import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.pipeline import make_pipeline

from shoal.cascade import Join, native
from shoal.cascade.frontend.pipelines import lower_pipeline
from shoal.cascade.program import Program, Stage
from shoal.cascade.rules import MarginRule
from shoal.cascade.table import Table

pytestmark = pytest.mark.skipif(not native.available(), reason="the native part was not built")
TOWNS = pd.DataFrame({"town": ["a", "b", "c"], "hour": [1, 2, 3], "wind": [0.5, -1.0, 2.0]})
PLANES = pd.DataFrame({"tail": [1, 2, 5], "seats": [100.0, 200.0, 3.0]})


BOOSTED = GradientBoostingClassifier(n_estimators=8, random_state=0)


@functools.cache
def program_of(name: str) -> Program:
    """Two stages: the first reads the row's own numbers, the second the joined ones as well."""
    classes = 3 if name == "three" else 2
    model = RandomForestClassifier(5, random_state=0) if name == "forest" else BOOSTED
    draw = np.random.default_rng(0)
    rows = pd.DataFrame({
        "x": draw.normal(size=300), "z": draw.integers(0, 9, 300), "town": draw.choice(list("abcd"), 300),
        "hour": draw.integers(1, 4, 300), "tail": draw.integers(0, 7, 300),
    })  # fmt: skip
    y = (rows.x + (rows.tail == 2) + (rows.town == "b") * 2).round().astype(int) % classes
    parts = [
        ("own", "passthrough", ["x", "z"]),
        ("town", Join(TOWNS, ["town", "hour"], ["wind"], missing=-3.0), ["town", "hour"]),
        ("plane", Join(PLANES, ["tail"], ["seats"], missing=-1.0), ["tail"]),
    ]
    fitted = make_pipeline(ColumnTransformer(parts), model).fit(rows, y)
    full, remarks = lower_pipeline(fitted, Table.of(rows))
    assert remarks == []
    small, _ = lower_pipeline(make_pipeline(ColumnTransformer(parts[:1]), model).fit(rows, y), Table.of(rows))
    margins = small.output.margins(small.run(Table.of(rows)).scores)
    thresholds = (float(np.median(margins)),) * classes
    return Program(full.groups, [replace(small.stages[0], rule=MarginRule(thresholds)), *full.stages])


NAMES = ("two", "three", "forest")
NUMBERS = st.one_of(st.integers(-3, 9), st.floats(), st.booleans(), st.floats(-3, 3).map(np.float64))
ROWS = st.fixed_dictionaries({
    "x": NUMBERS, "z": NUMBERS, "town": st.sampled_from(["a", "b", "c", "none", np.str_("a")]),
    "hour": st.one_of(st.integers(0, 4), st.sampled_from([1.0, 2.5])), "tail": st.one_of(st.integers(0, 7), NUMBERS),
})  # fmt: skip


@given(ROWS, st.sampled_from(NAMES), st.booleans())
def test_one_row_is_answered_like_one_of_many(row: dict[str, Any], name: str, arrays: bool) -> None:
    program = program_of(name)
    one = Table({key: np.array([value]) if arrays else [value] for key, value in row.items()}, 1)
    try:
        several = program.run(Table.of({key: [value, value] for key, value in row.items()}))
    except ValueError as error:
        with pytest.raises(ValueError, match=str(error)):
            program.run(one)
        return
    found = program.score_one(one)
    assert found is not None
    np.testing.assert_array_equal(found[0], several.scores[0])
    assert found[1] == several.stages[0]
    np.testing.assert_array_equal(program.run(one).scores, several.scores[:1])


def test_both_stages_answer() -> None:
    rows = [{"x": x / 10, "z": 1, "town": "a", "hour": 1, "tail": 2} for x in range(-30, 30)]
    stages = {int(program_of("two").run(Table.of([row])).stages[0]) for row in rows}
    assert stages == {0, 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"x": None}, {"x": "1.5"}, {"x": "no number"}, {"town": None}, {"tail": datetime.date(2013, 1, 1)},
        {"x": 10**400}, {"tail": np.datetime64("2013-01-01")},
    ],
)  # fmt: skip
def test_a_value_of_another_kind_gets_what_it_gets_among_others(wrong: dict[str, Any]) -> None:
    row = {"x": 0.1, "z": 1, "town": "a", "hour": 1, "tail": 2, **wrong}

    def outcome(rows: int) -> Any:
        try:
            return program_of("two").run(Table({key: [value] * rows for key, value in row.items()}, rows)).scores[0]
        except Exception as error:
            return type(error)

    several = outcome(2)
    if isinstance(several, type):
        assert outcome(1) is several
    else:
        np.testing.assert_array_equal(outcome(1), several)


def test_a_column_that_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="'x'"):
        program_of("two").run(Table({"z": [1], "town": ["a"], "hour": [1], "tail": [2]}, 1))


def test_other_steps_and_models_take_the_ordinary_path() -> None:
    program = program_of("two")
    scaled = make_pipeline(ColumnTransformer([("own", "passthrough", ["x"])]), BOOSTED)
    rows = pd.DataFrame({"x": np.arange(20.0)})
    lowered, _ = lower_pipeline(scaled.fit(rows, rows.x > 7), Table.of(rows))
    assert lowered.score_one(Table.of({"x": [3.0]})) is not None
    steps = (*lowered.groups[0].steps, *lowered.groups[0].steps)
    other = Program([replace(lowered.groups[0], steps=steps)], [Stage((0,), lowered.stages[0].model)])
    assert other.score_one(Table.of({"x": [3.0]})) is None
    np.testing.assert_array_equal(other.run(Table.of({"x": [3.0]})).scores, lowered.run(Table.of({"x": [3.0]})).scores)
    assert program.score_one(Table.of(np.ones((1, 5)))) is None
