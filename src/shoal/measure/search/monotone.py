"""Conclusions from a few trials, if more load never helps: the region of rate vectors that a server can take.

Below a vector that was kept every vector is kept, above one that was broken every one is broken. Vectors are
normalised (1 is what a tenant gets alone), non-negative, of shape (n,); a *mix* is one whose entries sum to 1, so the
factor by which a mix can be scaled is the sum of normalised throughputs (Perseus' measure of consolidation).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from shoal.measure.types import Floats


@dataclass(slots=True)
class Region:
    """An inner staircase (all that is known to be kept) and an outer one (all that is not known to be broken).

    `add_kept` and `add_broken` refuse a vector that contradicts what is known, so the two never cross.
    """

    tenants: int
    kept: list[Floats] = field(default_factory=list)
    broken: list[Floats] = field(default_factory=list)

    def verdict(self, vector: ArrayLike) -> bool | None:
        """True: known to be kept, False: known to be broken, None: open."""
        asked = self._vector(vector)
        if any((asked <= one).all() for one in self.kept):
            return True
        if any((asked >= one).all() for one in self.broken):
            return False
        return None

    def add_kept(self, vector: ArrayLike) -> None:
        """Raises ValueError if it is known to be broken."""
        new = self._vector(vector)
        if self.verdict(new) is False:
            raise ValueError(f"{new.tolist()} cannot be kept: it is above a vector that was broken")
        self.kept = [one for one in self.kept if not (one <= new).all()] + [new]

    def add_broken(self, vector: ArrayLike) -> None:
        """Raises ValueError if it is known to be kept."""
        new = self._vector(vector)
        if self.verdict(new) is True:
            raise ValueError(f"{new.tolist()} cannot be broken: it is below a vector that was kept")
        self.broken = [one for one in self.broken if not (one >= new).all()] + [new]

    def inner(self, mixes: ArrayLike) -> Floats:
        """The largest factor by which each mix (m, n) is known to be kept, (m,); 0 where none is."""
        if not self.kept:
            return np.zeros(len(np.atleast_2d(mixes)))
        # A tenant that is not in the mix sets no limit.
        return np.asarray(_ratios(self.kept, mixes).min(axis=2).max(axis=1))

    def outer(self, mixes: ArrayLike) -> Floats:
        """The smallest factor by which each mix (m, n) is known to be broken, (m,); infinite where none is."""
        if not self.broken:
            return np.full(len(np.atleast_2d(mixes)), np.inf)
        # A mix that lacks a tenant comes above only those vectors that lack it too.
        reach = np.where(np.stack(self.broken)[None, :, :] > 0, _ratios(self.broken, mixes), 0.0)
        return np.asarray(reach.max(axis=2).min(axis=1))

    def _vector(self, vector: ArrayLike) -> Floats:
        taken = np.asarray(vector, dtype=np.float64)
        if taken.shape != (self.tenants,) or not (taken >= 0).all():
            raise ValueError(f"not a vector of {self.tenants} rates: {taken.tolist()}")
        return taken


def _ratios(corners: list[Floats], mixes: ArrayLike) -> Floats:
    """Corner over mix, (m, corners, n); infinite where the mix has nothing."""
    mix, corner = np.atleast_2d(np.asarray(mixes, dtype=np.float64))[:, None, :], np.stack(corners)[None, :, :]
    space = np.full(np.broadcast_shapes(mix.shape, corner.shape), np.inf)
    return np.asarray(np.divide(corner, mix, out=space, where=mix > 0))
