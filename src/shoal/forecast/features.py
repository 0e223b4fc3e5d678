"""Features of a model on which its speed depends."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Features:
    """Of one training step: floating point operations, parameters, and tensors that hold them."""

    flops: float
    parameters: float
    tensors: float

    def __post_init__(self) -> None:
        for name in ("flops", "parameters", "tensors"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive number, not {value}")

    def terms(self) -> tuple[float, ...]:
        """What each step pays for: arithmetic, traffic of activations, starting kernels, updating parameters, the rest.

        A network of depth d and width w costs d w^2 operations and moves d w activations, so that the traffic goes with
        the root of operations times tensors."""
        flops, tensors = self.flops / 1e9, self.tensors / 100
        return flops, math.sqrt(flops * tensors), tensors, self.parameters / 1e6, 1.0


TRAINING = 3
"""A step is a pass forward and one backward, which costs twice as much: gradients of inputs and of weights."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted in a model: its features, and the bytes of its parameters, which a checkpoint holds."""

    features: Features
    weight_bytes: int
