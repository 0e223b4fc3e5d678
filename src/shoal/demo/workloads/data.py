"""The small real data sets that scikit-learn ships, split and scaled, and the arguments that all demo scripts take."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn import datasets

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

_LOADERS = {
    "digits": datasets.load_digits,
    "wine": datasets.load_wine,
    "cancer": datasets.load_breast_cancer,
    "iris": datasets.load_iris,
}


@dataclass(frozen=True)
class Split:
    """Features are (rows, columns), scaled by the training rows; labels are 0 to `classes` - 1."""

    train_x: Floats
    train_y: Labels
    test_x: Floats
    test_y: Labels
    classes: int


def load(name: str) -> Split:
    """One row in four is kept for the test; the split is the same every time."""
    bunch = _LOADERS[name]()
    order = np.random.default_rng(7).permutation(len(bunch.target))
    x, y = bunch.data[order].astype(float), bunch.target[order].astype(np.int64)
    cut = len(y) // 4
    mean, spread = x[cut:].mean(axis=0), x[cut:].std(axis=0)
    x = (x - mean) / np.where(spread > 0, spread, 1.0)
    return Split(x[cut:], y[cut:], x[:cut], y[:cut], int(y.max()) + 1)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """`DATASET --steps N --pace SECONDS`; the pace lets two slow cores carry the whole demo."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("dataset", choices=sorted(_LOADERS))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to sleep after each step")
    return parser
