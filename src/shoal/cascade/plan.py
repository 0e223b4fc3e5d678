"""From models of subsets to a plan: which stages, and the rules from strict to bold that will be tested.

All is decided on the select rows. What the select rows promise of a candidate plans the test; it certifies nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.cascade.certificate import Aim, Expected, Test, choose_test
from shoal.cascade.models.base import Output
from shoal.cascade.program import Rule
from shoal.cascade.rules import ClassRisk, IntervalRule
from shoal.cascade.steps.base import Floats
from shoal.cascade.subsets import Subset, cheapest_chain

LEVELS = 60
"""Candidates from strict to bold. A nested sequence costs nothing more for being fine."""
INTERVALS = 20
"""Of predictions, for regression: with 1,000 select rows each has 50."""

Costs = Callable[[Subset, Subset], float]


@dataclass(frozen=True)
class StageView:
    """One subset's model on the select rows. `risk`: by row, the estimated chance (regression: size) of a difference
    from the full pipeline; `differs`: what was seen; `loses`, `gains`: whether the label sides with the full pipeline
    or with this stage."""

    risk: Floats
    differs: Floats
    loses: Floats
    gains: Floats
    rule: Callable[[float], Rule]


@dataclass(frozen=True)
class Plan:
    """`rules`: by candidate, of each stage but the last. `expected`: by candidate, from the select rows."""

    chain: tuple[Subset, ...]
    rules: tuple[tuple[Rule, ...], ...]
    expected: tuple[Expected, ...]
    test: Test
    cost: float
    """Expected, a row: of what its test is expected to reach."""
    full_cost: float


def view_classes(output: Output, own: Floats, full: Floats, truth: NDArray[np.intp] | None) -> StageView:
    """own, full: scores of the select rows. truth: places of the true classes."""
    labels, wanted = output.labels(own), output.labels(full)
    differs = labels != wanted
    risk = ClassRisk.fit(labels, output.margins(own), differs, len(output.classes))
    none = np.zeros(len(own))
    loses = none if truth is None else (differs & (wanted == truth)).astype(np.float64)
    gains = none if truth is None else (differs & (labels == truth)).astype(np.float64)
    of_rows = risk.of(labels, output.margins(own))
    return StageView(of_rows, differs.astype(np.float64), loses, gains, risk.rule)


def view_values(own: Floats, full: Floats, truth: Floats | None, clip: float) -> StageView:
    """The same of a regression, in units of the clip. The risk is that of the interval which the prediction is in."""
    values, wanted = own[:, 0], full[:, 0]
    differs = np.minimum(np.abs(values - wanted), clip) / clip
    edges = np.unique(np.quantile(values, np.linspace(0, 1, INTERVALS + 1)[1:-1]))
    place = np.searchsorted(edges, values)
    rows = np.bincount(place, minlength=len(edges) + 1)
    risk = (np.bincount(place, differs, minlength=len(edges) + 1) + differs.mean()) / (rows + 1)
    loss = np.zeros(len(values)) if truth is None else increase(values, wanted, truth, clip)

    def rule(level: float) -> Rule:
        return IntervalRule(tuple(edges.tolist()), tuple(bool(one <= level) for one in risk))

    return StageView(risk[place], differs, np.maximum(loss, 0), np.maximum(-loss, 0), rule)


def increase(values: Floats, full: Floats, truth: Floats, clip: float) -> Floats:
    """By row, how much larger the absolute error became, clipped, in units of the clip."""
    return np.asarray(np.clip(np.abs(values - truth) - np.abs(full - truth), -clip, clip) / clip)


def make_plan(views: dict[Subset, StageView], groups: int, cost: Costs, aim: Aim, units: int, *, labels: bool) -> Plan:
    """The chain of stages with the least cost at the candidate that its test is expected to reach. `units`: how many
    will certify."""
    everything = tuple(range(groups))
    levels = _levels(views)
    chains = []
    for level in levels:
        unsure = {subset: float((view.risk > level).mean()) for subset, view in views.items()}
        chain = tuple(cheapest_chain(views, groups, unsure, cost))
        if len(chain) > 1 and chain not in chains:
            chains.append(chain)
    full_cost = cost((), everything)
    best = Plan((everything,), (), (), Test.DISAGREEMENT, full_cost, full_cost)
    for chain in chains:
        expected = tuple(_simulate(chain, views, level, cost) for level in levels)
        test, planned = choose_test(expected, aim, units, full_cost, labels=labels)
        if planned < best.cost:
            rules = tuple(tuple(views[subset].rule(level) for subset in chain[:-1]) for level in levels)
            best = Plan(chain, rules, expected, test, planned, full_cost)
    return best


def _levels(views: dict[Subset, StageView]) -> list[float]:
    """Levels of risk from strict to bold, by the risks that rows have."""
    risks = np.concatenate([view.risk for view in views.values()])
    found = np.unique(np.quantile(risks, np.linspace(0.02, 0.98, LEVELS)))
    return [float(one) for one in found if 0 < one < 1]


def _simulate(chain: Sequence[Subset], views: dict[Subset, StageView], level: float, cost: Costs) -> Expected:
    rows = len(views[chain[0]].risk)
    pending = np.ones(rows, bool)
    spent = seen = estimated = loses = gains = 0.0
    before: Subset = ()
    for subset in chain[:-1]:
        view = views[subset]
        spent += cost(before, subset) * float(pending.mean())
        taken = pending & (view.risk <= level)
        seen += float(view.differs[taken].sum()) / rows
        estimated += float(view.risk[taken].sum()) / rows
        loses += float(view.loses[taken].sum()) / rows
        gains += float(view.gains[taken].sum()) / rows
        pending &= ~taken
        before = subset
    spent += cost(before, chain[-1]) * float(pending.mean())
    differs = max(seen, estimated)
    # Of few disagreements, how many lose is hardly known: half, where none was seen.
    share = (loses * rows + 0.5) / ((loses + gains) * rows + 1.0)
    sided = 1.0 if seen == 0 else (loses + gains) / seen
    return Expected(spent, differs, differs * sided * share, differs * sided * (1.0 - share))
