"""Corrections of a sum of costs by models that are like the given one: a Gaussian process on logarithms of
features. One that another batch size was measured of is like that one; one unlike all others is left to the sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, stdev
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shoal.forecast.features import Features

_LENGTHS, _NOISES = (0.5, 1.0, 2.0, 4.0), (0.1, 0.5, 2.0)
"""How far likeness reaches, in logarithms of features, and how much models differ that are quite alike, as a part of
what unlike ones differ by. Chosen among these on the models left out, and not at all where they gain too little."""
Sum = Callable[[Features], float]
"""Seconds by a sum of costs."""


@dataclass(frozen=True)
class Near:
    """`at` (models, 3) logarithms of features, and `weights` (models,) of their kernels."""

    length: float
    noise: float
    at: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]

    @classmethod
    def choose(
        cls, models: Sequence[Features], seconds: Sequence[float], fit: Callable[[list[int]], Sum]
    ) -> Self | None:
        """`fit` gives the sum fitted to some of the models. None unless the error of models left out falls by more than
        a standard error of that gain (Breiman's rule)."""
        settings = list(product(_LENGTHS, _NOISES))
        plain, nearby = [], []
        for left in range(len(models)):
            others = [one for one in range(len(models)) if one != left]
            usual = fit(others)
            error = math.log(seconds[left] / usual(models[left]))
            known = [models[one] for one in others], [math.log(seconds[one] / usual(models[one])) for one in others]
            plain.append(abs(error))
            nearby.append([abs(error - cls.fit(*known, *one).log_factor(models[left])) for one in settings])
        best = min(range(len(settings)), key=lambda one: fmean(errors[one] for errors in nearby))
        gains = [was - errors[best] for was, errors in zip(plain, nearby, strict=True)]
        if len(gains) < 3 or fmean(gains) <= stdev(gains) / math.sqrt(len(gains)):
            return None
        usual = fit(list(range(len(models))))
        logs = [math.log(took / usual(one)) for one, took in zip(models, seconds, strict=True)]
        return cls.fit(models, logs, *settings[best])

    @classmethod
    def fit(cls, models: Sequence[Features], logs: Sequence[float], length: float, noise: float) -> Self:
        at = np.array([_place(one) for one in models])
        weights = np.linalg.solve(_alike(at, at, length) + noise * np.eye(len(at)), np.asarray(logs))
        return cls(length, noise, tuple(map(_place, models)), tuple(weights.tolist()))

    def log_factor(self, model: Features) -> float:
        """The logarithm of its seconds over the sum's."""
        return float((self._alike(model) @ np.array(self.weights)).item())

    def variance_left(self, model: Features) -> float:
        """Of an error's variance, the part that is left: from `noise` among models just like it, to 1 + `noise`."""
        at = np.array(self.at)
        known = _alike(at, at, self.length) + self.noise * np.eye(len(at))
        alike = self._alike(model)
        return self.noise + 1.0 - float((alike @ np.linalg.solve(known, alike.T)).item())

    def _alike(self, model: Features) -> NDArray[np.float64]:
        return _alike(np.array([_place(model)]), np.array(self.at), self.length)

    def as_json(self) -> dict[str, Any]:
        at = [list(one) for one in self.at]
        return {"length": self.length, "noise": self.noise, "at": at, "weights": list(self.weights)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["length"], data["noise"], tuple(map(tuple, data["at"])), tuple(data["weights"]))


def _place(model: Features) -> tuple[float, ...]:
    return math.log(model.flops), math.log(model.parameters), math.log(model.tensors)


def _alike(first: NDArray[np.float64], second: NDArray[np.float64], length: float) -> NDArray[np.float64]:
    apart = ((first[:, None] - second[None]) ** 2).sum(axis=-1)
    return np.asarray(np.exp(-apart / (2 * length**2)))
