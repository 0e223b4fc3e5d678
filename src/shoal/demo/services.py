"""The models that the demo serves: trained when they are loaded, on data sets that scikit-learn brings along.

Both are callables of arrays: rows of `features` to the `label` of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shoal.inference import DataType, TensorSpec

Floats = NDArray[np.float32]

_KEPT = 200
"""Rows of each data set that its model has not seen: the requests."""


_LOADERS = {"handwriting": "load_digits", "tumours": "load_breast_cancer"}


def data(service: str) -> tuple[Floats, NDArray[np.int64]]:
    """Features (n, m) and labels (n,), in an order of their own: digits of 8 x 8 pixels of 0 to 16; measures of cells
    on pictures, and whether the tumour is benign."""
    from sklearn import datasets

    bunch = getattr(datasets, _LOADERS[service])()
    order = np.random.default_rng(7).permutation(len(bunch.target))
    return bunch.data[order].astype(np.float32), bunch.target[order].astype(np.int64)


def requests(service: str) -> list[dict[str, Floats]]:
    features, _ = data(service)
    return [{"features": row[None]} for row in features[:_KEPT]]


class Handwriting:
    """Which digit is it? The nearest of 39,925 examples, those of the data set moved by up to two pixels each way:
    10 MB of memory that each call goes through."""

    inputs = (TensorSpec("features", DataType.FP32, (-1, 64)),)
    outputs = (TensorSpec("label", DataType.INT64, (-1,)),)
    _MOVES: ClassVar = [(down, right) for down in range(-2, 3) for right in range(-2, 3)]

    def __init__(self) -> None:
        features, labels = data("handwriting")
        pictures = features[_KEPT:].reshape(-1, 8, 8)
        moved = [np.roll(pictures, move, axis=(1, 2)).reshape(-1, 64) for move in self._MOVES]
        self._examples = np.concatenate(moved)
        self._half_squares = (self._examples**2).sum(axis=1) / 2
        self._labels = np.tile(labels[_KEPT:], len(self._MOVES))

    def __call__(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        nearest = (arrays["features"] @ self._examples.T - self._half_squares).argmax(axis=1)
        return {"label": self._labels[nearest]}


class Tumours:
    """Is a tumour benign? Fifty trees."""

    inputs = (TensorSpec("features", DataType.FP32, (-1, 30)),)
    outputs = (TensorSpec("label", DataType.INT64, (-1,)),)

    def __init__(self) -> None:
        from sklearn.ensemble import RandomForestClassifier

        features, labels = data("tumours")
        self._trees = RandomForestClassifier(50, random_state=0).fit(features[_KEPT:], labels[_KEPT:])

    def __call__(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {"label": self._trees.predict(arrays["features"])}
