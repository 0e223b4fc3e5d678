"""Reductions: what a function gives for each piece is a part of every value, and parts are merged."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shoal.core import Invalid
from shoal.offload.annotations.types import Backend, SplitType


class ReduceSplit(SplitType):
    """`merge` makes one of the results of two pieces: `np.minimum`, `np.maximum`, `np.multiply`, `np.logical_and` for
    `min`, `max`, `prod` and `all`, say. `of` moves results that are on a device."""

    partial = True

    def __init__(self, merge: Callable[[Any, Any], Any], of: SplitType | None = None) -> None:
        self.merge, self.of = merge, of

    def combine(self, pieces: Sequence[Any]) -> Any:
        return functools.reduce(self.merge, pieces)

    def backend(self, value: Any) -> Backend:
        return Backend.CPU if self.of is None or not hasattr(value, "shape") else self.of.backend(value)

    def to(self, value: Any, backend: Backend) -> Any:
        if type(value) is tuple:
            return tuple(self.to(each, backend) for each in value)
        return value if self.of is None or not hasattr(value, "shape") else self.of.to(value, backend)


class SumSplit(ReduceSplit):
    """A result whose whole is the sum of those of the pieces."""

    def __init__(self, of: SplitType | None = None) -> None:
        super().__init__(operator.add, of)


class MeanSplit(ReduceSplit):
    """The mean of an array's elements, or along the axis that is cut. Raises Invalid for tables of pandas, whose
    missing values do not count: divide sums by counts."""

    def __init__(self, of: SplitType | None = None) -> None:
        super().__init__(_mean_of_two, of)

    def call(self, function: Callable[..., Any], positional: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        found = function(*positional, **keywords)
        return found, _count(positional[0], found)

    def combine(self, pieces: Sequence[Any]) -> Any:
        return functools.reduce(self.merge, pieces)[0]


class VarSplit(ReduceSplit):
    """The variance of an array's elements, or along the axis that is cut, by a function that divides by their number;
    `ddof` is that of the whole. `mean` is called as the function is, and gives the mean. Raises Invalid for tables."""

    def __init__(self, mean: Callable[..., Any], ddof: float = 0.0, of: SplitType | None = None) -> None:
        super().__init__(_variance_of_two, of)
        self.mean, self.ddof = mean, ddof

    def call(self, function: Callable[..., Any], positional: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        found = function(*positional, **keywords)
        return found, self.mean(*positional, **keywords), _count(positional[0], found)

    def combine(self, pieces: Sequence[Any]) -> Any:
        variance, _, count = functools.reduce(self.merge, pieces)
        return variance if not self.ddof else variance * (count / (count - self.ddof))


class GroupMergeSplit(ReduceSplit):
    """Aggregates of groups, of pieces by rows: the same group may be in several. `how` merges two of them, by pandas'
    name: `sum` for sums and counts, `min`, `max`, `prod`, `any`, `all`, `first`, `last`."""

    def __init__(self, how: str) -> None:
        super().__init__(operator.add)
        self.how = how

    def combine(self, pieces: Sequence[Any]) -> Any:
        import pandas as pd

        if len(pieces) == 1:
            return pieces[0]
        table = pd.concat(list(pieces))
        return getattr(table.groupby(level=list(range(table.index.nlevels))), self.how)()


def _count(values: Any, reduced: Any) -> Any:
    """Of the values that became one."""
    if hasattr(values, "iloc"):
        raise Invalid("a mean of a table has no parts that can be merged", hint="divide its sum by its count")
    size = 1
    for each in getattr(reduced, "shape", ()):
        size *= each
    return values.size / size if size else 0.0


def _mean_of_two(one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    (mean, count), (another, more) = one, other
    return mean + (another - mean) * (more / (count + more)), count + more


def _variance_of_two(one: tuple[Any, Any, Any], other: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """After Chan, Golub and LeVeque (1979)."""
    (variance, mean, count), (another, middle, more) = one, other
    both, apart = count + more, middle - mean
    share = more / both
    found = variance * (1 - share) + another * share + apart * apart * (share * (1 - share))
    return found, mean + apart * share, both
