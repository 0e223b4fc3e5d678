"""Split types: how values are cut into pieces, put together again, and moved between the host and a device."""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np

from shoal.core import Invalid


class Backend(StrEnum):
    """Where a value is and a function runs. A scalar needs no place."""

    CPU = "cpu"
    GPU = "gpu"
    SCALAR = "scalar"


class SplitType:
    """A kind of value. Third parties make subclasses. Two types agree where they are equal: the pieces of the one are
    those of the other."""

    in_place = False
    """Whether writing into a piece writes into the whole."""

    single = False
    """Whether each piece has one element, however many would fit."""

    partial = False
    """Whether what a function gives for a piece is a part of every value: only the whole can be used."""

    def elements(self, value: Any) -> int | None:  # noqa: ARG002  (for subclasses)
        """The number of elements that can be cut; None for a value that every piece gets whole."""
        return None

    def work(self, value: Any) -> int | None:
        """What estimators and thresholds count: the elements, where nothing else is said."""
        return self.elements(value)

    def prepare(self, value: Any) -> Any:
        """What is cut in place of the value: made once, before its pieces are."""
        return value

    def split(self, start: int, stop: int, value: Any) -> Any:  # noqa: ARG002  (for subclasses)
        """The elements from `start` to before `stop` of what was prepared, sharing the memory of the value where it is
        mutated."""
        return value

    def call(self, function: Callable[..., Any], positional: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """What `combine` gets of a piece: the result of the function."""
        return function(*positional, **keywords)

    def combine(self, pieces: Sequence[Any]) -> Any:
        """The whole of the pieces, which come in order."""
        if len(pieces) == 1:
            return pieces[0]
        raise Invalid(f"{self!r} does not say how pieces become a whole", hint="give the result another split type")

    def backend(self, value: Any) -> Backend:  # noqa: ARG002  (for subclasses)
        """Where the value is."""
        return Backend.CPU

    def to(self, value: Any, backend: Backend) -> Any:
        """The value there."""
        if backend is self.backend(value):
            return value
        raise Invalid(f"{self!r} does not move values to {backend.value}", hint="override its method `to`")

    def size(self, value: Any) -> int:
        """Bytes that a move takes."""
        return int(getattr(value, "nbytes", 0))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Broadcast(SplitType):
    """Every piece gets the value whole. `of` is the type that moves it to a device; without it, it moves nowhere."""

    def __init__(self, of: SplitType | None = None) -> None:
        self.of = of

    def backend(self, value: Any) -> Backend:
        return Backend.SCALAR if self.of is None else self.of.backend(value)

    def to(self, value: Any, backend: Backend) -> Any:
        return value if self.of is None else self.of.to(value, backend)


class ScalarSplit(Broadcast):
    """A number or an option, which needs no place. As a result it is the same for each piece."""

    def combine(self, pieces: Sequence[Any]) -> Any:
        if all(each == pieces[0] for each in pieces):
            return pieces[0]
        raise Invalid("a scalar differs from piece to piece", hint="give the result the type of a reduction")


class NdArraySplit(SplitType):
    """An array of any number of dimensions, by rows, or along another axis."""

    in_place = True

    def __init__(self, axis: int = 0) -> None:
        self.axis = axis

    def elements(self, value: Any) -> int | None:
        return int(value.shape[self.axis]) if getattr(value, "ndim", 0) > self.axis else None

    def split(self, start: int, stop: int, value: Any) -> Any:
        return value[(*(slice(None),) * self.axis, slice(start, stop), ...)]

    def combine(self, pieces: Sequence[Any]) -> Any:
        return pieces[0] if len(pieces) == 1 else _joined(pieces, self.axis)


class BlockSplit(SplitType):
    """An array in blocks: `grid` has their number along each of the first axes. An element is a block."""

    in_place = True
    single = True

    def __init__(self, grid: tuple[int, ...]) -> None:
        self.grid = grid

    def elements(self, value: Any) -> int | None:
        return math.prod(self.grid) if getattr(value, "ndim", 0) >= len(self.grid) else None

    def work(self, value: Any) -> int | None:
        return None if self.elements(value) is None else math.prod(value.shape)

    def split(self, start: int, stop: int, value: Any) -> Any:  # noqa: ARG002  (a block is one element)
        place = np.unravel_index(start, self.grid)
        cuts = zip(place, self.grid, value.shape, strict=False)
        return value[(*(slice(size * at // count, size * (at + 1) // count) for at, count, size in cuts), ...)]

    def combine(self, pieces: Sequence[Any]) -> Any:
        found = list(pieces)
        for axis, row in reversed(list(enumerate(self.grid))):
            found = [_joined(found[each : each + row], axis) for each in range(0, len(found), row)]
        return found[0]


class DataFrameSplit(SplitType):
    """A DataFrame or a Series of pandas, by rows."""

    def elements(self, value: Any) -> int | None:
        return len(value) if hasattr(value, "iloc") else None

    def split(self, start: int, stop: int, value: Any) -> Any:
        return value.iloc[start:stop]

    def combine(self, pieces: Sequence[Any]) -> Any:
        import pandas as pd

        return pieces[0] if len(pieces) == 1 else pd.concat(list(pieces))

    def size(self, value: Any) -> int:
        return int(np.sum(value.memory_usage()))


def _joined(pieces: Sequence[Any], axis: int) -> Any:
    space = getattr(pieces[0], "__array_namespace__", None)
    return np.concatenate(list(pieces), axis) if space is None else space().concat(list(pieces), axis=axis)


class GroupSplit(SplitType):
    """A frame by its keys: the rows of a group are all in one piece, so that a function of groups needs no other piece.
    An element is a part of the keys' hashes. Results are put together in the order of their labels."""

    def __init__(self, keys: str | Sequence[str], parts: int = 64) -> None:
        self.keys = [keys] if isinstance(keys, str) else list(keys)
        self.parts = parts

    def elements(self, value: Any) -> int | None:
        return self.parts if hasattr(value, "iloc") else None

    def work(self, value: Any) -> int | None:
        return DataFrameSplit().elements(value)

    def prepare(self, value: Any) -> Any:
        """The rows sorted by their part, and where each part begins."""
        import pandas as pd

        hashes = pd.util.hash_pandas_object(value[self.keys], index=False, categorize=False).to_numpy()
        part = hashes % np.uint64(self.parts)
        return value.iloc[np.argsort(part, kind="stable")], np.searchsorted(np.sort(part), np.arange(self.parts + 1))

    def split(self, start: int, stop: int, value: Any) -> Any:
        rows, begins = value
        return rows.iloc[begins[start] : begins[stop]]

    def combine(self, pieces: Sequence[Any]) -> Any:
        return DataFrameSplit().combine(pieces).sort_index(kind="stable")

    def size(self, value: Any) -> int:
        return DataFrameSplit().size(value)


class UnknownSplit(SplitType):
    """A result whose number of elements only its values tell, as that of a filter. Its pieces go on to arguments of a
    generic type, alone; everything else gets the whole. `of` is how it is cut and put together."""

    def __init__(self, of: SplitType) -> None:
        self.of = of

    def elements(self, value: Any) -> int | None:
        return self.of.elements(value)

    def combine(self, pieces: Sequence[Any]) -> Any:
        return self.of.combine(pieces)

    def backend(self, value: Any) -> Backend:
        return self.of.backend(value)

    def to(self, value: Any, backend: Backend) -> Any:
        return self.of.to(value, backend)

    def size(self, value: Any) -> int:
        return self.of.size(value)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class Generic(SplitType):
    """Any type, the same for all arguments of a function that have this name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Generic({self.name!r})"


def natural(value: Any) -> SplitType:
    """The type of a value where a declaration leaves it open."""
    if isinstance(value, np.ndarray):
        return NdArraySplit()
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, pandas.Series | pandas.DataFrame):
        return DataFrameSplit()
    return Broadcast()


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
