"""Step time of a gang that exchanges its gradients by a ring all-reduce, workers alike or mixed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.optimize import nnls

from shoal.core import Estimate, Invalid
from shoal.forecast.fitting import check_version, interval_width, versioned, within

_KIND = "all-reduce"


@dataclass(frozen=True, slots=True)
class Gang:
    """A model's bytes of gradients and tensors, and the seconds of a step on each of the gang's workers alone."""

    weight_bytes: float
    tensors: float
    alone_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.alone_s or min(self.weight_bytes, self.tensors, *self.alone_s) <= 0:
            raise Invalid("a gang has a worker at least; bytes, tensors and seconds are positive")

    def exchange(self) -> tuple[float, float]:
        """What a ring of n workers moves: each sends 2 (n - 1) / n of the bytes, in 2 (n - 1) rounds for each tensor
        (Patarasuk and Yuan, JPDC 2009)."""
        others = len(self.alone_s) - 1
        return 2 * others / (others + 1) * self.weight_bytes, 2 * others * self.tensors


@dataclass(frozen=True)
class AllReduce:
    """Steps wait for the slowest worker, and then for what of the exchange does not run beside the pass backward."""

    byte_s: float
    round_s: float
    width: float
    models: int

    @classmethod
    def fit(cls, measured: Mapping[str, Sequence[tuple[Gang, float]]]) -> Self:
        """From gangs and the seconds of their steps, by model; two models with gangs of several workers at least."""
        if len(measured) < 2 or all(len(gang.alone_s) < 2 for of in measured.values() for gang, _ in of):
            raise Invalid("an exchange is fitted to gangs of several workers, of two models at least")
        errors = []
        for one, of in measured.items():
            byte_s, round_s = _fitted([pair for m, pairs in measured.items() if m != one for pair in pairs])
            errors.append([math.log(_seconds(gang, byte_s, round_s) / seconds) for gang, seconds in of])
        return cls(*_fitted([pair for of in measured.values() for pair in of]), interval_width(errors), len(measured))

    def predict(self, gang: Gang) -> Estimate:
        """Seconds of a step of the whole gang."""
        source = f"inferred from gangs of {self.models} other models, and from each worker's speed alone"
        return within(_seconds(gang, self.byte_s, self.round_s), self.width, source)

    def as_json(self) -> dict[str, Any]:
        names = ("byte_s", "round_s", "width", "models")
        return versioned(_KIND, {name: getattr(self, name) for name in names})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        check_version(_KIND, data)
        return cls(data["byte_s"], data["round_s"], data["width"], data["models"])


def _seconds(gang: Gang, byte_s: float, round_s: float) -> float:
    moved, rounds = gang.exchange()
    return max(gang.alone_s) + byte_s * moved + round_s * rounds


def _fitted(pairs: Sequence[tuple[Gang, float]]) -> tuple[float, float]:
    """The costs >= 0 with the least squares of relative errors."""
    seconds = np.array([one for _, one in pairs])
    rows = np.array([gang.exchange() for gang, _ in pairs]) / seconds[:, None]
    usual = rows.max(axis=0)
    usual[usual == 0] = 1.0
    waited = (seconds - np.array([max(gang.alone_s) for gang, _ in pairs])) / seconds
    byte_s, round_s = nnls(rows / usual, waited)[0] / usual
    return float(byte_s), float(round_s)
