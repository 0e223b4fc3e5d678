"""The small linear program that mixes what the rows offered: primal simplex on a handful of constraints.

Dantzig and Wolfe's master: every column is an allocation of all rows, known by its value and its usage of the
constraints; the best mixture that keeps the limits is a real allocation, and its duals are the next prices to try.
With r constraints there are r + 1 constraints, so an explicit inverse of that size costs microseconds, where calling a
general solver once per price would cost more than all the rest.
"""

from __future__ import annotations

import numpy as np

from shoal.core import Invalid
from shoal.schedule.errors import SolverFailed
from shoal.schedule.types import Array, positions

TOLERANCE = 1e-13
FEASIBLE = 1e-9
"""A part of the mixture may be negative by this much: it is rounding. Parts are relative to one."""

PATIENCE = 20
"""Pivots without progress, per constraint, after which the mixture is taken as it is. It is an allocation all the
same, and its value is compared with a bound by the caller."""

REFACTOR = 32
"""Pivots after which the inverse is computed anew, so that rounding does not pile up."""


class Master:
    """max sum_k value_k a_k  with  sum_k usage_k a_k <= limits,  sum_k a_k = 1,  a >= 0.

    `idle` is the value of the column that uses nothing, which is there from the start.
    """

    def __init__(self, limits: Array, idle: float) -> None:
        if not (limits > 0).all():
            raise Invalid("a limit of the master program must be positive", where="limits")
        rows = len(limits) + 1
        self._limits = limits
        self._columns = np.zeros((rows, 64))
        self._columns[:, :rows] = np.eye(rows)
        self._values = np.zeros(64)
        self._values[rows - 1] = idle
        self._count = rows
        self._basis = np.arange(rows)
        self._inverse = np.eye(rows)
        self._amount = np.ones(rows)
        self._pivots = 0

    def add(self, values: Array, usage: Array) -> int:
        """Offer columns of values (p,) and usage (p, r); returns the number of the first."""
        at, self._count = self._count, self._count + len(values)
        while self._count > self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
            self._values = np.concatenate([self._values, np.zeros_like(self._values)])
        self._columns[:-1, at : self._count] = (usage / self._limits).T
        self._columns[-1, at : self._count] = 1.0
        self._values[at : self._count] = values
        return at

    def solve(self) -> tuple[float, Array]:
        """The best value, and the price (r,) of one unit of each limit. Columns that are nearly equal make bases that
        are nearly singular on the way, so that the parts of the last one are worked out anew. Raises `SolverFailed`
        where they are no mixture."""
        columns, values = self._columns[:, : self._count], self._values[: self._count]
        self._improve(columns, values)
        if not self._factor(columns):
            raise SolverFailed("rounding has left the master program without a mixture", columns=self._count)
        duals = values[self._basis] @ self._inverse
        return float(values[self._basis] @ self._amount), np.maximum(duals[:-1], 0.0) / self._limits

    def _improve(self, columns: Array, values: Array) -> None:
        """Pivot until no column would raise the value."""
        rows = len(self._basis)
        worth = max(1e-300, float(np.abs(values).max()))
        best, stalled = -np.inf, 0
        while stalled < PATIENCE * rows:
            duals = values[self._basis] @ self._inverse
            gains = values - duals @ columns
            gains[self._basis] = 0.0
            # Bland's rule when nothing moves: the program is degenerate, and the steepest choice could go in circles.
            enter = int(gains.argmax()) if stalled <= 2 * rows else int((gains > TOLERANCE * worth).argmax())
            if gains[enter] <= TOLERANCE * worth:
                break
            self._pivot(enter, columns)
            value = float(values[self._basis] @ self._amount)
            stalled = 0 if value > best + TOLERANCE * worth else stalled + 1
            best = max(best, value)

    def _factor(self, columns: Array) -> bool:
        """Compute inverse and parts anew from the basis; false if that shows the basis to be no feasible one."""
        try:
            self._inverse[:] = np.linalg.inv(columns[:, self._basis])
        except np.linalg.LinAlgError:
            return False
        parts = self._inverse.sum(axis=1)
        self._amount = np.maximum(parts, 0.0)
        return bool(parts.min() >= -FEASIBLE)  # false for no numbers, too

    def _pivot(self, enter: int, columns: Array) -> None:
        direction = self._inverse @ columns[:, enter]
        limits = positions(direction > 1e-11)
        if not len(limits):
            raise SolverFailed("the master program is unbounded", column=enter)
        steps = self._amount[limits] / direction[limits]
        at = int(steps.argmin())
        leave, step = limits[at], steps[at]
        self._amount = np.maximum(self._amount - step * direction, 0.0)
        self._amount[leave] = step
        pivot = self._inverse[leave] / direction[leave]
        self._inverse -= direction[:, None] * pivot
        self._inverse[leave] = pivot
        self._basis[leave] = enter
        self._pivots += 1
        if self._pivots % REFACTOR == 0:
            self._factor(columns)

    @property
    def idle(self) -> int:
        """The number of the column that uses nothing."""
        return len(self._limits)

    def mixture(self) -> list[tuple[int, float]]:
        """The columns of the best mixture (slack left out) with their parts, which sum to one."""
        used = [
            (int(at), float(part))
            for at, part in zip(self._basis, self._amount, strict=True)
            if at >= self.idle and part > 1e-13
        ]
        total = sum(part for _, part in used)
        return [(at, part / total) for at, part in used]
