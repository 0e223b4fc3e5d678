"""Speed of a gang that trains with parameter servers, from its speed with one worker."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from shoal.core import Estimate, Invalid
from shoal.forecast.features import Features
from shoal.forecast.fitting import check_version, interval_width, versioned, within

_KIND = "cluster-speed"
_PRIOR = np.array([math.log(1e-4), math.log(6.4e-9), 0.0, math.log(4.0)])
_DOUBT = np.array([1.0, 0.3, 1.0, 0.5])
"""Of the four numbers below: 0.1 ms for each tensor; 4 bytes sent and 4 received for each parameter at 10 Gbit/s; no
opinion on how bytes spread over servers; a fairly sharp knee. The network is known better than the rest."""
_NOISE = 0.05
_FIELDS = ("tensor_s", "parameter_s", "spread", "knee", "width", "networks")


@dataclass(frozen=True, slots=True)
class Measured:
    """Median steps per second of all workers together; `alone_per_s` is that of one worker."""

    features: Features
    alone_per_s: float
    workers: int
    servers: int
    steps_per_s: float


@dataclass(frozen=True)
class ClusterSpeed:
    """Workers ask for `workers` times the speed of one; the servers give a bounded number of updates per second. An
    update costs `tensor_s` for each tensor, divided by all servers, and `parameter_s` for each parameter, divided by
    servers to the power of `spread`: large tensors stay whole on one server. `knee` is how sharply speed is bounded."""

    tensor_s: float
    parameter_s: float
    spread: float
    knee: float
    width: float
    """Half the width of the interval, as a logarithm; infinite where one network alone was measured."""
    networks: int

    @classmethod
    def fit(cls, measured: Sequence[Measured]) -> Self:
        """The most likely values, given what networks and servers usually cost. The width comes from networks left
        out."""
        if not measured:
            raise Invalid("no speeds of clusters were measured")
        networks = dict.fromkeys(one.features for one in measured)
        errors = []
        for features in networks if len(networks) > 1 else ():
            others = cls(*_most_likely([one for one in measured if one.features != features]), math.inf, 0)
            errors.append([
                math.log(others._steps_per_s(features, (one.alone_per_s,) * one.workers, one.servers) / one.steps_per_s)
                for one in measured if one.features == features
            ])  # fmt: skip
        return cls(*_most_likely(measured), interval_width(errors) if errors else math.inf, len(networks))

    def predict(self, features: Features, alone_per_s: Sequence[float], servers: int) -> Estimate:
        """Steps per second of the whole gang, from those of each worker alone. Workers may be of different kinds: none
        waits for another."""
        if not alone_per_s or servers < 1:
            raise Invalid("a cluster has one worker and one parameter server at least")
        source = f"inferred from clusters of {self.networks} other networks, and from each worker's speed alone"
        return within(self._steps_per_s(features, alone_per_s, servers), self.width, source)

    def _steps_per_s(self, features: Features, alone_per_s: Sequence[float], servers: int) -> float:
        asked = sum(alone_per_s)
        over = asked / self.capacity_per_s(features, servers)
        return asked / math.pow(1 + math.pow(over, self.knee), 1 / self.knee)

    def capacity_per_s(self, features: Features, servers: int) -> float:
        """Updates per second that the parameter servers can give."""
        parameters = self.parameter_s * features.parameters / math.pow(servers, self.spread)
        return 1 / (self.tensor_s * features.tensors / servers + parameters)

    def as_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in _FIELDS}
        return versioned(_KIND, {**values, "width": self.width if math.isfinite(self.width) else None})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        check_version(_KIND, data)
        width = math.inf if data["width"] is None else data["width"]
        return cls(**{**{name: data[name] for name in _FIELDS}, "width": width})


def _most_likely(measured: Sequence[Measured]) -> tuple[float, float, float, float]:
    wanted = np.log([one.steps_per_s for one in measured])

    def errors(point: NDArray[np.float64]) -> NDArray[np.float64]:
        model = ClusterSpeed(*_unpacked(point), math.inf, 0)
        found = [model._steps_per_s(one.features, (one.alone_per_s,) * one.workers, one.servers) for one in measured]
        return np.concatenate([(np.log(found) - wanted) / _NOISE, (point - _PRIOR) / _DOUBT])

    return _unpacked(least_squares(errors, _PRIOR, loss="soft_l1").x)


def _unpacked(point: NDArray[np.float64]) -> tuple[float, float, float, float]:
    tensor, parameter, spread, knee = (float(one) for one in point)
    return math.exp(tensor), math.exp(parameter), 1 / (1 + math.exp(-spread)), math.exp(knee)
