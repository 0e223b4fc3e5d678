"""The largest singular values of a tall matrix from its Gram matrix: one product and an exact eigendecomposition,
instead of iterations over the data. It is used only where the values asked for are above rounding and apart from the
next."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.offload.profile import PROFILE

_TALL = 4
"""Rows for each column from which the product costs less than the iterations: they read the data 60 times and more."""

_MOST_COLUMNS = 2048
_LEAST_ELEMENTS = 1 << 18

_SMALLEST = 1e-9
"""The smallest eigenvalue asked for, and its distance to the next, over the largest. ARPACK is given the same products
with the matrix and its transpose, so it has the same condition; this leaves seven digits to the vectors."""


def gram_svds(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    """In place of `scipy.sparse.linalg.svds` for an estimator's method `call`: the same arguments and results."""

    def svds(matrix: Any, k: int = 6, tol: float = 0, v0: Any = None, **options: Any) -> Any:
        began = time.perf_counter()
        found = None if options or tol else _by_gram(matrix, k)
        if found is None:
            found = original(matrix, k=k, tol=tol, v0=v0, **options)
            backend, reason = "plain", "unlike"
        else:
            backend, reason = "gram", "gram"
        frame = callers_frame()
        size = getattr(matrix, "nbytes", 0)
        PROFILE.add((frame.f_code, frame.f_lasti), call, backend, reason, time.perf_counter() - began, size)
        return found

    return svds


def callers_frame() -> Any:
    """The line of the program that called the estimator."""
    from shoal.offload.arrays.state import is_program

    frame = sys._getframe(1)
    while frame.f_back is not None and not is_program(frame):
        frame = frame.f_back
    return frame


def _by_gram(matrix: Any, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """U (rows, k), singular values (k,) and V' (k, columns), in rising order; None where iterations are better."""
    if type(matrix) is not np.ndarray or matrix.dtype != np.float64 or matrix.ndim != 2:
        return None
    rows, columns = matrix.shape
    if rows < _TALL * columns or columns > _MOST_COLUMNS or rows * columns < _LEAST_ELEMENTS or not 0 < k < columns:
        return None
    from scipy.linalg import eigh

    product = matrix.T @ matrix
    if not np.isfinite(product).all():
        return None
    values, vectors = eigh(product, subset_by_index=(columns - k - 1, columns - 1))
    steps = np.diff(values)
    if values[1] < _SMALLEST * values[-1] or steps.min() < _SMALLEST * values[-1]:
        return None
    singular = np.sqrt(values[1:])
    vectors = vectors[:, 1:]
    return (matrix @ vectors) / singular, singular, vectors.T
