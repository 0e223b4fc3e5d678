"""Kinds that fit together on an accelerator: they do while their sizes add up to less than its capacity.

A logistic model of pairs that were tried: the log-odds are the capacity of the column minus the sizes of the two. The
sizes are learnt from who fitted beside whom, with a prior that keeps kinds that were never tried near the average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import expit

from shoal.schedule.types import Array, Index

SIZES, CAPACITIES = 0.3, 0.05
"""Precision of the priors: of sizes about zero, and of capacities about `ROOMY`."""
ROOMY = 2.0
ROUNDS, LONGEST, SETTLED = 25, 3.0, 1e-4


@dataclass(frozen=True)
class Memory:
    """`size` (kinds,) and `capacity` (columns,), in units of log-odds."""

    size: Array
    capacity: Array

    @classmethod
    def fit(cls, first: Index, column: Index, second: Index, fits: Array, kinds: int, columns: int) -> Self:
        """From tries (k,): kind `first` beside kind `second` on `column`; `fits` is one or zero. By Newton's method."""
        prior = np.concatenate([np.zeros(kinds), np.full(columns, ROOMY)])
        weight = np.concatenate([np.full(kinds, SIZES), np.full(columns, CAPACITIES)])
        terms = ((first, -1.0), (second, -1.0), (kinds + column, 1.0))
        at = prior.copy()
        for _ in range(ROUNDS if (fits < 1.0).any() else 0):
            chance = expit(at[kinds + column] - at[first] - at[second])
            slope = weight * (prior - at)
            curve = np.diag(weight)
            for index, sign in terms:
                np.add.at(slope, index, sign * (fits - chance))
                for other, turn in terms:
                    np.add.at(curve, (index, other), sign * turn * chance * (1.0 - chance))
            step = np.linalg.solve(curve, slope)
            longest = float(np.abs(step).max())
            at += step * min(1.0, LONGEST / max(longest, SETTLED))
            if longest < SETTLED:
                break
        return cls(at[:kinds], at[kinds:])

    def chance(self, kind: int) -> Array:
        """(columns, kinds) the probability that the kind fits beside each one."""
        chance: Array = expit(self.capacity[:, None] - self.size[kind] - self.size[None, :])
        return chance
