"""Rules by which a stage is sure of a row: thresholds by class."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.cascade.models.base import Output
from shoal.cascade.program import Rule
from shoal.cascade.steps.base import Floats

NEVER = float(np.finfo(np.float64).max)
"""A threshold that no margin reaches."""


@dataclass(frozen=True)
class MarginRule:
    """`thresholds`: by class, the least margin with which it is answered."""

    thresholds: tuple[float, ...]

    def sure(self, scores: Floats, output: Output) -> NDArray[np.bool_]:
        return np.asarray(output.margins(scores) >= np.array(self.thresholds)[output.labels(scores)])

    def sure_of(self, scores: Sequence[float], output: Output) -> bool:
        label, margin = output.best(scores)
        return margin >= self.thresholds[label]

    def as_json(self) -> dict[str, Any]:
        return {"kind": "margin", "thresholds": list(self.thresholds)}


@dataclass(frozen=True)
class IntervalRule:
    """For regression: predictions in some of the intervals between `edges` are answered. `allowed` has one entry more
    than there are edges."""

    edges: tuple[float, ...]
    allowed: tuple[bool, ...]

    def sure(self, scores: Floats, output: Output) -> NDArray[np.bool_]:  # noqa: ARG002
        return np.array(self.allowed)[np.searchsorted(self.edges, scores[:, 0])]

    def sure_of(self, scores: Sequence[float], output: Output) -> bool:  # noqa: ARG002
        return self.allowed[bisect_left(self.edges, scores[0])]

    def as_json(self) -> dict[str, Any]:
        return {"kind": "interval", "edges": list(self.edges), "allowed": list(self.allowed)}


def rule_from_json(data: Mapping[str, Any] | None) -> Rule | None:
    """Raises ValueError or KeyError for what is no rule."""
    if data is None:
        return None
    match data["kind"]:
        case "margin":
            return MarginRule(tuple(float(one) for one in data["thresholds"]))
        case "interval":
            rule = IntervalRule(tuple(map(float, data["edges"])), tuple(map(bool, data["allowed"])))
            if len(rule.allowed) != len(rule.edges) + 1:
                raise ValueError("a rule has one interval more than edges")
            return rule
    raise ValueError(f"a rule of kind {data['kind']!r}")


@dataclass(frozen=True)
class ClassRisk:
    """The probability that a stage differs from the full pipeline, by its class and margin: logistic, with an offset
    of each class and one slope, fitted with a mild prior so that few disagreements do not make it extreme."""

    offsets: Floats
    slope: float
    scale: float

    @classmethod
    def fit(cls, labels: NDArray[np.intp], margins: Floats, differs: NDArray[np.bool_], classes: int) -> ClassRisk:
        scale = float(np.median(margins)) or 1.0
        count = max(classes, 2)
        design = np.zeros((len(labels), count + 2))
        design[np.arange(len(labels)), labels] = 1.0
        design[:, count], design[:, count + 1] = 1.0, -margins / scale
        prior = np.full(count + 2, 1.0)
        prior[count:] = 1e-3  # the common offset and the slope are the data's own
        weights = np.zeros(count + 2)
        for _ in range(30):  # Newton
            chance = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -30, 30)))
            gradient = design.T @ (differs - chance) - prior * weights
            hessian = (design * (chance * (1 - chance))[:, None]).T @ design + np.diag(prior)
            step = np.linalg.solve(hessian, gradient)
            weights += np.clip(step, -4, 4)
            if np.abs(step).max() < 1e-8:
                break
        return cls(weights[:count] + weights[count], max(float(weights[count + 1]), 1e-2), scale)

    def of(self, labels: NDArray[np.intp], margins: Floats) -> Floats:
        return np.asarray(1.0 / (1.0 + np.exp(-(self.offsets[labels] - self.slope * margins / self.scale))))

    def rule(self, risk: float) -> MarginRule:
        """Rows at this risk or below are answered."""
        logit = np.log(risk / (1.0 - risk))
        return MarginRule(tuple(np.maximum(self.scale * (self.offsets - logit) / self.slope, 0.0).tolist()))
