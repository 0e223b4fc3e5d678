"""A strategy-proof variant: no tenant gains by lying about throughputs.

The partial allocation mechanism (Cole, Gkatzelis and Goel 2013), as Gavel's appendix uses it: allocate so that the
product of all throughputs (to the power of their weights) is greatest, then let each job keep only the part by which
its presence lowers the product of the others. What is kept back stays idle; that is the price of truth.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.schedule.baselines.nash import best_welfare
from shoal.schedule.errors import SolverFailed
from shoal.schedule.policy.finish import allocation, nothing
from shoal.schedule.policy.isolated import isolated_shares
from shoal.schedule.policy.solving import by_class, means, of_classes
from shoal.schedule.policy.subproblem import subproblem_of
from shoal.schedule.solve.market import Market
from shoal.schedule.solve.search import Solution
from shoal.schedule.types import Allocation, Array, Problem

NAME = "strategy-proof"
OBJECTIVE = "geometric mean of throughputs by weight, before discounts"


def strategy_proof(problem: Problem) -> Allocation:
    """One solve for each class of jobs and one for all."""
    sub = subproblem_of(problem)
    if not len(sub.free):
        return allocation(sub, nothing(sub), policy=NAME)
    start = isolated_shares(sub)
    of, market = by_class(sub.market, [sub.weight])
    weight, begin = sub.weight[of.first], means(start, of)
    whole = best_welfare(market, weight, start=begin)
    part: Array = np.ones(len(weight))
    for row in range(len(weight)):
        copies = market.copies.copy()
        copies[row] -= 1.0
        others = copies > 0.0
        if not others.any():
            continue
        without = replace(market.take(others), copies=copies[others])
        alone = _alone(without, weight[others], begin[:, others], whole.tried)
        with_it = float((weight * copies) @ np.log(whole.rates))
        part[row] = min(1.0, np.exp((with_it - alone.bound) / weight[row]))
    outcome = of_classes(whole, of)
    kept, total = part[of.of], sub.weight.sum()
    outcome = replace(
        outcome,
        shares=outcome.shares * kept,
        rates=outcome.rates * kept,
        value=np.exp(whole.value / total),
        bound=np.exp(whole.bound / total),
        prices=whole.prices * np.exp(whole.value / total) / total,
    )
    return allocation(sub, outcome, policy=NAME, objective=OBJECTIVE)


def _alone(market: Market, weight: Array, start: Array, prices: tuple[Array, ...]) -> Solution:
    """The others' best, from the prices that hold with everybody; anew where those lead to a corner that rounding does
    not get out of."""
    try:
        return best_welfare(market, weight, start=start, prices=prices)
    except SolverFailed:
        return best_welfare(market, weight, start=start)
