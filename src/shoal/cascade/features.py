"""Transformers that scikit-learn's pipelines lack: look-ups in a store, and joins with a table. They are used like any
other, and compiled like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from shoal.cascade.recorded import RecordedStep, record, rows_of_block
from shoal.cascade.steps.base import Floats
from shoal.cascade.steps.lookup import JoinStep, LookupStep
from shoal.cascade.table import Table

RECORDED_ROWS = 200
"""Run to see which features a function has: enough to meet its branches."""

# scikit-learn's own names: X for what comes in, and a `fit` that takes y.


class Lookup(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """`columns` numbers by key from a store: `prefix` and the values of the row's columns, joined by colons.

    store: redis://, unix://, sqlite://, postgresql:// or http://; see `shoal.cascade.stores`. dtype: how a value holds
    its numbers, `<f4` or `<f8`. missing: for a key that is not there. deadline_s: longer, and the store counts as away.
    ttl_s: how old a value may be; 0: it is always the store's own. If it may be old, `optimize` gives each process a
    cache of at most `cache_bytes`, unless that does not pay on its rows.
    """

    def __init__(
        self, store: str, prefix: str = "", columns: int = 1, dtype: str = "<f4", missing: float = float("nan"),
        deadline_s: float = 1.0, ttl_s: float = 0.0, cache_bytes: int = 64 << 20,
    ) -> None:  # fmt: skip
        self.store, self.prefix, self.columns, self.dtype = store, prefix, columns, dtype
        self.missing, self.deadline_s, self.cache_bytes, self.ttl_s = missing, deadline_s, cache_bytes, ttl_s

    def step(self) -> LookupStep:
        cache = self.cache_bytes if self.ttl_s > 0 else 0
        return LookupStep(
            self.store, self.prefix, self.columns, self.dtype, self.missing, self.deadline_s, cache, self.ttl_s
        )

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        self.n_features_in_ = np.shape(X)[1] if np.ndim(X) == 2 else 1
        return self

    def transform(self, X: Any) -> Floats:
        """From the store itself. Raises OSError where it is away."""
        return replace(self.step(), cache_bytes=0).apply(X.to_numpy() if hasattr(X, "to_numpy") else X)


class Join(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The columns `take` of a table (a data frame) by its key columns `on`, which match the input's columns in their
    order. The first row of a key counts. Use aggregates of the label only from rows that no model is trained on."""

    def __init__(self, table: Any, on: Sequence[str], take: Sequence[str], missing: float = float("nan")) -> None:
        self.table, self.on, self.take, self.missing = table, on, take, missing

    def step(self) -> JoinStep:
        """Raises ValueError or KeyError where the table has no such columns, or they are no numbers."""
        rows = self.table.drop_duplicates(list(self.on))
        keys = tuple(zip(*(rows[name].tolist() for name in self.on), strict=True))
        return JoinStep(keys, rows[list(self.take)].to_numpy(np.float64), self.missing)

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        self.step_ = self.step()
        return self

    def transform(self, X: Any) -> Floats:
        return self.step_.apply(X.to_numpy() if hasattr(X, "to_numpy") else X)


class Recorded(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The features of a Python function of a row, a mapping of the data frame's columns; see `shoal.cascade.recorded`.
    Features of one marked function stand together, in the order in which they first come."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Raises Invalid where rows give different features."""
        self.names_ = tuple(map(str, X.columns))
        self.layout_ = record(self.function, rows_of_block(self._block(X.iloc[:RECORDED_ROWS]), self.names_))
        return self

    def transform(self, X: Any) -> Floats:
        return np.hstack([step.apply(self._block(X)) for step in self.steps()])

    def steps(self) -> list[RecordedStep]:
        return [RecordedStep(self.function, self.layout_, group, self.names_) for group in self.layout_.groups]

    def _block(self, X: Any) -> Any:
        return Table.of(X).block(self.names_)
