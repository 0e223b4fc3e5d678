"""A model that has no form of its own here: it runs as the Python object that it is, and cannot be written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shoal.cascade.models.base import Link, Output
from shoal.cascade.steps.base import Array, Arrays, Floats
from shoal.core import Invalid


@dataclass(frozen=True)
class OpaqueModel:
    """`estimator` is fitted; scores are its probabilities, decisions or values."""

    kind: ClassVar[str] = "opaque"

    estimator: Any
    output: Output

    @property
    def features(self) -> int:
        return int(getattr(self.estimator, "n_features_in_", -1))

    @property
    def outputs(self) -> int:
        return len(self.output.classes) if self.output.link is Link.PROBABILITY else 1

    def scores(self, features: Any) -> Floats:
        match self.output.link:
            case Link.PROBABILITY:
                return np.asarray(self.estimator.predict_proba(features), np.float64)
            case Link.VALUE:
                found = np.asarray(self.estimator.predict(features), np.float64)
            case _:
                found = np.asarray(self.estimator.decision_function(features), np.float64)
        return found if found.ndim == 2 else found[:, None]

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        name = type(self.estimator).__name__
        raise Invalid(
            f"the model {name} has no form outside Python, so no artefact can hold it",
            where="model",
            hint="use a linear model or trees, or keep the optimised pipeline in this process",
        )

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> OpaqueModel:  # noqa: ARG003
        raise ValueError("an artefact holds no opaque model")
