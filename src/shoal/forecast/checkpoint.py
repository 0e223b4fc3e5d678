"""Time of a checkpoint from its sizes, and how often to make one on a server that may be taken away."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Self

from shoal.core import Estimate, Invalid
from shoal.forecast.fitting import check_version, interval_width, left_out, non_negative, versioned, within

_KIND = "checkpoint-time"
Sizes = tuple[float, float]
"""Megabytes of weights, and of the graph that goes with them."""
Measured = tuple[Sizes, Sequence[float]]


@dataclass(frozen=True)
class CheckpointTime:
    """Seconds = a weights + b graph + c, all >= 0."""

    coefficients: tuple[float, ...]
    width: float
    models: int

    @classmethod
    def fit(cls, measured: Mapping[str, Measured]) -> Self:
        """From sizes and measured seconds, by model."""
        if len(measured) < 3:
            raise Invalid(f"checkpoint times of {len(measured)} models; at least 3 are needed")
        errors = left_out(measured, _from_others)
        return cls(_fitted(measured), interval_width(errors), len(measured))

    def predict(self, sizes: Sizes) -> Estimate:
        source = f"inferred from checkpoints of {self.models} other models"
        return within(_sum(self.coefficients, sizes), self.width, source)

    def as_json(self) -> dict[str, Any]:
        values = {"coefficients": list(self.coefficients), "width": self.width, "models": self.models}
        return versioned(_KIND, values)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        check_version(_KIND, data)
        return cls(tuple(data["coefficients"]), data["width"], data["models"])


def best_interval_s(checkpoint_s: float, mean_life_s: float, servers: int = 1) -> float:
    """Seconds of work between checkpoints that lose the least to checkpoints and to work done again: Daly's estimate of
    higher order (FGCS 2006), for servers that are lost at a constant rate. A gang is lost with any of its servers."""
    mean_life_s /= servers
    if checkpoint_s >= 2 * mean_life_s:
        return mean_life_s
    part = checkpoint_s / (2 * mean_life_s)
    return math.sqrt(2 * checkpoint_s * mean_life_s) * (1 + math.sqrt(part) / 3 + part / 9) - checkpoint_s


def _terms(sizes: Sizes) -> tuple[float, ...]:
    return (*sizes, 1.0)


def _sum(coefficients: tuple[float, ...], sizes: Sizes) -> float:
    return sum(each * term for each, term in zip(coefficients, _terms(sizes), strict=True))


def _fitted(measured: Mapping[Any, Measured]) -> tuple[float, ...]:
    return non_negative([_terms(sizes) for sizes, _ in measured.values()], [fmean(s) for _, s in measured.values()])


def _from_others(others: Mapping[Any, Measured], sizes: Sizes) -> float:
    return _sum(_fitted(others), sizes)
