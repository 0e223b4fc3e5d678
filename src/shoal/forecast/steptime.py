"""Step time on one accelerator, from what a model is made of or from one measurement on another kind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any, Self

import numpy as np

from shoal.core import Estimate, Invalid
from shoal.forecast.devices import spec
from shoal.forecast.features import Features
from shoal.forecast.fitting import check_version, interval_width, non_negative, versioned, within
from shoal.forecast.near import Near

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
class OnKind:
    """Seconds of a step on one kind of accelerator: the sum, and what models like this one differ from it by."""

    coefficients: Coefficients
    near: Near | None = None
    ranges: tuple[tuple[float, float], ...] = ()
    """Of each feature, the logarithms of the least and the most that was measured."""

    @classmethod
    def fit(cls, by_model: Mapping[Any, Measured]) -> Self:
        models, means = [one for one, _ in by_model.values()], [fmean(seconds) for _, seconds in by_model.values()]

        def fitted(rows: list[int]) -> Coefficients:
            return non_negative([models[row].terms() for row in rows], [means[row] for row in rows])

        near = Near.choose(models, means, lambda rows: partial(_sum, fitted(rows))) if len(models) > 3 else None
        logs = zip(*(tuple(map(math.log, astuple(one))) for one in models), strict=True)
        return cls(fitted(list(range(len(models)))), near, tuple((min(column), max(column)) for column in logs))

    def seconds(self, features: Features) -> float:
        factor = 1.0 if self.near is None else math.exp(self.near.log_factor(features))
        return factor * _sum(self.coefficients, features)

    def doubt(self, features: Features) -> float:
        """What an error counts in: the larger, the less alike the model is to those that were measured."""
        return 1.0 if self.near is None else math.sqrt(self.near.variance_left(features))

    def width(self, features: Features, usual: float) -> float:
        """Half the width of the interval as a logarithm, from that of models like those that were measured. It grows in
        proportion to how far the features lie outside of all that was measured, as logarithms."""
        logs = map(math.log, astuple(features))
        outside = sum(max(0.0, low - at, at - high) for at, (low, high) in zip(logs, self.ranges, strict=False))
        return usual * self.doubt(features) * (1.0 + outside)


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step as a sum of terms, each with a coefficient >= 0 that belongs to the kind of accelerator.

    Where models that were left out are better predicted by way of another kind, the step is inferred there and carried
    over: what is noisy on one kind is often smooth on another."""

    kinds: Mapping[str, OnKind]
    through: Mapping[str, tuple[str, Transfer]]
    """By kind: the kind by way of which it is inferred."""
    widths: Mapping[str, float]
    """Half the width of the interval, as a logarithm, by kind, where a model's doubt is 1."""
    models: Mapping[str, int]

    @classmethod
    def fit(cls, measured: Mapping[str, Mapping[str, Measured]]) -> Self:
        """From features and measured seconds of a step, by kind of accelerator and by model."""
        errors: dict[tuple[str, str], list[list[float]]] = {}
        doubts: dict[tuple[str, str], list[float]] = {}
        without: dict[str, dict[str, OnKind]] = {}
        for kind, by_model in measured.items():
            if len(by_model) < 2:
                raise Invalid(f"{kind}: step times of {len(by_model)} models; at least 2 are needed")
            without[kind] = {one: OnKind.fit({m: of for m, of in by_model.items() if m != one}) for one in by_model}
        for base, kind in product(measured, measured):
            both = [m for m in measured[base] if m in measured[kind]]
            if base != kind and len(both) < _FEWEST_SHARED:
                continue
            of = errors[base, kind] = []
            doubts[base, kind] = [without[base][one].doubt(measured[base][one][0]) for one in both]
            for one in both:
                features, seconds = measured[kind][one]
                found = without[base][one].seconds(features)
                if base != kind:
                    found = _transfer(measured[base], measured[kind], without=one).predict(features, found)
                of.append([abs(math.log(found / each)) for each in seconds])
        through, widths = {}, {}
        for kind in measured:
            direct, *others = sorted((pair for pair in errors if pair[1] == kind), key=lambda pair: pair[0] != kind)
            best = min([direct, *others], key=lambda pair: fmean(map(fmean, errors[pair])))
            counted = zip(errors[best], doubts[best], strict=True)
            widths[kind] = interval_width([[each / doubt for each in of] for of, doubt in counted])
            if best != direct:
                through[kind] = best[0], _transfer(measured[best[0]], measured[kind])
        kinds = {kind: OnKind.fit(by_model) for kind, by_model in measured.items()}
        return cls(kinds, through, widths, {kind: len(by_model) for kind, by_model in measured.items()})

    def predict(self, features: Features, kind: str) -> Estimate | None:
        """Seconds of a step. On a kind where no model was measured, by its data sheet; None where it or all kinds that
        were measured have none."""
        if kind not in self.kinds:
            return self._by_data_sheet(features, kind)
        source = f"inferred from {self.models[kind]} other models measured on {kind}"
        if kind not in self.through:
            on = self.kinds[kind]
            return within(on.seconds(features), on.width(features, self.widths[kind]), source)
        base, transfer = self.through[kind]
        on = self.kinds[base]
        seconds = transfer.predict(features, on.seconds(features))
        return within(seconds, on.width(features, self.widths[kind]), f"{source}, by way of {base}")

    def _by_data_sheet(self, features: Features, kind: str) -> Estimate | None:
        """From the kind with the nearest rate of operations. The width comes from the kinds that were measured, each
        predicted from the others, and from what data sheets usually err by."""
        known = [one for one in self.kinds if spec(one) is not None]
        if spec(kind) is None or not known:
            return None
        errors = [[_DATA_SHEET_ERROR]]
        for one in known if len(known) > 1 else ():
            carried, _ = self._carried(features, one, [other for other in known if other != one])
            errors.append([math.log(carried / self.kinds[one].seconds(features))])
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
        pairs = zip(self.kinds[base].coefficients, by_term, strict=True)
        scaled = OnKind(tuple(one * factor for one, factor in pairs), self.kinds[base].near)
        return scaled.seconds(features), base

    def as_json(self) -> dict[str, Any]:
        kinds: dict[str, Any] = {
            kind: {"coefficients": list(of.coefficients), "width": self.widths[kind], "models": self.models[kind]}
            for kind, of in self.kinds.items()
        }
        for kind, of in self.kinds.items():
            if of.near is not None:
                kinds[kind]["near"] = of.near.as_json()
            kinds[kind]["ranges"] = [list(one) for one in of.ranges]
        for kind, (base, transfer) in self.through.items():
            kinds[kind]["through"] = {"kind": base, "intercept": transfer.intercept, "slope": transfer.slope}
        return versioned(_KIND, {"kinds": kinds})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        check_version(_KIND, data)
        kinds = data["kinds"]
        through = {kind: one["through"] for kind, one in kinds.items() if "through" in one}
        return cls(
            {
                kind: OnKind(
                    tuple(one["coefficients"]),
                    Near.from_json(one["near"]) if "near" in one else None,
                    tuple((low, high) for low, high in one.get("ranges", ())),
                )
                for kind, one in kinds.items()
            },
            {kind: (one["kind"], Transfer(one["intercept"], one["slope"])) for kind, one in through.items()},
            {kind: one["width"] for kind, one in kinds.items()},
            {kind: one["models"] for kind, one in kinds.items()},
        )


def _sum(coefficients: Coefficients, features: Features) -> float:
    return sum(each * term for each, term in zip(coefficients, features.terms(), strict=True))


def _transfer(base: Mapping[str, Measured], kind: Mapping[str, Measured], *, without: str = "") -> Transfer:
    shared = [m for m in base if m in kind and m != without]
    return Transfer.fit({m: (base[m][0], fmean(base[m][1]), fmean(kind[m][1])) for m in shared})
