"""Whole pipelines against scikit-learn's own predictions: groups, columns, models, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, SGDClassifier
from sklearn.naive_bayes import ComplementNB, MultinomialNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC

from shoal.cascade.cascade import Cascade
from shoal.cascade.frontend.pipelines import lower_pipeline
from shoal.cascade.sharing import Shared
from shoal.cascade.steps.columns import Affine, Impute, ImputeCategory, OneHot
from shoal.cascade.table import Table
from tests.cascade.conftest import text_pipeline, texts


def frame(rows: int = 300, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    draw = np.random.default_rng(seed)
    made = pd.DataFrame(
        {
            "age": draw.normal(40, 10, rows), "income": draw.lognormal(3, 1, rows),
            "town": draw.choice(list("abcd"), rows),
            "kind": draw.choice(["x", "y", None], rows), "visits": draw.integers(0, 5, rows),
            "note": [" ".join(draw.choice(["good", "bad", "ok", "fine"], 4)) for _ in range(rows)],
        }
    )  # fmt: skip
    made.loc[draw.random(rows) < 0.2, "age"] = np.nan
    y = ((made.town == "a") | (made.note.str.count("good") > 1)).astype(int).to_numpy()
    return made, y


def lengths(texts: Any) -> Any:
    return np.array([[len(text), text.count("o")] for text in texts], float)


def mixed(model: Any, **drop: Any) -> Any:
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), ["age", "income"]),
            ("towns", OneHotEncoder(handle_unknown="ignore", **drop), ["town"]),
            ("kinds", make_pipeline(SimpleImputer(strategy="most_frequent"), OrdinalEncoder()), ["kind"]),
            ("words", CountVectorizer(), "note"),
            ("extra", FunctionTransformer(lengths), "note"),
            ("left", "passthrough", ["visits"]),
        ]
    )
    return make_pipeline(columns, MaxAbsScaler(), model)


def compiled(pipeline: Any, X: Any) -> Cascade:
    table = Table.of(X)
    program, _ = lower_pipeline(pipeline, table)
    return Cascade(program, list(table.columns))


def assert_same(cascade: Cascade, pipeline: Any, X: Any) -> None:
    if not hasattr(pipeline, "classes_"):
        np.testing.assert_allclose(cascade.predict(X), pipeline.predict(X), rtol=1e-9, atol=1e-9)
        return
    np.testing.assert_array_equal(cascade.predict(X), pipeline.predict(X))
    if hasattr(pipeline, "decision_function"):
        np.testing.assert_allclose(cascade.decision_function(X), pipeline.decision_function(X), rtol=1e-9, atol=1e-9)
    if hasattr(pipeline, "predict_proba"):
        np.testing.assert_allclose(cascade.predict_proba(X), pipeline.predict_proba(X), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "model",
    [LogisticRegression(max_iter=300), LinearSVC(), SGDClassifier(loss="log_loss"), RandomForestClassifier(7), Ridge(),
     CalibratedClassifierCV(LinearSVC())],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_columns_of_all_kinds(model: Any) -> None:
    X, y = frame()
    pipeline = mixed(model).fit(X[:200], y[:200])
    cascade = compiled(pipeline, X)
    assert [group.name for group in cascade.full.groups] == ["numbers", "towns", "kinds", "words", "extra", "left"]
    assert cascade.full.groups[0].columns == ("age", "income")
    assert_same(cascade, pipeline, X[200:].assign(town="zz", unused=1))
    assert_same(cascade, pipeline, X[200:201])


@pytest.mark.parametrize("drop", [{}, {"drop": "first"}, {"drop": "if_binary"}])
def test_dropped_categories(drop: dict[str, Any]) -> None:
    X, y = frame()
    pipeline = mixed(LogisticRegression(max_iter=300), **drop).fit(X, y)
    assert_same(compiled(pipeline, X), pipeline, X)


SCALERS = st.sampled_from(
    [StandardScaler(), StandardScaler(with_mean=False), StandardScaler(with_std=False), MinMaxScaler(clip=True),
     MinMaxScaler((-1, 3)), MaxAbsScaler(), RobustScaler(), RobustScaler(with_centering=False),
     SimpleImputer(strategy="mean"), SimpleImputer(strategy="constant", fill_value=7),
     SimpleImputer(missing_values=0.0), "passthrough", PCA(2)]
)  # fmt: skip


@given(st.lists(SCALERS, max_size=3), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_chains_of_scalers_on_a_matrix(steps: list[Any], seed: int) -> None:
    draw = np.random.default_rng(seed)
    X = (draw.normal(size=(40, 3)) * [1, 100, 0.01]).round(3)
    X[:, 2] = 0.0 if seed % 3 == 0 else X[:, 2]
    y = X[:, 0] * 2 + X[:, 1]
    pipeline = make_pipeline(
        *(step if isinstance(step, str) else clone(step) for step in steps), LinearRegression()
    ).fit(X, y)
    cascade = compiled(pipeline, X)
    np.testing.assert_allclose(cascade.predict(X * 1.5), pipeline.predict(X * 1.5), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "model",
    [LogisticRegression(), LinearSVC(), MultinomialNB(), ComplementNB(), SGDClassifier()],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("names", [["no", "yes"], ["a", "b", "c"], [3, 7, 9], [True, False]])
def test_labels_of_all_kinds(model: Any, names: list[Any]) -> None:
    rows, _ = texts(200)
    y = np.array(names)[[len(text) % len(names) for text in rows]]
    union = FeatureUnion([("w", TfidfVectorizer()), ("h", HashingVectorizer(n_features=64, alternate_sign=False))],
                         transformer_weights={"h": 0.3})  # fmt: skip
    pipeline = make_pipeline(union, model).fit(rows, y)
    cascade = compiled(pipeline, rows)
    assert_same(cascade, pipeline, [*rows, "", "unseen words"])
    assert cascade.predict(rows).dtype.kind == pipeline.predict(rows).dtype.kind


def test_a_matrix_of_the_wrong_width_is_refused_as_by_the_original() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    cascade = compiled(make_pipeline(StandardScaler(), LinearRegression()).fit(X, X[:, 0]), X)
    with pytest.raises(ValueError, match="X has 4 features"):
        cascade.predict(np.ones((2, 4)))
    with pytest.raises(ValueError, match="NaN"):
        cascade.predict(np.full((1, 3), np.nan))
    with pytest.raises(ValueError, match="NaN"):
        cascade.predict(np.array([[1.0, np.inf, 1.0]]))


def test_what_the_original_refuses_is_refused() -> None:
    X, y = frame()
    columns = ColumnTransformer([("t", OneHotEncoder(), ["town"]), ("n", "passthrough", ["visits"])])
    pipeline = make_pipeline(columns, LogisticRegression()).fit(X, y)
    cascade = compiled(pipeline, X)
    for bad in (X.assign(town="zz"), X.drop(columns=["visits"]), X.assign(visits="many")):
        with pytest.raises(ValueError):  # noqa: PT011  # each says its own
            pipeline.predict(bad)
        with pytest.raises(ValueError):  # noqa: PT011
            cascade.predict(bad)


@pytest.mark.parametrize("model", [LogisticRegression(), LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1)])
def test_what_several_groups_begin_with_is_run_once(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = frame()
    filled = [("impute", SimpleImputer(strategy="most_frequent")), ("code", OneHotEncoder(handle_unknown="ignore"))]
    impute = [("impute", SimpleImputer())]
    parts = ColumnTransformer(
        [
            ("a", Pipeline([*impute, ("scale", StandardScaler())]), ["age", "income"]),
            ("b", Pipeline([*impute, ("scale", MinMaxScaler())]), ["age", "income"]),
            ("c", Pipeline([*impute, ("scale", StandardScaler())]), ["visits", "income"]),
            ("town", Pipeline(filled), ["town"]),
            ("again", Pipeline(filled), ["town"]),
        ]
    )
    pipeline = make_pipeline(parts, model).fit(X, y)
    cascade = compiled(pipeline, X)
    assert_same(cascade, pipeline, X)
    run: list[type] = []
    for kind in (Impute, ImputeCategory, OneHot, Affine):
        plain = kind.apply
        monkeypatch.setattr(
            kind, "apply", lambda self, block, kind=kind, plain=plain: run.append(kind) or plain(self, block)
        )
    cascade.predict(X)
    assert run.count(Impute) == 2  # of age and income, and of visits and income
    assert run.count(ImputeCategory) == 1
    assert run.count(OneHot) <= 1


def test_values_of_another_type_get_what_they_get_from_the_original() -> None:
    X = pd.DataFrame({"size": np.arange(60.0), "kind": list("abc") * 20})
    parts = ColumnTransformer([("n", StandardScaler(), ["size"]), ("kind", OneHotEncoder(), ["kind"])])
    pipeline = make_pipeline(parts, LogisticRegression()).fit(X, X["size"] > 30)
    cascade = compiled(pipeline, X)
    days = pd.date_range("2020-01-01", periods=60).to_numpy()
    for same in (X["size"].astype(int), X["size"].astype(str), X["size"] > 9, X["size"].astype("float32"), days):
        np.testing.assert_array_equal(cascade.predict(X.assign(size=same)), pipeline.predict(X.assign(size=same)))
    more = X.assign(other=1)
    np.testing.assert_array_equal(cascade.predict(more[["other", "kind", "size"]]), pipeline.predict(more))
    for refused in (X.assign(size=1j), X.assign(size=[{}] * 60), X.assign(kind=None)):
        for one in (cascade, pipeline):
            with pytest.raises((ValueError, TypeError)):
                one.predict(refused)


def test_a_step_over_all_groups_makes_one_opaque_group_that_is_named() -> None:
    X, y = frame()
    columns = ColumnTransformer([("a", "passthrough", ["income"]), ("b", "passthrough", ["visits"])])
    pipeline = make_pipeline(columns, PCA(2), LogisticRegression()).fit(X, y)
    table = Table.of(X)
    program, remarks = lower_pipeline(pipeline, table)
    assert len(program.groups) == 1
    assert program.groups[0].opaque
    assert "PCA" in remarks[0]
    assert_same(Cascade(program, list(table.columns)), pipeline, X)


def test_no_rows_and_one_text_by_mistake() -> None:
    rows, y = texts(200)
    pipeline = text_pipeline().fit(rows, y)
    cascade = compiled(pipeline, rows)
    assert cascade.predict([]).shape == (0,)
    with pytest.raises(ValueError, match="string object received"):
        cascade.predict("one text")
    assert cascade.predict(np.array(rows[:3])).tolist() == pipeline.predict(rows[:3]).tolist()
    assert cascade.predict(pd.Series(rows[:3])).tolist() == pipeline.predict(rows[:3]).tolist()


def test_parts_that_are_dropped_or_pass_leave_the_others_in_their_order() -> None:
    X, y = frame()
    columns = ColumnTransformer(
        [("gone", "drop", ["age"]), ("n", StandardScaler(), [1, 4])], remainder="drop", verbose_feature_names_out=False
    )
    pipeline = make_pipeline(make_union(columns), LogisticRegression()).fit(X, y)
    assert_same(compiled(pipeline, X), pipeline, X)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize(
    "steps",
    [
        [StandardScaler(), LGBMClassifier(n_estimators=2, n_jobs=1, verbose=-1)],
        [SimpleImputer(), LGBMClassifier(n_estimators=2, n_jobs=1, verbose=-1)],
        [SimpleImputer(missing_values=-1.0), LGBMClassifier(n_estimators=2, n_jobs=1, verbose=-1)],
        [GradientBoostingClassifier(n_estimators=2)],
        [RandomForestClassifier(2)],
        [MLPClassifier((3,), max_iter=5)],
    ],
)
def test_what_is_no_number_is_refused_where_the_original_refuses_it(steps: list[Any], bad: float) -> None:
    X = np.random.default_rng(0).normal(size=(80, 3))
    pipeline = make_pipeline(*steps).fit(X, X[:, 0] > 0)
    cascade = compiled(pipeline, X)
    row = np.array([[bad, 0.0, 0.0]])
    for rows in (row, np.vstack([row, X[:2]])):
        try:
            wanted = pipeline.predict(rows)
        except ValueError:
            with pytest.raises(ValueError, match="NaN or infinity"):
                cascade.predict(rows)
        else:
            np.testing.assert_array_equal(cascade.predict(rows), wanted)


def test_columns_that_no_step_reads_may_be_missing_and_numbers_are_no_texts() -> None:
    X = pd.DataFrame({"kind": list("abca") * 20, "size": np.arange(80.0), "note": "x"})
    parts = ColumnTransformer(
        [("kind", OneHotEncoder(handle_unknown="ignore"), ["kind"]), ("n", "passthrough", ["size"])]
    )
    pipeline = make_pipeline(parts, LogisticRegression()).fit(X, X["size"] > 30)
    cascade = compiled(pipeline, X)
    some = X.drop(columns="note")
    np.testing.assert_array_equal(cascade.predict(some), pipeline.predict(some))
    for one in (cascade, pipeline):
        with pytest.raises(TypeError):
            one.predict(X.assign(kind=1))
        with pytest.raises(ValueError, match="missing"):
            one.predict(X.drop(columns="size"))


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.data())
def test_what_is_shared_is_cut_to_the_rows_that_are_pending(first: list[bool], data: Any) -> None:
    rows = np.flatnonzero(first)
    fewer = rows[[row for row in range(len(rows)) if data.draw(st.booleans())]]
    made, block, shared = [], np.arange(3.0 * len(first)).reshape(-1, 3), Shared()
    for asked in (None, rows, fewer) if data.draw(st.booleans()) else (rows, fewer):
        wanted = block if asked is None else block[asked]
        found = shared.get(7, asked, lambda wanted=wanted: made.append(1) or wanted)  # type: ignore[misc]
        np.testing.assert_array_equal(found, wanted)
    assert len(made) == 1
