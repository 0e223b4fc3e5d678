"""Models of some of the feature groups: what each subset is worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.cascade.models.base import Model
from shoal.cascade.program import Group, stack
from shoal.cascade.steps.base import Block, Floats
from shoal.cascade.table import Table

Subset = tuple[int, ...]
"""Places of groups, ascending."""
MOST_REFITS = 64
"""All subsets of six groups. With more groups, only subsets that orders of the groups begin with are tried."""
SHAPLEY_ORDERS = 8


class Subsets:
    """Models by subset, each fitted once, on the fit rows, and scored on the select rows.

    `fit`: features and labels to a model. `merits`: scores of the select rows to the figure of merit of each, more is
    better; a subset's worth is their mean.
    """

    def __init__(
        self, groups: Sequence[Group], fit_rows: Table, select_rows: Table,
        fit: Callable[[Block], Model], merits: Callable[[Model, Floats], Floats], empty: float,
    ) -> None:  # fmt: skip
        self._groups = groups
        self._fit = fit
        self._merits_of = merits
        self._fit_features = [group.features(fit_rows) for group in groups]
        self._select_features = [group.features(select_rows) for group in groups]
        self._models: dict[Subset, Model] = {}
        self._scores: dict[Subset, Floats] = {}
        self._merits: dict[Subset, Floats] = {(): np.array([empty])}

    @property
    def refits(self) -> int:
        return len(self._models)

    def give(self, subset: Subset, model: Model) -> None:
        """A model that is there already: the full pipeline's."""
        self._models[subset] = model

    def model(self, subset: Subset) -> Model:
        if subset not in self._models:
            self._models[subset] = self._fit(stack([self._fit_features[place] for place in subset]))
        return self._models[subset]

    def features(self, subset: Subset) -> Block:
        """Of the select rows."""
        return stack([self._select_features[place] for place in subset])

    def scores(self, subset: Subset) -> Floats:
        """Of the select rows."""
        if subset not in self._scores:
            self._scores[subset] = self.model(subset).scores(self.features(subset))
        return self._scores[subset]

    def merits(self, subset: Subset) -> Floats:
        if subset not in self._merits:
            self._merits[subset] = self._merits_of(self.model(subset), self.scores(subset))
        return self._merits[subset]

    def worth(self, subset: Subset) -> float:
        return float(self.merits(subset).mean())

    def may_refit(self, more: int) -> bool:
        return self.refits + more <= MOST_REFITS


@dataclass(frozen=True)
class Importance:
    """`conditional`: what is lost without the group, all others being there, with its standard error over the select
    rows. `shapley`: its mean gain over orders of the groups, so that of two redundant groups each has half. All in
    units of the figure of merit."""

    conditional: float
    error: float
    shapley: float


def importances(subsets: Subsets, groups: int, seed: int) -> list[Importance]:
    everything = tuple(range(groups))
    full, shapley = subsets.merits(everything), _shapley(subsets, groups, seed)
    found = []
    for place in everything:
        lost = full - subsets.merits(tuple(one for one in everything if one != place))
        error = float(lost.std()) / math.sqrt(len(lost))
        found.append(Importance(float(lost.mean()), error, shapley[place]))
    return found


def _shapley(subsets: Subsets, groups: int, seed: int) -> list[float]:
    """Exact where all subsets may be fitted, otherwise the mean over drawn orders."""
    if groups <= 4:
        total = [0.0] * groups
        for place in range(groups):
            others = [one for one in range(groups) if one != place]
            for subset in every_subset(others):
                weight = 1.0 / (groups * math.comb(groups - 1, len(subset)))
                total[place] += weight * (subsets.worth(_with(subset, place)) - subsets.worth(subset))
        return total
    draw, gains = np.random.default_rng(seed), np.zeros(groups)
    orders = 0
    while orders < SHAPLEY_ORDERS and (orders == 0 or subsets.may_refit(groups)):
        before: Subset = ()
        for place in draw.permutation(groups).tolist():
            bigger = _with(before, place)
            gains[place] += subsets.worth(bigger) - subsets.worth(before)
            before = bigger
        orders += 1
    return [float(one) for one in gains / orders]


def every_subset(places: Sequence[int]) -> list[Subset]:
    return [tuple(place for at, place in enumerate(places) if mask >> at & 1) for mask in range(1 << len(places))]


def candidates(groups: int, costs: Sequence[float], importance: Sequence[Importance]) -> list[Subset]:
    """Subsets that may be stages: all of up to five groups; of more, those with which three orders begin."""
    everything = tuple(range(groups))
    if groups <= 5:
        return [subset for subset in every_subset(everything) if subset and subset != everything]
    ratio = [max(one.shapley, 0.0) / max(cost, 1e-9) for one, cost in zip(importance, costs, strict=True)]
    orders = (
        sorted(everything, key=lambda place: -ratio[place]),
        sorted(everything, key=lambda place: costs[place]),
        sorted(everything, key=lambda place: -importance[place].shapley),
    )
    found = {tuple(sorted(order[:size])) for order in orders for size in range(1, groups)}
    return sorted(found, key=lambda subset: (len(subset), subset))


def cheapest_chain(
    subsets: Iterable[Subset], groups: int, unsure: Mapping[Subset, float], cost: Callable[[Subset, Subset], float]
) -> list[Subset]:
    """The stages with the least expected cost a row, by dynamic programming over inclusion: from each subset on, the
    best next one. `unsure`: the share of rows that a stage cannot answer, which later stages see. `cost(before,
    after)`: of the groups that come in, and of the model. The last stage has all groups."""
    everything = tuple(range(groups))
    order = sorted({*subsets, everything}, key=lambda one: -len(one))
    best: dict[Subset, tuple[float, list[Subset]]] = {everything: (0.0, [])}
    for subset in [*order[1:], ()]:
        share = unsure.get(subset, 1.0)
        choices = [
            (share * cost(subset, after) + best[after][0], [after, *best[after][1]])
            for after in order
            if set(subset) < set(after)
        ]
        best[subset] = min(choices, key=lambda choice: choice[0])
    return best[()][1]


def cost_between(group_us: Sequence[float], model_us: Mapping[Subset, float]) -> Callable[[Subset, Subset], float]:
    return lambda before, after: sum(group_us[one] for one in after if one not in before) + model_us.get(after, 0.0)


def _with(subset: Subset, place: int) -> Subset:
    return tuple(sorted((*subset, place)))
