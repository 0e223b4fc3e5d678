"""Linear models: scores are a product with weights, plus an intercept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shoal.cascade.models.base import Output
from shoal.cascade.steps.base import Array, Arrays, Floats


@dataclass(frozen=True)
class Linear:
    """`weights`: width x outputs; `intercept`: outputs."""

    kind: ClassVar[str] = "linear"

    weights: Floats
    intercept: Floats
    output: Output

    def __post_init__(self) -> None:
        if self.weights.ndim != 2 or self.intercept.shape != self.weights.shape[1:]:
            raise ValueError("weights and intercept do not fit together")

    @property
    def features(self) -> int:
        return int(self.weights.shape[0])

    @property
    def outputs(self) -> int:
        return int(self.weights.shape[1])

    def scores(self, features: Any) -> Floats:
        return np.asarray(features @ self.weights) + self.intercept

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return {"output": self.output.as_json()}, {"weights": self.weights, "intercept": self.intercept}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> Linear:
        return cls(
            np.ascontiguousarray(arrays["weights"], np.float64),
            np.asarray(arrays["intercept"], np.float64),
            Output.from_json(parameters["output"]),
        )
