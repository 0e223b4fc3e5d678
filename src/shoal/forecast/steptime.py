"""Step time on one accelerator, from what a model is made of or from one measurement on another kind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Self

import numpy as np

from shoal.core import Estimate, Invalid
from shoal.forecast.features import Features
from shoal.forecast.fitting import check_version, conformal_width, left_out, non_negative, versioned, within

_KIND = "step-time"
Measured = tuple[Features, Sequence[float]]


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step as a sum of terms, each with a coefficient >= 0 that belongs to the kind of accelerator."""

    coefficients: Mapping[str, tuple[float, ...]]
    widths: Mapping[str, float]
    """Half the width of the interval, as a logarithm, by kind; infinite with fewer than nine models."""
    models: Mapping[str, int]

    @classmethod
    def fit(cls, measured: Mapping[str, Mapping[str, Measured]]) -> Self:
        """From features and measured seconds of a step, by kind of accelerator and by model."""
        coefficients, widths, models = {}, {}, {}
        for kind, by_model in measured.items():
            if len(by_model) < 2:
                raise Invalid(f"{kind}: step times of {len(by_model)} models; at least 2 are needed")
            coefficients[kind] = _fitted(by_model)
            widths[kind] = conformal_width(left_out(by_model, _from_others))
            models[kind] = len(by_model)
        return cls(coefficients, widths, models)

    def predict(self, features: Features, kind: str) -> Estimate | None:
        """Seconds of a step; None where no model was measured on this kind."""
        if kind not in self.coefficients:
            return None
        seconds = _sum(self.coefficients[kind], features)
        return within(seconds, self.widths[kind], f"inferred from {self.models[kind]} other models measured on {kind}")

    def as_json(self) -> dict[str, Any]:
        kinds = {
            kind: {"coefficients": list(found), "width": _finite(self.widths[kind]), "models": self.models[kind]}
            for kind, found in self.coefficients.items()
        }
        return versioned(_KIND, {"kinds": kinds})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        check_version(_KIND, data)
        kinds = data["kinds"]
        return cls(
            {kind: tuple(one["coefficients"]) for kind, one in kinds.items()},
            {kind: math.inf if one["width"] is None else one["width"] for kind, one in kinds.items()},
            {kind: one["models"] for kind, one in kinds.items()},
        )


@dataclass(frozen=True)
class Transfer:
    """Step time on one kind of accelerator from a measurement on another.

    The part of a step that goes into starting kernels does not become shorter on a faster device. That part goes with
    tensors per second of the step, so that the logarithm of the ratio is linear in it."""

    intercept: float
    slope: float

    @classmethod
    def fit(cls, pairs: Mapping[str, tuple[Features, float, float]]) -> Self:
        """From features and seconds on the first and on the second kind, by model."""
        rows = np.array([[1.0, features.tensors / first] for features, first, _ in pairs.values()])
        ratios = np.array([math.log(second / first) for _, first, second in pairs.values()])
        intercept, slope = np.linalg.lstsq(rows, ratios, rcond=None)[0]
        return cls(float(intercept), float(slope))

    def predict(self, features: Features, first_s: float) -> float:
        return first_s * math.exp(self.intercept + self.slope * features.tensors / first_s)


def _fitted(by_model: Mapping[Any, Measured]) -> tuple[float, ...]:
    return non_negative(
        [one.terms() for one, _ in by_model.values()], [fmean(seconds) for _, seconds in by_model.values()]
    )


def _sum(coefficients: tuple[float, ...], features: Features) -> float:
    return sum(each * term for each, term in zip(coefficients, features.terms(), strict=True))


def _from_others(others: Mapping[Any, Measured], features: Features) -> float:
    return _sum(_fitted(others), features)


def _finite(width: float) -> float | None:
    return width if math.isfinite(width) else None
