"""From raw scores to labels, probabilities and margins: the same for every kind of model."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from shoal.cascade.steps.base import Array, Arrays, Floats


class Link(StrEnum):
    """How scores become probabilities."""

    LOGISTIC = "logistic"  # one score of the second class
    SOFTMAX = "softmax"
    ONE_VERSUS_REST = "one-versus-rest"  # logistic of each class, divided by their sum
    PROBABILITY = "probability"  # the scores are probabilities
    MARGIN = "margin"  # there are none: a support vector machine
    VALUE = "value"  # regression: the score is the prediction


@dataclass(frozen=True)
class Output:
    """What scores mean. `classes` is empty for regression. A classifier with one column of scores is binary."""

    link: Link
    classes: tuple[Any, ...] = ()
    dtype: str = ""
    """Of the labels, as NumPy writes it."""

    @property
    def regression(self) -> bool:
        return self.link is Link.VALUE

    @property
    def has_probabilities(self) -> bool:
        return self.link not in (Link.MARGIN, Link.VALUE)

    def labels(self, scores: Floats) -> NDArray[np.intp]:
        """The place of each row's class. scores: rows x columns."""
        if scores.shape[1] == 1:
            return (scores[:, 0] > 0).astype(np.intp)
        return np.asarray(scores.argmax(axis=1))

    def named(self, places: NDArray[np.intp]) -> Array:
        return np.asarray(self._names[places])

    @functools.cached_property
    def _names(self) -> Array:
        names = np.empty(len(self.classes), object)
        names[:] = self.classes
        return names.astype(np.dtype(self.dtype))

    def margins(self, scores: Floats) -> Floats:
        """How far each row's class is ahead of the next one, in units of the scores."""
        if scores.shape[1] == 1:
            return np.abs(scores[:, 0])
        two = np.partition(scores, scores.shape[1] - 2, axis=1)[:, -2:]
        return np.asarray(two[:, 1] - two[:, 0])

    def best(self, scores: Sequence[float]) -> tuple[int, float]:
        """The class and the margin of one row."""
        if len(scores) == 1:
            return int(scores[0] > 0), abs(scores[0])
        second, first = sorted(scores)[-2:]
        return list(scores).index(first), first - second

    def probabilities(self, scores: Floats) -> Floats:
        """rows x classes. Raises AttributeError where the model has none."""
        match self.link:
            case Link.LOGISTIC:
                second = _logistic(scores[:, 0])
                return np.stack([1 - second, second], axis=1)
            case Link.SOFTMAX:
                raised = np.exp(scores - scores.max(axis=1, keepdims=True))
                return np.asarray(raised / raised.sum(axis=1, keepdims=True))
            case Link.ONE_VERSUS_REST:
                each = _logistic(scores)
                return np.asarray(each / each.sum(axis=1, keepdims=True))
            case Link.PROBABILITY:
                return scores
            case _:
                raise AttributeError("predict_proba is not available: the model has no probabilities")

    def as_json(self) -> dict[str, Any]:
        return {"link": self.link.value, "classes": list(self.classes), "dtype": self.dtype}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Output:
        dtype = str(data["dtype"])
        if dtype and np.dtype(dtype).kind not in "fiubOU":
            raise ValueError(f"labels of type {dtype}")
        return cls(Link(data["link"]), tuple(data["classes"]), dtype)


def output_of(link: Link, classes: Sequence[Any] | Array) -> Output:
    array = np.asarray(classes)
    return Output(link, tuple(array.tolist()), array.dtype.str if array.dtype.kind != "O" else "O")


class Model(Protocol):
    """Features to raw scores."""

    kind: ClassVar[str]

    @property
    def output(self) -> Output: ...

    @property
    def features(self) -> int:
        """The columns that it reads; -1 where that is not known."""
        ...

    @property
    def outputs(self) -> int:
        """Columns of the scores."""
        ...

    def scores(self, features: Any) -> Floats:
        """rows x outputs. features: rows x width, dense or sparse."""
        ...

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]: ...

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> Model: ...


def _logistic(scores: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-scores)))
