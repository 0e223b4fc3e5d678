"""The same programs by a general solver (HiGHS), for when many constraints tie the rows together.

Price decomposition pays when constraints are few; with quotas for dozens of tenants the prices are many, and a sparse
simplex wins. Also the way to a vertex, and the yardstick of the benchmarks.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from shoal.schedule.errors import SolverFailed
from shoal.schedule.solve.market import Market
from shoal.schedule.solve.search import Solution, reach
from shoal.schedule.types import Array, Index

METHOD = "general solver"


def best_level(market: Market, floor: Array, per_level: Array) -> Solution:
    """As `prices.best_level`."""
    where, matrix, limits = _rows(market, floor)
    raised = np.concatenate([np.zeros(len(limits) - market.rows), per_level / market.fastest])
    matrix = sparse.hstack([matrix, raised[:, None]], format="csc")
    gain = np.zeros(matrix.shape[1])
    gain[-1] = 1.0
    point, duals, bound = solve_program(gain, matrix, limits)
    shares = _matrix(market, where, point[:-1])
    rising = per_level > 0.0
    rates = market.rates_of(shares)
    reached = float(((rates - floor)[rising] / per_level[rising]).min())
    slope = duals[-market.rows :] / (market.copies * market.fastest)
    room = float(slope @ (market.copies * (floor + bound * per_level)))
    prices = duals[: len(market.limits)]
    able = reach(market, shares, prices, floor + reached * per_level)
    return Solution(reached, bound, prices, shares, rates, slope, room, 1, able, method=METHOD)


def best_value(market: Market, value: Array, floor: Array) -> Solution:
    """As `prices.best_value`."""
    where, matrix, limits = _rows(market, floor)
    point, duals, bound = solve_program((value * market.copies)[where], matrix, limits)
    shares = _matrix(market, where, point)
    reached = float(np.einsum("jm,jm,m->", value, shares, market.copies))
    prices = duals[: len(market.limits)]
    return Solution(reached, bound, prices, shares, market.rates_of(shares), np.zeros(0), np.inf, 1, method=METHOD)


def _rows(market: Market, floor: Array) -> tuple[tuple[Index, Index], sparse.csc_matrix, Array]:
    """Where there are variables, and A x <= b: constraints, time of each row, demand of each row (negated, in units of
    its fastest rate)."""
    column, row = np.nonzero(market.rate)
    where = column, row
    count = len(row)
    at = np.arange(count)
    constraints = [
        sparse.csc_matrix(each.load[:, column] * (each.weight * market.copies)[row]) for each in market.constraints
    ]
    time = sparse.csc_matrix((np.ones(count), (row, at)), shape=(market.rows, count))
    rates = sparse.csc_matrix((-(market.rate / market.fastest)[where], (row, at)), shape=(market.rows, count))
    matrix = sparse.vstack([*constraints, time, rates], format="csc")
    return where, matrix, np.concatenate([market.limits, np.ones(market.rows), -floor / market.fastest])


def solve_program(gain: Array, matrix: sparse.csc_matrix, limits: Array) -> tuple[Array, Array, float]:
    """The best point of gain @ x where matrix @ x <= limits and x >= 0, the duals of the limits, and the value that
    the duals prove. Raises `SolverFailed` with what HiGHS said."""
    exact = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
    scale = max(float(np.abs(gain).max(initial=0.0)), 1e-300)  # the tolerances are absolute
    result = linprog(-gain / scale, A_ub=matrix, b_ub=limits, method="highs-ds", options=exact)
    if result.status != 0:
        raise SolverFailed(f"HiGHS: {result.message}", status=result.status, variables=len(gain), rows=len(limits))
    duals = np.maximum(-result.ineqlin.marginals, 0.0) * scale
    return np.maximum(result.x, 0.0), duals, float(duals @ limits)


def _matrix(market: Market, where: tuple[Index, Index], point: Array) -> Array:
    shares = np.zeros_like(market.rate)
    shares[where] = point
    return market.fitted(shares)
