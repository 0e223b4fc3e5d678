"""Willump's own choice of a cascade (Kraft et al., MLSys'20), re-made as a baseline: no certificate.

Permutation importance of groups, a knapsack over six budgets, five symmetric thresholds, and a tolerance of a tenth of
a point on the very rows that choose.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.cascade.cascade import Cascade
from shoal.cascade.certificate import Aim, Test
from shoal.cascade.program import Stage, stack
from shoal.cascade.roles import Roles
from shoal.cascade.rules import MarginRule
from shoal.cascade.subsets import Subset, Subsets
from shoal.core import Invalid

TOLERANCE = 0.001
THRESHOLDS = (0.6, 0.7, 0.8, 0.9, 1.0)
BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
PRECISION = 1000


def willump(
    cascade: Cascade, subsets: Subsets, group_us: list[float], truth: NDArray[Any] | None, roles: Roles, seed: int
) -> Cascade:
    """The cascade that its rule chooses, with `certificate` None. Raises Invalid where it has no rule: it needs labels
    and two classes with probabilities."""
    output = cascade.full.output
    if truth is None or len(output.classes) != 2:
        raise Invalid("Willump's rule needs labels and two classes", where="method", hint="use the method shoal")
    right = output.named(np.arange(2))
    labels = (truth[roles.select] == right[1]).astype(np.intp)
    everything = tuple(range(len(group_us)))
    full = output.labels(subsets.scores(everything))
    total = sum(group_us)
    best: tuple[float, Subset, float] = (total, everything, 1.0)
    importance = _permutation(subsets, everything, labels, seed)
    for budget in BUDGETS:
        chosen = knapsack(importance, [cost / total for cost in group_us], budget)
        if not chosen or chosen == everything:
            continue
        scores = subsets.scores(chosen)
        confidence = output.probabilities(scores).max(axis=1)
        own = output.labels(scores)
        for threshold in THRESHOLDS:
            sure = confidence > threshold
            if (np.where(sure, own, full) == labels).mean() <= (full == labels).mean() - TOLERANCE:
                continue
            cost = sum(group_us[one] for one in chosen)
            expected = cost + (1 - float(sure.mean())) * (total - cost)
            if expected < best[0]:
                best = expected, chosen, threshold
    expected, chosen, threshold = best
    cascade.report["plan"] = {"method": "willump", "full_us": total, "expected_us": expected, "threshold": threshold}
    if chosen == everything:
        cascade.report["reason"] = "Willump's rule finds no set of groups that is cheaper and as accurate"
        return cascade
    margin = margin_at(subsets.scores(chosen), output.probabilities(subsets.scores(chosen)).max(axis=1), threshold)
    rule = MarginRule((margin, margin))
    cascade.prepare([Stage(chosen, subsets.model(chosen))], [(rule,)], Test.LOSS, Aim(TOLERANCE))
    cascade.use(0)
    cascade.report["approximated"] = float(rule.sure(subsets.scores(chosen), output).mean())
    cascade.report["reason"] = "chosen by Willump's rule: nothing is certified"
    return cascade


def knapsack(values: list[float], weights: list[float], capacity: float) -> Subset:
    """The items with the largest sum of values within the capacity, by dynamic programming over a thousandth."""
    room = int(capacity * PRECISION)
    best: list[tuple[float, Subset]] = [(0.0, ())] * (room + 1)
    for item, (value, weight) in enumerate(zip(values, weights, strict=True)):
        size = int(weight * PRECISION)
        for left in range(room, size - 1, -1):
            value_with = best[left - size][0] + value
            if value_with > best[left][0]:
                best[left] = value_with, (*best[left - size][1], item)
    return best[room][1]


def margin_at(scores: Any, confidence: Any, threshold: float) -> float:
    """The margin in scores of the least confident row above the threshold of probability."""
    above = confidence > threshold
    margins = np.abs(scores[:, 0]) if scores.shape[1] == 1 else np.abs(scores[:, 1] - scores[:, 0])
    return float(margins[above].min()) if above.any() else float("inf")


def _permutation(subsets: Subsets, everything: Subset, labels: NDArray[np.intp], seed: int) -> list[float]:
    draw = np.random.default_rng(seed)
    model = subsets.model(everything)
    blocks = [subsets.features((place,)) for place in everything]
    base = float((model.output.labels(model.scores(stack(blocks))) == labels).mean())
    found = []
    for place in everything:
        shuffled = list(blocks)
        shuffled[place] = blocks[place][draw.permutation(len(labels))]
        found.append(base - float((model.output.labels(model.scores(stack(shuffled))) == labels).mean()))
    return found
