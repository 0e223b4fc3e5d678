"""One option for each row, or none, so that the sum of values is greatest and no limit is passed.

The relaxation is solved by prices (`prices.best_value`) and bounds the optimum. In its solution almost every row has
made up its mind; those that have not, and those whose second choice is nearly as good, are chosen among by a small
exact mixed-integer program. While that leaves a gap, more rows are opened again, in the end all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from shoal.schedule.errors import SolverFailed
from shoal.schedule.solve import exact
from shoal.schedule.solve.market import Market
from shoal.schedule.types import Array, Index

CORE = 32
"""Rows that the first integer program chooses for, besides the undecided ones."""

NODES = 2000
"""Branches that one integer program may look at. A limit on nodes, unlike one on time, gives the same answer always."""


@dataclass(frozen=True)
class Choice:
    """`option` (m,) is the column that each row has, or -1; the value with its bound; prices (r,) of the relaxation;
    and how many rows the last integer program chose for."""

    option: Index
    value: float
    bound: float
    prices: Array
    core: int


def best_choice(market: Market, value: Array, *, gap: float) -> Choice:
    """`value` (n, m), not positive where an option is no better than none; rates only say which options there are.
    Stops at the relative gap asked for."""
    value = np.where(market.rate > 0.0, value, 0.0)
    relaxed = exact.best_value(market, value, np.zeros(market.rows))
    worth = np.where(market.rate > 0.0, value - market.cost(relaxed.prices), -np.inf)
    ranked = np.sort(np.vstack([worth, np.zeros(market.rows)]), axis=0)
    margin = ranked[-1] - ranked[-2]
    undecided = ((relaxed.shares > 1e-6) & (relaxed.shares < 1.0 - 1e-6)).any(axis=0)
    order = np.lexsort((margin, ~undecided))
    option = np.where(relaxed.shares.max(axis=0) >= 1.0 - 1e-6, relaxed.shares.argmax(axis=0), -1)
    core = min(int(undecided.sum()) + CORE, market.rows)
    while True:
        chosen, most = _choose(market, value, option, order[:core], gap)
        got = np.flatnonzero(chosen >= 0)
        total = float(value[chosen[got], got].sum())
        bound = relaxed.bound if core < market.rows else min(relaxed.bound, max(most, total))
        if core == market.rows or bound - total <= gap * max(abs(bound), 1e-300):
            return Choice(chosen, total, bound, relaxed.prices, core)
        core = min(4 * core, market.rows)


def _choose(market: Market, value: Array, option: Index, rows: Index, gap: float) -> tuple[Index, float]:
    """The best options for some rows, the others keeping theirs, and a bound on what those rows can have."""
    chosen = option.copy()
    chosen[rows] = -1
    left = np.maximum(market.limits - market.usage_of(market.whole(chosen)), 0.0)
    column, at = np.nonzero((market.rate[:, rows] > 0.0) & (value[:, rows] > 0.0))
    if not len(column):
        return chosen, 0.0
    used = np.vstack([each.load[:, column] * each.weight[rows[at]] for each in market.constraints])
    one = sparse.csr_matrix((np.ones(len(at)), (at, np.arange(len(at)))), shape=(len(rows), len(at)))
    result = milp(
        -value[column, rows[at]],
        constraints=[LinearConstraint(sparse.csr_matrix(used), ub=left + 1e-9), LinearConstraint(one, ub=1.0)],
        integrality=np.ones(len(at)),
        bounds=Bounds(0.0, 1.0),
        options={"mip_rel_gap": 0.1 * gap, "node_limit": NODES},
    )
    if result.x is None:
        raise SolverFailed(f"HiGHS: {result.message}", status=result.status, options=len(at))
    taken = np.flatnonzero(result.x > 0.5)
    chosen[rows[at[taken]]] = column[taken]
    return chosen, -float(result.mip_dual_bound)
