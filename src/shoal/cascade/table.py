"""Rows by column: the one form in which a compiled pipeline takes its input."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.core import Invalid

TEXT = "text"
"""The column of input that is one sequence of texts, as a vectoriser takes it."""

Key = str | int
Column = Sequence[Any] | NDArray[Any]


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of equal length by key: names of a data frame or mapping, places in a matrix, or `TEXT` alone. `matrix`
    is the whole input where it came as one array of numbers."""

    columns: Mapping[Key, Column]
    rows: int
    matrix: NDArray[Any] | None = None

    @classmethod
    def of(cls, data: Any) -> Table:
        """From texts, a matrix, a data frame (pandas or polars), a mapping of columns, or a list of mappings. Raises
        ValueError for anything else."""
        if type(data) is dict and len(sizes := set(map(len, data.values()))) == 1:  # of one row, it is to be quick
            return cls(data, sizes.pop())
        if isinstance(data, Table):
            return data
        if isinstance(data, str | bytes):
            raise ValueError("Iterable over raw text documents expected, string object received.")
        if hasattr(data, "columns") and hasattr(data, "dtypes"):
            return cls({name: data[name].to_numpy() for name in data.columns}, len(data))
        if isinstance(data, Mapping):
            sizes = {len(column) for column in data.values()}
            if len(sizes) > 1:
                raise ValueError(f"columns of different lengths: {sorted(sizes)}")
            return cls(dict(data), sizes.pop() if sizes else 0)
        if isinstance(data, list | tuple) and data and isinstance(data[0], Mapping):
            return cls({name: [row[name] for row in data] for name in data[0]}, len(data))
        if isinstance(data, list | tuple) and (not data or isinstance(data[0], str | bytes)):
            return cls({TEXT: data}, len(data))
        if hasattr(data, "toarray"):
            data = data.toarray()
        array = data.to_numpy() if hasattr(data, "to_numpy") else np.asarray(data)
        if array.ndim == 1 and array.dtype.kind in "OUST":
            return cls({TEXT: array.tolist()}, len(array))
        if array.ndim != 2:
            raise ValueError(f"Expected 2D array, got {array.ndim}D array instead")
        numbers = array if array.dtype.kind in "fiub" else None
        return cls({place: array[:, place] for place in range(array.shape[1])}, len(array), numbers)

    def __len__(self) -> int:
        return self.rows

    def column(self, key: Key) -> Column:
        """Raises ValueError, as scikit-learn does for a column that is missing."""
        try:
            return self.columns[key]
        except KeyError:
            raise ValueError(f"columns are missing: {{{key!r}}}") from None

    def take(self, rows: NDArray[np.intp]) -> Table:
        if len(rows) == self.rows:
            return self
        picked = {
            key: column[rows] if isinstance(column, np.ndarray) else [column[row] for row in rows.tolist()]
            for key, column in self.columns.items()
        }
        return Table(picked, len(rows), None if self.matrix is None else self.matrix[rows])

    def block(self, keys: Sequence[Key]) -> NDArray[Any]:
        """The columns beside each other: doubles where all are numbers, objects otherwise."""
        if self.matrix is not None:
            return self.matrix[:, [int(key) for key in keys]]
        parts = [np.asarray(self.column(key)) for key in keys]
        if len(parts) == 1 and parts[0].dtype.kind in "fiub":
            return parts[0].astype(np.float64, copy=False)[:, None]
        if len({part.dtype for part in parts}) == 1 and parts[0].dtype.kind in "mM":  # times alone are numbers to NumPy
            return np.stack([part.astype(np.float64) for part in parts], axis=1)
        if all(part.dtype.kind in "fiub" for part in parts):
            return np.stack([part.astype(np.float64, copy=False) for part in parts], axis=1)
        block = np.empty((self.rows, len(keys)), object)
        for place, part in enumerate(parts):
            block[:, place] = part
        return block


def kinds_of(table: Table) -> dict[Key, str]:
    """Of each column: `text` where it holds anything but numbers, else `number`."""
    kinds = {key: np.asarray(column).dtype.kind for key, column in table.columns.items()}
    return {key: "number" if kind in "fiub" else TEXT for key, kind in kinds.items()}


def row_hashes(table: Table) -> list[bytes]:
    """A digest of each row's values, so that equal rows are found."""
    columns = [np.asarray(column, object).tolist() for column in table.columns.values()]
    return [
        hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        for row in zip(*columns, strict=True)
    ]


def digest(hashes: Sequence[bytes]) -> str:
    """One digest of a set of rows, whatever their order."""
    return hashlib.sha256(b"".join(sorted(hashes))).hexdigest()


def require_rows(
    table: Table, labels: Sequence[Any] | NDArray[Any] | None, weights: Sequence[float] | None = None
) -> None:
    """Raises Invalid where rows, labels and weights do not fit together."""
    if not len(table):
        raise Invalid("there are no rows", where="data")
    for name, given in (("labels", labels), ("weights", weights)):
        if given is not None and len(given) != len(table):
            raise Invalid(f"{len(table)} rows, but {len(given)} {name}", where=name)


def require_whole(labels: NDArray[Any] | None) -> None:
    """Raises Invalid where a label is missing: None, or NaN."""
    lacking = 0 if labels is None else sum(one is None or one != one for one in labels.ravel().tolist())
    if lacking:
        hint = "leave these rows out; certify takes rows without labels"
        raise Invalid(f"{lacking:,} rows have no label", where="labels", hint=hint)
