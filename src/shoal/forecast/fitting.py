"""Fits that the models share: non-negative sums fitted to the relative error, and widths of intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from scipy.optimize import nnls
from scipy.special import stdtrit

from shoal.core import Estimate, Invalid

VERSION = 1
LEVEL = 0.9
_RIDGE = 0.1
"""Weight of the prior that all terms have an equal part, in samples. Few models leave several sums nearly as good, and
those that set a term to zero fail on the first model that needs it."""


def non_negative(terms: Sequence[Sequence[float]], seconds: Sequence[float]) -> tuple[float, ...]:
    """The coefficients >= 0 of the sum of terms with the least squares of relative errors, after Lawson and Hanson.
    That of a term which all measurements have as 0 is 0."""
    relative = np.asarray(terms, float) / np.asarray(seconds, float)[:, None]
    seen = relative.any(axis=0)
    usual = relative[:, seen].mean(axis=0)
    count = len(usual)
    root = math.sqrt(_RIDGE)
    rows = np.vstack([relative[:, seen] / usual, root * np.eye(count)])
    wanted = np.concatenate([np.ones(len(relative)), np.full(count, root / count)])
    coefficients = np.zeros(len(seen))
    coefficients[seen] = nnls(rows, wanted)[0] / usual
    return tuple(coefficients.tolist())


def interval_width(errors: Sequence[Sequence[float]], level: float = LEVEL) -> float:
    """Half the width of an interval that holds an error of a new model with probability `level`: Student's, if errors
    are normal around zero and models are drawn as those were. `errors` are logarithms, by model; each model weighs the
    same."""
    square = fmean(fmean(error**2 for error in of) for of in errors)
    return float(stdtrit(len(errors), (1 + level) / 2)) * math.sqrt(square)


def left_out(
    groups: Mapping[Any, tuple[Any, Sequence[float]]],
    fit_predict: Callable[[Mapping[Any, tuple[Any, Sequence[float]]], Any], float],
) -> list[list[float]]:
    """Absolute log errors of each model's measurements, predicted from its features by a fit to all other models."""
    errors = []
    for one, (features, measured) in groups.items():
        found = fit_predict({key: other for key, other in groups.items() if key != one}, features)
        errors.append([abs(math.log(found / seconds)) for seconds in measured])
    return errors


def within(median: float, width: float, source: str, level: float = LEVEL) -> Estimate:
    """An estimate with the same factor up and down."""
    return Estimate(median, median * math.exp(-width), median * math.exp(width), level, source)


def versioned(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": kind, "version": VERSION, **values}


def check_version(kind: str, data: Mapping[str, Any]) -> None:
    """Raises Invalid when the data are those of another model or version."""
    found = data.get("model"), data.get("version")
    if found != (kind, VERSION):
        raise Invalid(f"expected the model {kind!r} of version {VERSION}, found {found[0]!r} of version {found[1]!r}")
