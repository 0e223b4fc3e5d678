"""Lexicographic max-min fairness: the smallest utility over weight is as large as it can be, then the next, and so on.

One linear program a level. A tenant with a positive price can have no more in any optimum, so its level is final
(complementary slackness); at least one has a price each time, so that there are at most N levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.cache.policy.claims import Claims, fractions_of
from shoal.cache.policy.lottery import COLUMNS, start
from shoal.cache.policy.problem import Allocation

if TYPE_CHECKING:
    from shoal.cache.policy.problem import Array

_SLACK = 1e-9
"""How far a level that is final may be missed: the precision of the linear programs."""


@dataclass(frozen=True, slots=True)
class _Level:
    parts: Array
    level: float
    prices: Array
    """(A,) of utility."""
    rest: float
    """The price of the other constraint: the capacity, or that chances add up to 1."""


def fractional(claims: Claims) -> Allocation:
    size = claims.items.size / claims.problem.capacity
    upper: list[tuple[float, float | None]] = [(0.0, 1.0)] * len(size)
    final = np.full(len(claims.share), -1.0)
    parts = np.zeros(len(size))
    while (final < 0).any():
        found = _level(claims.value, size, upper, claims.share, final, equal=False)
        parts = found.parts
        _settle(final, found)
    return Allocation.certain(fractions_of(claims.problem, claims.items, parts))


def lottery(claims: Claims) -> Allocation:
    columns = start(claims)
    final = np.full(len(claims.share), -1.0)
    chances = np.zeros(0)
    while (final < 0).any():
        while True:
            utility = columns.utility
            count = utility.shape[1]
            found = _level(utility, np.ones(count), [(0.0, None)] * count, claims.share, final, equal=True)
            packing, new = columns.add(found.prices)
            if not new or packing.value <= found.rest + 1e-7 or count >= COLUMNS:
                break
        chances = found.parts
        _settle(final, found)
    return columns.lottery(chances)


def _settle(final: Array, found: _Level) -> None:
    waiting = final < 0
    done = waiting & (found.prices > 1e-7 * found.prices[waiting].max(initial=0.0))
    final[done if done.any() else waiting] = found.level


def _level(
    value: Array, size: Array, bounds: list[tuple[float, float | None]], share: Array, final: Array, *, equal: bool
) -> _Level:
    """The largest common level of the tenants that are not final, the others at theirs. value is (A, K)."""
    from scipy.optimize import linprog

    waiting = final < 0
    rows = np.column_stack([-value / share[:, None], waiting.astype(np.float64)])
    limits = np.where(waiting, 0.0, -final + _SLACK)
    row = np.append(size, 0.0)[None, :]
    options: dict[str, Any] = {"A_ub": rows, "b_ub": limits, "A_eq": row, "b_eq": [1.0]}
    if not equal:
        options = {"A_ub": np.vstack([rows, row]), "b_ub": np.append(limits, 1.0)}
    found = linprog(np.append(np.zeros(len(size)), -1.0), bounds=[*bounds, (None, None)], method="highs", **options)
    if found.x is None:
        raise ArithmeticError(f"the linear program of a level failed: {found.message}")
    prices = -found.ineqlin.marginals[: len(share)]
    rest = -found.eqlin.marginals[0] if equal else -found.ineqlin.marginals[-1]
    return _Level(np.clip(found.x[:-1], 0.0, 1.0), float(found.x[-1]), prices / share, float(rest))
