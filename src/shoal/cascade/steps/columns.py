"""Steps on columns of numbers and categories: scaling, imputation, one-hot and ordinal codes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shoal.cascade.steps.base import Array, Arrays, Block, Floats


def numbers(block: Block) -> Floats:
    """As doubles. Raises ValueError where a value is no number, as NumPy does."""
    return np.asarray(block, dtype=np.float64)


def finite(values: Floats, *, missing: bool) -> Floats:
    """The same. Raises ValueError for infinity, and for NaN unless it may be `missing`, as scikit-learn does."""
    if not np.isfinite(values).all() and (np.isinf(values).any() or not missing):
        raise ValueError("Input X contains NaN or infinity.")
    return values


@dataclass(frozen=True)
class AsNumbers:
    """Doubles as they come."""

    kind: ClassVar[str] = "numbers"
    width: int | None = None

    def apply(self, block: Block) -> Floats:
        return numbers(block)

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return {}, {}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> AsNumbers:  # noqa: ARG003
        return cls()


AFFINE = ("subtract", "divide", "multiply", "add")


@dataclass(frozen=True)
class Affine:
    """Subtracts, divides, multiplies and adds by column, in this order, then clips: what scalers do, in the order in
    which they do it, so that results are equal to the last bit."""

    kind: ClassVar[str] = "affine"

    terms: Mapping[str, Floats]
    clip: tuple[float, float] | None = None
    width: int | None = None

    @property
    def keeps_zero(self) -> bool:
        return self.clip is None and not self.terms.keys() & {"subtract", "add"}

    def folded(self, weights: Floats) -> Floats:
        """The weights that give the same product without this step. Only of a step that keeps zero."""
        factor = self.terms.get("multiply", np.ones(1)) / self.terms.get("divide", np.ones(1))
        return np.asarray(weights * np.reshape(factor, (-1, 1)))

    def apply(self, block: Block) -> Block:
        if hasattr(block, "tocsr"):
            if not self.keeps_zero:
                raise ValueError("Cannot center sparse matrices")
            factor = self.terms.get("multiply", np.ones(1)) / self.terms.get("divide", np.ones(1))
            return block.multiply(np.reshape(factor, (1, -1))).tocsr()
        values = finite(numbers(block), missing=True)
        functions: dict[str, Callable[[Any, Any], Floats]] = {
            "subtract": np.subtract, "divide": np.divide, "multiply": np.multiply, "add": np.add,
        }  # fmt: skip
        for name in AFFINE:
            if name in self.terms:
                values = functions[name](values, self.terms[name])
        return values if self.clip is None else np.clip(values, *self.clip)

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return {"clip": self.clip}, dict(self.terms)

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> Affine:
        clip = parameters["clip"]
        if not set(arrays) <= set(AFFINE):
            raise ValueError("not an affine step")
        return cls(dict(arrays), None if clip is None else (float(clip[0]), float(clip[1])))


@dataclass(frozen=True)
class Impute:
    """NaN, or `missing` where it is a number, becomes the column's value."""

    kind: ClassVar[str] = "impute"

    fill: Floats
    missing: float | None = None
    width: int | None = None

    def apply(self, block: Block) -> Floats:
        values = finite(numbers(block), missing=self.missing is None)
        return np.where(np.isnan(values) if self.missing is None else values == self.missing, self.fill, values)

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return {"missing": self.missing}, {"fill": self.fill}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> Impute:
        return cls(np.asarray(arrays["fill"], np.float64), parameters["missing"])


@dataclass(frozen=True)
class ImputeCategory:
    """NaN and None among categories become the column's value."""

    kind: ClassVar[str] = "impute-category"

    fill: tuple[Any, ...]
    width: int | None = None

    def apply(self, block: Block) -> Block:
        filled = np.array(block, dtype=object)
        for column, value in enumerate(self.fill):
            of = filled[:, column]
            of[[one != one for one in of.tolist()]] = value
        return filled

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return {"fill": list(self.fill)}, {}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> ImputeCategory:  # noqa: ARG003
        return cls(tuple(parameters["fill"]))


class Codes:
    """The place of each value among its column's categories; NaN is a category by itself."""

    def __init__(self, categories: Sequence[Sequence[Any]]) -> None:
        self._places = [{one: place for place, one in enumerate(of) if one == one} for of in categories]
        self._texts = any(isinstance(one, str) for of in categories for one in of)
        self._missing = [next((place for place, one in enumerate(of) if one != one), -1) for of in categories]

    def of(self, block: Block) -> Array:
        """rows x columns; -1 where the value is not a category."""
        if np.shape(block)[1] != len(self._places):
            raise ValueError(f"{np.shape(block)[1]} columns, where {len(self._places)} are expected")
        if self._texts and block.dtype.kind in "fiub":
            raise TypeError(f"categories are texts, and the values are of type {block.dtype}")
        found = np.empty((len(block), len(self._places)), np.int64)
        for column, places in enumerate(self._places):
            values = block[:, column].tolist()
            found[:, column] = [places.get(one, -1) if one == one else self._missing[column] for one in values]
        return found


def _refuse_unknown(block: Block, codes: Array) -> None:
    column = int(np.flatnonzero((codes < 0).any(axis=0))[0])
    unknown = sorted({repr(one) for one in block[codes[:, column] < 0, column].tolist()})[:5]
    raise ValueError(f"Found unknown categories [{', '.join(unknown)}] in column {column} during transform")


@dataclass(frozen=True)
class OneHot:
    """A column for each category less those dropped. `dropped`: by column the place of its category without a column
    of its own, or -1. Unknown values are refused, or have no column set."""

    kind: ClassVar[str] = "one-hot"

    categories: tuple[tuple[Any, ...], ...]
    dropped: tuple[int, ...]
    refuse_unknown: bool

    @functools.cached_property
    def _codes(self) -> Codes:
        return Codes(self.categories)

    @functools.cached_property
    def _begins(self) -> list[int]:
        sizes = [len(of) - (drop >= 0) for of, drop in zip(self.categories, self.dropped, strict=True)]
        return [0, *np.cumsum(sizes).tolist()]

    @property
    def width(self) -> int:
        return self._begins[-1]

    def columns(self, block: Block) -> Array:
        """rows x columns of input: the output column that is set, or -1."""
        block = np.asarray(block)
        codes = self._codes.of(block)
        if self.refuse_unknown and (codes < 0).any():
            _refuse_unknown(block, codes)
        for column, drop in enumerate(self.dropped):
            of = codes[:, column]
            absent = of < 0
            if drop >= 0:
                absent |= of == drop
                of -= of > drop
            of += self._begins[column]
            of[absent] = -1
        return codes

    def apply(self, block: Block) -> Floats:
        columns = self.columns(block)
        made = np.zeros((len(columns), self.width))
        rows, of = np.nonzero(columns >= 0)
        made[rows, columns[rows, of]] = 1.0
        return made

    def projection(self, weights: Floats) -> Callable[[Block], Floats]:
        padded = np.vstack([weights, np.zeros((1, weights.shape[1]))])  # the last row is what -1 finds
        return lambda block: padded[self.columns(block)].sum(axis=1)

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        categories = [[None if one != one else one for one in of] for of in self.categories]
        return {"categories": categories, "dropped": list(self.dropped), "refuse_unknown": self.refuse_unknown}, {}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> OneHot:  # noqa: ARG003
        return cls(_categories(parameters), tuple(parameters["dropped"]), bool(parameters["refuse_unknown"]))


@dataclass(frozen=True)
class Ordinal:
    """The place of each value among its column's categories, as a double. `unknown`: None refuses unknown values.
    `missing`: the code of NaN."""

    kind: ClassVar[str] = "ordinal"

    categories: tuple[tuple[Any, ...], ...]
    unknown: float | None
    missing: float

    @functools.cached_property
    def _codes(self) -> Codes:
        return Codes(self.categories)

    @property
    def width(self) -> int:
        return len(self.categories)

    def apply(self, block: Block) -> Floats:
        block = np.asarray(block)
        codes = self._codes.of(block)
        if self.unknown is None and (codes < 0).any():
            _refuse_unknown(block, codes)
        values = codes.astype(np.float64)
        for column, of in enumerate(self.categories):
            gone = next((place for place, one in enumerate(of) if one != one), None)
            if gone is not None:
                values[codes[:, column] == gone, column] = self.missing
        if self.unknown is not None:
            values[codes < 0] = self.unknown
        return values

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        categories = [[None if one != one else one for one in of] for of in self.categories]
        plain = {"unknown": _plain(self.unknown), "missing": _plain(self.missing)}
        return {"categories": categories, **plain}, {}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> Ordinal:  # noqa: ARG003
        unknown = parameters["unknown"]
        return cls(_categories(parameters), None if unknown is None else float(unknown), float(parameters["missing"]))


def _plain(value: float | None) -> float | str | None:
    """JSON has no NaN."""
    return "nan" if value is not None and value != value else value


def _categories(parameters: Mapping[str, Any]) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(float("nan") if one is None else one for one in of) for of in parameters["categories"])
