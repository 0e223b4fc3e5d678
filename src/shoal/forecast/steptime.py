"""Step time on one accelerator, from what a model is made of or from one measurement on another kind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any, Self

import numpy as np

from shoal.core import Estimate, Invalid
from shoal.forecast.devices import spec
from shoal.forecast.features import Features
from shoal.forecast.fitting import check_version, interval_width, left_out, non_negative, versioned, within

_KIND = "step-time"
_FEWEST_SHARED = 4
"""Models measured on both of two kinds, from which one kind may be inferred by way of the other."""
_DATA_SHEET_ERROR = 0.3
"""As a logarithm: one kind's worth of doubt about ratios of peak rates, added to what the measured kinds show."""
Measured = tuple[Features, Sequence[float]]
Coefficients = tuple[float, ...]


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


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step as a sum of terms, each with a coefficient >= 0 that belongs to the kind of accelerator.

    Where models that were left out are better predicted by way of another kind, the step is inferred there and carried
    over: what is noisy on one kind is often smooth on another."""

    coefficients: Mapping[str, Coefficients]
    through: Mapping[str, tuple[str, Transfer]]
    """By kind: the kind by way of which it is inferred."""
    widths: Mapping[str, float]
    """Half the width of the interval, as a logarithm, by kind."""
    models: Mapping[str, int]

    @classmethod
    def fit(cls, measured: Mapping[str, Mapping[str, Measured]]) -> Self:
        """From features and measured seconds of a step, by kind of accelerator and by model."""
        coefficients, through, widths = {}, {}, {}
        errors: dict[tuple[str, str], list[list[float]]] = {}
        for kind, by_model in measured.items():
            if len(by_model) < 2:
                raise Invalid(f"{kind}: step times of {len(by_model)} models; at least 2 are needed")
            coefficients[kind] = _fitted(by_model)
            errors[kind, kind] = left_out(by_model, _from_others)
        for base, kind in product(measured, measured):
            both = {m: (*measured[base][m], measured[kind][m][1]) for m in measured[base] if m in measured[kind]}
            if base != kind and len(both) >= _FEWEST_SHARED:
                errors[base, kind] = _errors_through(measured[base], both)
        for kind in measured:
            direct, *others = sorted((pair for pair in errors if pair[1] == kind), key=lambda pair: pair[0] != kind)
            best = min([direct, *others], key=lambda pair: fmean(map(fmean, errors[pair])))
            widths[kind] = interval_width(errors[best])
            if best != direct:
                through[kind] = best[0], _transfer(measured[best[0]], measured[kind])
        return cls(coefficients, through, widths, {kind: len(by_model) for kind, by_model in measured.items()})

    def predict(self, features: Features, kind: str) -> Estimate | None:
        """Seconds of a step. On a kind where no model was measured, by its data sheet; None where it or all kinds that
        were measured have none."""
        if kind not in self.coefficients:
            return self._by_data_sheet(features, kind)
        source = f"inferred from {self.models[kind]} other models measured on {kind}"
        if kind not in self.through:
            return within(_sum(self.coefficients[kind], features), self.widths[kind], source)
        base, transfer = self.through[kind]
        seconds = transfer.predict(features, _sum(self.coefficients[base], features))
        return within(seconds, self.widths[kind], f"{source}, by way of {base}")

    def _by_data_sheet(self, features: Features, kind: str) -> Estimate | None:
        """From the kind with the nearest rate of operations. The width comes from the kinds that were measured, each
        predicted from the others, and from what data sheets usually err by."""
        known = [one for one in self.coefficients if spec(one) is not None]
        if spec(kind) is None or not known:
            return None
        errors = [[_DATA_SHEET_ERROR]]
        for one in known if len(known) > 1 else ():
            carried, _ = self._carried(features, one, [other for other in known if other != one])
            errors.append([math.log(carried / _sum(self.coefficients[one], features))])
        seconds, base = self._carried(features, kind, known)
        return within(seconds, interval_width(errors), f"inferred from {base} by the data sheets: none on {kind}")

    def _carried(self, features: Features, kind: str, known: Sequence[str]) -> tuple[float, str]:
        def scale(base: str) -> tuple[float, float]:
            mine, its = spec(kind), spec(base)
            assert mine is not None
            assert its is not None
            return its.tflops["fp32"] / mine.tflops["fp32"], its.bandwidth_gb_s / mine.bandwidth_gb_s

        base = min(known, key=lambda one: abs(math.log(scale(one)[0])))
        operations, traffic = scale(base)
        # Operations, activations, tensors, parameters, the rest: what moves bytes goes with the memory's bandwidth.
        by_term = operations, traffic, operations, traffic, operations
        pairs = zip(self.coefficients[base], by_term, strict=True)
        return _sum(tuple(one * factor for one, factor in pairs), features), base

    def as_json(self) -> dict[str, Any]:
        kinds: dict[str, Any] = {
            kind: {"coefficients": list(found), "width": self.widths[kind], "models": self.models[kind]}
            for kind, found in self.coefficients.items()
        }
        for kind, (base, transfer) in self.through.items():
            kinds[kind]["through"] = {"kind": base, "intercept": transfer.intercept, "slope": transfer.slope}
        return versioned(_KIND, {"kinds": kinds})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        check_version(_KIND, data)
        kinds = data["kinds"]
        through = {kind: one["through"] for kind, one in kinds.items() if "through" in one}
        return cls(
            {kind: tuple(one["coefficients"]) for kind, one in kinds.items()},
            {kind: (one["kind"], Transfer(one["intercept"], one["slope"])) for kind, one in through.items()},
            {kind: one["width"] for kind, one in kinds.items()},
            {kind: one["models"] for kind, one in kinds.items()},
        )


def _fitted(by_model: Mapping[Any, Measured]) -> Coefficients:
    return non_negative(
        [one.terms() for one, _ in by_model.values()], [fmean(seconds) for _, seconds in by_model.values()]
    )


def _sum(coefficients: Coefficients, features: Features) -> float:
    return sum(each * term for each, term in zip(coefficients, features.terms(), strict=True))


def _from_others(others: Mapping[Any, Measured], features: Features) -> float:
    return _sum(_fitted(others), features)


def _transfer(base: Mapping[str, Measured], kind: Mapping[str, Measured]) -> Transfer:
    return Transfer.fit({m: (base[m][0], fmean(base[m][1]), fmean(kind[m][1])) for m in base if m in kind})


def _errors_through(
    base: Mapping[str, Measured], both: Mapping[str, tuple[Features, Sequence[float], Sequence[float]]]
) -> list[list[float]]:
    """Absolute log errors on the second kind of each model left out of the fits on both."""
    errors = []
    for one, (features, _, seconds) in both.items():
        on_base = _sum(_fitted({m: of for m, of in base.items() if m != one}), features)
        pairs = {m: (f, fmean(first), fmean(second)) for m, (f, first, second) in both.items() if m != one}
        found = Transfer.fit(pairs).predict(features, on_base)
        errors.append([abs(math.log(found / each)) for each in seconds])
    return errors
