"""Split types: how values are cut into pieces, put together again, and moved between the host and a device."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Sequence
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

    def elements(self, value: Any) -> int | None:  # noqa: ARG002  (for subclasses)
        """The number of elements that can be cut; None for a value that every piece gets whole."""
        return None

    def split(self, start: int, stop: int, value: Any) -> Any:  # noqa: ARG002  (for subclasses)
        """The elements from `start` to before `stop`, sharing the memory of the value where it is mutated."""
        return value

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
    """Every piece gets the value whole."""


class NdArraySplit(SplitType):
    """An array of any number of dimensions, by rows."""

    in_place = True

    def elements(self, value: Any) -> int | None:
        return int(value.shape[0]) if getattr(value, "ndim", 0) else None

    def split(self, start: int, stop: int, value: Any) -> Any:
        return value[start:stop]

    def combine(self, pieces: Sequence[Any]) -> Any:
        return pieces[0] if len(pieces) == 1 else np.concatenate(list(pieces))


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


class SumSplit(SplitType):
    """A result whose whole is the sum of those of the pieces."""

    def combine(self, pieces: Sequence[Any]) -> Any:
        return functools.reduce(operator.add, pieces)


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
