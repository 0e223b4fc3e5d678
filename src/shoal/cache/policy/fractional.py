"""Proportional fairness where any part of a set may be kept: the maximum of sum_i w_i log V_i(y).

An interior-point method. The Hessian is a diagonal plus a matrix of rank N + 1 (one row a tenant, one for the
capacity), so that a step solves one linear system of that size (Sherman, Morrison, Woodbury) however many sets there
are. It ends when the certificate, not the method, says that the gap is small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.cache.policy.claims import Claims, fractions_of
from shoal.cache.policy.knapsack import fill
from shoal.cache.policy.problem import Allocation

if TYPE_CHECKING:
    from shoal.cache.policy.problem import Array

STEPS = 80
"""Twenty are usual. Utilities that differ by twelve orders of magnitude took forty."""

_SPARSE = 0.25
"""Below this share of non-zero utilities a sparse matrix is the faster one."""

_BACK = 0.95
"""How far to go towards the border of what is feasible."""


def proportional(claims: Claims, tolerance: float) -> Allocation:
    problem, items = claims.problem, claims.items
    wanted = np.flatnonzero(claims.value.any(axis=0))
    parts = np.zeros(len(items.size))
    if len(wanted):
        parts[wanted] = _solve(claims.value[:, wanted], items.size[wanted] / problem.capacity, claims.share, tolerance)
    return Allocation.certain(fractions_of(problem, items, parts))


def _solve(value: Array, size: Array, share: Array, tolerance: float) -> Array:
    """value (N, K), size (K,) in parts of the capacity, share (N,) adding up to 1. Returns parts (K,)."""
    if size.sum() <= 1.0:
        return np.ones(len(size))
    utilities = _Utilities(value)
    parts = np.full(len(size), min(0.9, 0.98 / size.sum()))
    barrier = 0.5 / len(size)
    best_gap, best = np.inf, parts
    for _ in range(STEPS):
        saved = utilities.of(parts)
        slope = utilities.back(share / saved)
        gap = float(slope @ fill(slope, size, 1.0)) - 1.0
        if gap < best_gap:
            best_gap, best = gap, parts
        if gap <= tolerance:
            break
        slack = 1.0 - float(size @ parts)
        gradient = slope + barrier / parts - barrier / (1 - parts) - barrier * size / slack
        diagonal = barrier / parts**2 + barrier / (1 - parts) ** 2
        step = utilities.newton(gradient, diagonal, np.sqrt(share) / saved, np.sqrt(barrier) / slack * size)
        length = _length(parts, step, slack, float(size @ step))
        parts = parts + length * step
        barrier *= 0.25 if length > 0.6 else 0.6 if length > 0.2 else 1.0
    return best


def _length(parts: Array, step: Array, slack: float, growth: float) -> float:
    down, up = step < 0, step > 0
    length = 1.0
    if down.any():
        length = min(length, _BACK * float((parts[down] / -step[down]).min()))
    if up.any():
        length = min(length, _BACK * float(((1 - parts[up]) / step[up]).min()))
    return min(length, _BACK * slack / growth) if growth > 0 else length


class _Utilities:
    """The matrix of utilities, sparse where that is faster."""

    def __init__(self, value: Array) -> None:
        self._count = len(value)
        self._matrix: Any = value
        if np.count_nonzero(value) < _SPARSE * value.size:
            from scipy.sparse import csr_array

            self._matrix = csr_array(value)
        self._transposed = self._matrix.T if isinstance(value, type(self._matrix)) else self._matrix.T.tocsr()

    def of(self, parts: Array) -> Array:
        found: Array = self._matrix @ parts
        return found

    def back(self, weights: Array) -> Array:
        found: Array = self._transposed @ weights
        return found

    def newton(self, gradient: Array, diagonal: Array, scale: Array, border: Array) -> Array:
        """Solve (D + V' diag(scale^2) V + border border') step = gradient."""
        from scipy.linalg import cho_factor, cho_solve

        count = self._count
        inverse = 1.0 / diagonal
        inner = np.empty((count + 1, count + 1))
        inner[:count, :count] = self._gram(inverse) * scale[:, None] * scale
        inner[count, :count] = inner[:count, count] = self.of(inverse * border) * scale
        inner[count, count] = border @ (inverse * border)
        inner[np.diag_indices(count + 1)] += 1.0
        start = inverse * gradient
        right = np.append(self.of(start) * scale, border @ start)
        solved: Array = cho_solve(cho_factor(inner, lower=True, overwrite_a=True, check_finite=False), right)
        step: Array = start - inverse * (self.back(scale * solved[:count]) + border * solved[count])
        return step

    def _gram(self, inverse: Array) -> Array:
        """V diag(inverse) V'."""
        if isinstance(self._matrix, np.ndarray):
            dense: Array = (self._matrix * inverse) @ self._matrix.T
            return dense
        found: Array = (self._matrix.multiply(inverse[None, :]).tocsr() @ self._transposed).toarray()
        return found
