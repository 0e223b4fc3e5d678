"""Estimators give scikit-learn's results and stay its objects."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.neighbors import KNeighborsClassifier

from shoal.offload import OffloadSettings, install, uninstall
from shoal.offload.estimators import neighbours
from shoal.offload.profile import PROFILE


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[None]:
    uninstall()
    PROFILE.clear()
    install(OffloadSettings(home=str(tmp_path)))
    try:
        yield
    finally:
        uninstall()


def backends() -> set[tuple[str, str]]:
    return {(each.call, each.backend) for each in PROFILE.records()}


def test_truncated_svd_has_the_same_attributes_by_the_gram_matrix(installed: None) -> None:
    data, _ = make_blobs(n_samples=4096, n_features=64, centers=3, random_state=1)
    model = TruncatedSVD(3, algorithm="arpack", random_state=0)
    found = model.fit_transform(data)
    assert ("TruncatedSVD.fit", "gram") in backends()
    uninstall()
    plain = TruncatedSVD(3, algorithm="arpack", random_state=0)
    expected = plain.fit_transform(data)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    for name in ("components_", "singular_values_", "explained_variance_", "explained_variance_ratio_"):
        np.testing.assert_allclose(getattr(model, name), getattr(plain, name), rtol=1e-6, atol=1e-8)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(data), model.transform(data))
    assert not hasattr(clone(model), "components_")


@pytest.mark.parametrize("data", [
    np.random.default_rng(0).normal(size=(200, 190)),
    np.ones((5000, 60)),
    np.outer(np.arange(6000.0), np.ones(64)),
])  # fmt: skip
def test_matrices_without_clear_directions_stay_with_scipy(installed: None, data: np.ndarray) -> None:
    uninstall()
    plain = TruncatedSVD(2, algorithm="arpack", random_state=0).fit(data)
    install(OffloadSettings())
    model = TruncatedSVD(2, algorithm="arpack", random_state=0).fit(data)
    np.testing.assert_allclose(model.singular_values_, plain.singular_values_, rtol=1e-6, atol=1e-6)
    assert ("TruncatedSVD.fit", "plain") in backends()


def test_components_have_the_same_attributes_by_the_gram_matrix(installed: None) -> None:
    data, _ = make_blobs(n_samples=4096, n_features=64, centers=5, random_state=1)
    model = PCA(3, svd_solver="arpack", random_state=0)
    found = model.fit_transform(data)
    assert ("PCA.fit", "gram") in backends()
    uninstall()
    plain = PCA(3, svd_solver="arpack", random_state=0)
    np.testing.assert_allclose(found, plain.fit_transform(data), rtol=1e-7, atol=1e-7)
    for name in ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_"):
        np.testing.assert_allclose(getattr(model, name), getattr(plain, name), rtol=1e-7, atol=1e-7)
    assert clone(model).get_params() == plain.get_params()


def test_strict_leaves_the_estimators_alone() -> None:
    uninstall()
    import sklearn.decomposition._truncated_svd as module

    before = module.svds
    install(OffloadSettings(strict=True))
    assert module.svds is before
    uninstall()


def test_neighbours_by_the_other_library_are_the_same(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearnex")
    monkeypatch.setattr(neighbours, "_LARGE", 1e6)
    data, labels = make_blobs(n_samples=3000, n_features=16, centers=8, random_state=1)
    names = np.array(["red", "green", "blue", "grey"])[labels % 4]
    queries, _ = make_blobs(n_samples=500, n_features=16, centers=8, random_state=2)
    model = KNeighborsClassifier().fit(data, names)
    found = model.predict(queries)
    assert ("KNeighborsClassifier.predict", "sklearnex") in backends()
    model.fit(data[:1500], names[:1500])
    refit = model.predict(queries)
    uninstall()
    assert (found == KNeighborsClassifier().fit(data, names).predict(queries)).all()
    assert (refit == model.predict(queries)).all()
    assert found.dtype == names.dtype
    assert pickle.loads(pickle.dumps(model)).predict(queries[:5]).tolist() == refit[:5].tolist()


def test_a_sample_that_differs_keeps_the_plain_library(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    sklearnex = pytest.importorskip("sklearnex.neighbors")
    monkeypatch.setattr(neighbours, "_LARGE", 1e6)
    monkeypatch.setattr(sklearnex.KNeighborsClassifier, "predict", lambda self, X: np.zeros(len(X), int))
    data, labels = make_blobs(n_samples=3000, n_features=16, centers=8, random_state=1)
    model = KNeighborsClassifier().fit(data, labels)
    assert len(set(model.predict(data[:500]))) == 8
    assert {(each.backend, each.reason) for each in PROFILE.records()} == {("plain", "untrusted")}


def test_small_calls_of_one_fit_repay_the_import_together(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearnex.neighbors")
    monkeypatch.setattr(neighbours, "_REPAID_S", 0.0)
    data, labels = make_blobs(n_samples=400, n_features=16, centers=8, random_state=1)
    model, once = KNeighborsClassifier().fit(data, labels), KNeighborsClassifier().fit(data, labels)
    assert (once.predict(data) == model.predict(data)).all()
    assert {(each.backend, each.reason) for each in PROFILE.records()} == {("plain", "plain-faster")}
    expected = once.predict(data)
    deadline = time.monotonic() + 60
    while not {each.reason for each in PROFILE.records()} & {"sklearnex", "slower"}:  # it was tried
        assert time.monotonic() < deadline
        assert (model.predict(data) == expected).all()


def test_other_metrics_and_weights_stay(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "_LARGE", 1e6)
    data, labels = make_blobs(n_samples=3000, n_features=16, centers=8, random_state=1)
    KNeighborsClassifier(weights="distance").fit(data, labels).predict(data[:500])
    KNeighborsClassifier(metric="manhattan").fit(data, labels).predict(data[:500])
    assert {each.reason for each in PROFILE.records()} == {"options"}
