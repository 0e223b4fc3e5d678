"""The activations that ONNX names, as expressions: https://onnx.ai/onnx/operators/onnx__LSTM.html"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoal.recurrent.cells.symbols import (
    Expression,
    exp,
    log,
    maximum,
    minimum,
    relu,
    sigmoid,
    tanh,
    where,
)

_FORMS: dict[str, tuple[float | None, float | None, Callable[[Expression, float, float], Expression]]] = {
    "relu": (None, None, lambda x, _a, _b: relu(x)),
    "tanh": (None, None, lambda x, _a, _b: tanh(x)),
    "sigmoid": (None, None, lambda x, _a, _b: sigmoid(x)),
    "affine": (1.0, 0.0, lambda x, a, b: a * x + b),
    "leakyrelu": (0.01, None, lambda x, a, _b: where(0.0, x, a * x, x)),
    "thresholdedrelu": (1.0, None, lambda x, a, _b: where(x, a, x, 0.0)),
    "scaledtanh": (1.0, 1.0, lambda x, a, b: a * tanh(b * x)),
    "hardsigmoid": (0.2, 0.5, lambda x, a, b: minimum(maximum(a * x + b, 0.0), 1.0)),
    "elu": (1.0, None, lambda x, a, _b: where(0.0, x, a * (exp(x) - 1.0), x)),
    "softsign": (None, None, lambda x, _a, _b: x / (1.0 + abs(x))),
    "softplus": (None, None, lambda x, _a, _b: maximum(x, 0.0) + log(1.0 + exp(-abs(x)))),
}
"""By lower-case name: the defaults of alpha and beta (None: it takes none), and the form."""


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of ONNX with its numbers."""

    name: str
    alpha: float | None = None
    beta: float | None = None

    def __call__(self, x: Expression) -> Expression:
        alpha, beta, form = _FORMS[self.name.lower()]
        return form(x, _first(self.alpha, alpha), _first(self.beta, beta))


def _first(given: float | None, default: float | None) -> float:
    return default or 0.0 if given is None else given


def known(name: str) -> bool:
    return name.lower() in _FORMS


def takes(name: str) -> tuple[bool, bool]:
    """Whether the function has an alpha, and a beta."""
    alpha, beta, _ = _FORMS[name.lower()]
    return alpha is not None, beta is not None


SIGMOID, TANH, RELU = Activation("Sigmoid"), Activation("Tanh"), Activation("Relu")
