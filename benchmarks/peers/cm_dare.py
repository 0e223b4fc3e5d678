"""CM-DARE's own models (linear and support vector regression on one normalised feature), for scikit-learn.

The settings are those of the notebooks that came with the paper (data/matplotlib_scripts of cake-lab/CM-DARE).
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split
from sklearn.svm import SVR

Array = NDArray[np.float64]


def checkpoint_models() -> dict[str, Any]:
    return {"SVR": SVR(kernel="rbf", C=10, gamma="auto", epsilon=0.14), "linear": LinearRegression()}


def step_models() -> dict[str, Any]:
    """By operations; the middle of the ranges that they searched."""
    return {"SVR": SVR(kernel="rbf", C=10, gamma="auto", epsilon=0.01), "linear": LinearRegression()}


def published_split(table: Path) -> dict[str, tuple[float, float]]:
    """Mean absolute error in seconds, and in percent, of checkpoints to cloud storage by their size: their table, their
    split (80/20 over rows, seed 0)."""
    with table.open() as file:
        read = list(csv.DictReader(file))
    size = np.array([[float(row["Checkpoint Size (MB)"])] for row in read])
    seconds = np.array([float(row["Duration"]) for row in read])
    fit_x, test_x, fit_y, test_y = train_test_split(size, seconds, test_size=0.2, random_state=0)
    found = {}
    for name, model in checkpoint_models().items():
        error = np.abs(model.fit(fit_x, fit_y).predict(test_x) - test_y)
        found[name] = float(error.mean()), float(100 * (error / test_y).mean())
    return found


def left_out(features: dict[str, float], times: dict[str, list[float]], model: Any) -> float:
    """MAPE over rows when all rows of one network are left out, in percent."""
    errors = []
    for one, truth in times.items():
        others = [(features[m], each) for m, of in times.items() if m != one for each in of]
        rows = np.array(others)
        found = model.fit(rows[:, :1], rows[:, 1]).predict([[features[one]]])[0]
        errors.append(float(np.mean(np.abs(found / np.array(truth) - 1))))
    return 100 * float(np.mean(errors))
