"""Flat trees against the libraries that grew them: equal to the last bit where those add in double."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from shoal.cascade.frontend.trees import lower_trees
from shoal.cascade.models.trees import Trees

SPECIAL = (float("nan"), 0.0, -0.0, 1e-36, -1e-36, float("inf"), float("-inf"), 1e300, 5e-324, 1.0, 2.0, 3.0)


def data(rows: int = 400, seed: int = 0, *, special: bool = False) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(rows, 5)).round(2)
    X[:, 3] = draw.integers(0, 12, rows)
    X[:, 4] = np.where(draw.random(rows) < 0.4, 0.0, X[:, 4])
    y = (X[:, 0] + (X[:, 3] % 3 == 1) + 0.3 * draw.normal(size=rows) > 0.3).astype(int)
    if special:
        X[draw.random(X.shape) < 0.15] = np.nan
    return X, y


def lowered(estimator: Any) -> Trees:
    found = lower_trees(estimator)
    assert isinstance(found, Trees)
    return found


def both_ways(trees: Trees, X: Any) -> Any:
    """Natively in a batch; equal a row at a time and in Python alone."""
    scores = trees.scores(X)
    np.testing.assert_array_equal(np.vstack([trees.scores(row[None]) for row in X]), scores)
    out = np.repeat(trees.base[None, :], len(X), axis=0)
    trees._walk(np.ascontiguousarray(X, np.float64), out)
    np.testing.assert_array_equal(out / (trees.trees if trees.combine == "mean" else 1), scores)
    return scores


@pytest.mark.parametrize("use_missing", [True, False])
@pytest.mark.parametrize("zero_as_missing", [True, False])
@pytest.mark.parametrize("categories", [[], [3]])
@pytest.mark.parametrize("classes", [2, 3])
def test_lightgbm(use_missing: bool, zero_as_missing: bool, categories: list[int], classes: int) -> None:
    lgb = pytest.importorskip("lightgbm")
    X, y = data(special=True)
    y = y if classes == 2 else y + (X[:, 1] > 0.5)
    objective = {"objective": "binary"} if classes == 2 else {"objective": "multiclass", "num_class": 3}
    settings_ = {**objective, "verbose": -1, "num_threads": 1, "use_missing": use_missing, "num_leaves": 15,
                 "zero_as_missing": zero_as_missing, "min_data_in_leaf": 3, "max_cat_to_onehot": 2}  # fmt: skip
    booster = lgb.train(settings_, lgb.Dataset(X, y, categorical_feature=categories, free_raw_data=False), 23)
    asked = np.vstack([X, np.array(np.meshgrid(SPECIAL, SPECIAL[:6])).reshape(2, -1).T[:, [0, 1, 0, 1, 0]]])
    scores = both_ways(lowered(booster), asked)
    np.testing.assert_array_equal(scores, booster.predict(asked, raw_score=True).reshape(scores.shape))


@given(st.lists(st.lists(st.sampled_from(SPECIAL), min_size=5, max_size=5), min_size=1, max_size=20), st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_lightgbm_on_any_numbers(rows: list[list[float]], seed: int) -> None:
    lgb = pytest.importorskip("lightgbm")
    X, y = data(200, seed, special=True)
    settings_ = {"objective": "regression", "verbose": -1, "num_threads": 1, "num_leaves": 8, "min_data_in_leaf": 2}
    booster = lgb.train(settings_, lgb.Dataset(X, y), 9)
    asked = np.array(rows)
    np.testing.assert_array_equal(both_ways(lowered(booster), asked)[:, 0], booster.predict(asked))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("categories", [False, True])
def test_xgboost(classes: int, categories: bool) -> None:
    xgb = pytest.importorskip("xgboost")
    X, y = data(special=True)
    y = y if classes == 2 else y + (X[:, 1] > 0.5)
    model = xgb.XGBClassifier(
        n_estimators=11, max_depth=4, n_jobs=1, enable_categorical=True, max_cat_to_onehot=2,
        feature_types=["q", "q", "q", "c" if categories else "q", "q"],
    )  # fmt: skip
    asked = np.where(np.isnan(X), X, X.round(2))
    model.fit(X, y)
    scores = both_ways(lowered(model), asked)
    np.testing.assert_allclose(
        scores[:, 0] if classes == 2 else scores, model.predict(asked, output_margin=True), atol=2e-6
    )


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(12, random_state=0), ExtraTreesClassifier(7, random_state=0),
        DecisionTreeClassifier(max_depth=6, random_state=0),
        GradientBoostingClassifier(n_estimators=12, random_state=0),
        HistGradientBoostingClassifier(max_iter=12), RandomForestRegressor(9, random_state=0),
        DecisionTreeRegressor(random_state=0), GradientBoostingRegressor(n_estimators=12, random_state=0),
        HistGradientBoostingRegressor(max_iter=12),
    ],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
@pytest.mark.parametrize("classes", [2, 3])
def test_scikit_learn(model: Any, classes: int) -> None:
    asked, y = data(300, special=True)
    if type(model).__name__.startswith("Gradient"):
        asked = np.nan_to_num(asked)  # the only ones that refuse NaN
    values = np.nan_to_num(asked[:, 0])
    named = np.array(["no", "yes", "maybe"])[y if classes == 2 else y + (asked[:, 1] > 0.5)]
    model.fit(asked, named if hasattr(model, "predict_proba") else values)
    trees = lowered(model)
    scores = both_ways(trees, asked)
    if hasattr(model, "predict_proba"):
        np.testing.assert_array_equal(trees.output.named(trees.output.labels(scores)), model.predict(asked))
        np.testing.assert_allclose(trees.output.probabilities(scores), model.predict_proba(asked), atol=1e-12)
    else:
        np.testing.assert_allclose(scores[:, 0], model.predict(asked), atol=1e-12)


def damaged(trees: Trees, **changes: Any) -> dict[str, Any]:
    parameters, arrays = trees.state()
    return {"parameters": parameters, "arrays": {**{name: array.copy() for name, array in arrays.items()}, **changes}}


def test_trees_that_loop_or_reach_outside_are_refused() -> None:
    X, y = data(100)
    trees = lowered(DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y))
    left, feature, kind = (trees.arrays[name].copy() for name in ("left", "feature", "kind"))
    left[1] = 0
    with pytest.raises(ValueError, match="loop"):
        Trees.restore(**damaged(trees, left=left))
    feature[0] = 99
    with pytest.raises(ValueError, match="not there"):
        Trees.restore(**damaged(trees, feature=feature))
    kind[0] = 7
    with pytest.raises(ValueError, match="kind"):
        Trees.restore(**damaged(trees, kind=kind))
    with pytest.raises(ValueError, match="length"):
        Trees.restore(**damaged(trees, leaf=trees.arrays["leaf"][:-1]))
