"""The programs that policies are made of, solved for a sub: best level, best value, and filling like water.

Jobs with equal numbers are solved as one class, and each gets an equal part. With space sharing the same programs are
solved over pairs, by `baselines.space_sharing`, which is loaded then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from shoal.schedule.errors import SolverFailed
from shoal.schedule.policy.subproblem import Subproblem
from shoal.schedule.solve import exact, lp
from shoal.schedule.solve.aggregate import Classes, classes
from shoal.schedule.solve.flow import Entities, Flow
from shoal.schedule.solve.market import Constraint, Market
from shoal.schedule.solve.prices import tangents
from shoal.schedule.solve.search import Solution
from shoal.schedule.solve.water import Filled, Level, water_fill
from shoal.schedule.types import Allocation, Array, Pairs, Tried, no_pairs


@dataclass(frozen=True)
class Outcome:
    """What the jobs of a subproblem get: `shares` (n, k) of time alone, `pairs` (of rows of the sub), `rates` (k,), the
    `prices` (r,) of the limits, the objective's value with its bound, and how it was found; over pairs, which kinds
    of pairs it knows of; over prices, which were tried."""

    shares: Array
    rates: Array
    prices: Array
    value: float
    bound: float
    pairs: Pairs = field(default_factory=no_pairs)
    facts: Mapping[str, Any] = field(default_factory=dict)
    known: object = None
    tried: Tried = ()


def tried_before(sub: Subproblem, previous: Allocation | None) -> Tried:
    """The prices with which a search begins after that of the allocation before, if the limits are the same ones."""
    return previous.tried if previous is not None and previous.limited == sub.market.names else ()


def best_level(sub: Subproblem, floor: Array, per_level: Array, *, start: Outcome | None = None) -> Outcome:
    """The highest t at which all jobs have the rates floor + t * per_level, both (k,); `start` must reach t = 0 if the
    floors are positive."""
    market = sub.market
    if sub.beside is not None:
        from shoal.schedule.baselines.space_sharing import solving as over_pairs

        return _of_pairs(*over_pairs.best_level(sub, floor, per_level, None if start is None else start.known))
    of, grouped = by_class(market, [floor, per_level])
    shares = None if start is None else means(start.shares, of)
    return of_classes(exact.best_level(grouped, floor[of.first], per_level[of.first], start=shares), of)


def best_value(
    sub: Subproblem,
    gain: Array,
    cost: Array,
    floor: Array,
    *,
    start: Outcome | None = None,
    tried: Tried = (),
    alike: bool = True,
) -> Outcome:
    """The most of gain * rate - cost * share in sum over jobs and columns, both (n, k), with rates of at least the
    floor (k,), which `start` must reach if it is positive. Prices `tried` in a like problem are a first guess. Unless
    there may be jobs that are `alike`, no classes of them are looked for."""
    market = sub.market
    if sub.beside is not None:
        from shoal.schedule.baselines.space_sharing import solving as over_pairs

        return _of_pairs(*over_pairs.best_value(sub, gain, cost, floor, None if start is None else start.known))
    worth = gain * market.rate - cost
    guess = tried[0] if tried else ()
    shares = None if start is None else start.shares
    if not alike:
        return _outcome(exact.best_value(market, worth, floor, start=shares, guess=guess), len(floor))
    of, grouped = by_class(market, [floor, *worth])
    shares = None if shares is None else means(shares, of)
    return of_classes(exact.best_value(grouped, worth[:, of.first], floor[of.first], start=shares, guess=guess), of)


def fill(sub: Subproblem, entities: Entities, tried: Tried = ()) -> Outcome:
    """Raise the normalised throughput (rate * gang / norm) of all jobs together; see `water.py`. Entities are over the
    subproblem's jobs; where each job is its own, they are made for classes. Prices `tried` in a like problem are first
    guesses."""
    market, unit = sub.market, sub.norm / sub.gang
    if sub.beside is not None:
        from shoal.schedule.baselines.space_sharing.solving import PairSolver

        solver = PairSolver(sub)
        flow = Flow(entities, norm=unit, most=market.fastest, copies=market.copies)
        filled = water_fill(flow, market.copies, solver)
        outcome = _of_pairs(filled.solution, solver.pairs, solver.known)
    else:
        own = [entities.weight] if entities.single else [entities.of.astype(np.float64), entities.part, entities.rank]
        of, grouped = by_class(market, [unit, *own])

        def filled_by(solve: Level, known: Tried) -> Filled:
            flow = Flow(entities.take(of.first, of.copies), norm=unit[of.first], most=grouped.fastest, copies=of.copies)
            return water_fill(flow, of.copies, solve, known, partial(tangents, grouped))

        filled = first_filled(filled_by, grouped, tried)
        outcome = of_classes(filled.solution, of)
    facts = {**outcome.facts, "freezes": filled.freezes, "rounds": filled.rounds}
    return replace(
        outcome, prices=filled.prices, value=filled.level, bound=filled.bound, facts=facts, tried=filled.tried
    )


def first_filled(filled_by: Callable[[Level, Tried], Filled], market: Market, tried: Tried) -> Filled:
    """The filling that begins with the prices `tried`. What is known of another problem must never decide whether this
    one is solved: where that filling gives up, one begins with nothing, and then one by the general solver alone.
    Raises `SolverFailed` where that gives up, too."""
    by_prices = partial(exact.best_level, market)
    if tried:
        with suppress(SolverFailed):
            return filled_by(by_prices, tried)
    with suppress(SolverFailed):
        return filled_by(by_prices, ())
    return filled_by(partial(_by_general_solver, market), ())


def _by_general_solver(market: Market, floor: Array, per_level: Array, **_: Any) -> Solution:
    """As `exact.best_level`; the general solver begins with nothing, and is always exact."""
    return lp.best_level(market, floor, per_level)


def by_class(market: Market, keys: list[Array]) -> tuple[Classes, Market]:
    """Classes of the rows that are equal in the keys and in all that the market knows, and their market."""
    of = classes([*keys, *market.rate, *(constraint.weight for constraint in market.constraints)])
    constraints = tuple(Constraint(c.names, c.weight[of.first], c.load, c.limit) for c in market.constraints)
    return of, Market(np.ascontiguousarray(market.rate[:, of.first]), of.copies, constraints)


def means(shares: Array, of: Classes) -> Array:
    """(n, c) the mean shares of each class's members."""
    sums = [np.bincount(of.of, column, minlength=len(of.first)) for column in shares]
    return np.stack(sums) / of.copies


def of_classes(found: Solution, of: Classes) -> Outcome:
    return _outcome(found, len(of.first), found.shares[:, of.of], found.rates[of.of])


def _outcome(found: Solution, classes: int, shares: Array | None = None, rates: Array | None = None) -> Outcome:
    """The outcome of a solution, whose rows are the jobs unless their shares and rates are told."""
    return Outcome(
        found.shares if shares is None else shares, found.rates if rates is None else rates, found.prices, found.value,
        found.bound, facts={"method": found.method, "classes": classes, "rounds": found.rounds}, tried=(found.tried,),
    )  # fmt: skip


def _of_pairs(found: Solution, pairs: Pairs, known: object) -> Outcome:
    facts = {"method": "columns", "rounds": found.rounds}
    return Outcome(found.shares, found.rates, found.prices, found.value, found.bound, pairs, facts, known)
