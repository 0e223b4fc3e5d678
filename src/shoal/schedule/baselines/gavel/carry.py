"""What the mechanism carries over from one set of jobs to the next."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.schedule.types import Array, Index

T = TypeVar("T", np.float64, np.intp, np.bool_)


class PairShares(NamedTuple):
    """Shares of pairs, and the seconds that they received since the allocation."""

    first: Index
    second: Index
    column: Index
    share: Array
    received: Array

    def kept(self) -> PairShares:
        """These, but for those of which a job or the column is -1."""
        keep = (self.first >= 0) & (self.second >= 0) & (self.column >= 0)
        return PairShares(self.first[keep], self.second[keep], self.column[keep], self.share[keep], self.received[keep])


def taken(values: NDArray[T], rows: Index, fresh: Index, default: ArrayLike) -> NDArray[T]:
    """(k, ...) values (m, ...) of these rows (k,), but for the `fresh` ones of them, which have the default."""
    if not len(values):
        values = np.zeros((1, *values.shape[1:]), values.dtype)
    found = values.take(rows, axis=0)
    found[fresh] = default
    return found
