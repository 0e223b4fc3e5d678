"""Interchangeable rows solved once: jobs with equal numbers are one class with many copies.

Of all optima one is symmetric in the members of a class (average any optimum over their permutations), so solving for
classes and giving each member an equal part loses nothing. A cluster runs a few hundred kinds of job, however many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.schedule.types import Array, Index

_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
"""Odd constants that spread bits (the golden ratio; xxHash's second prime)."""


@dataclass(frozen=True)
class Classes:
    """`of` (m,) the class of each row, `first` (c,) a row of each class, `copies` (c,) how many rows it has.

    The order of classes depends on their values only, not on the order of rows: shuffled rows make the same program.
    """

    of: Index
    first: Index
    copies: Array


def classes(columns: list[Array]) -> Classes:
    """Group the rows in which all the columns (m,) are equal."""
    digest = np.zeros(len(columns[0]), np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            bits = (np.asarray(column, np.float64) + 0.0).view(np.uint64)  # + 0.0 makes one zero of the two
            digest = (digest ^ bits) * np.uint64(_MIX[0])
            digest ^= digest >> np.uint64(29)
            digest *= np.uint64(_MIX[1])
            digest ^= digest >> np.uint64(32)
    _, first, of, copies = np.unique(digest, return_index=True, return_inverse=True, return_counts=True)
    found = Classes(of.astype(np.intp, copy=False), first.astype(np.intp, copy=False), copies.astype(np.float64))
    if len(first) == len(digest):  # all different: nothing to be mistaken for another
        return found
    if all(np.array_equal(column[found.first].take(found.of), column) for column in columns):
        return found
    return _exact(columns)


def _exact(columns: list[Array]) -> Classes:
    """As `classes`, by comparing values, for when two different rows had the same digest."""
    order = np.lexsort(columns[::-1])
    new = np.zeros(len(order), np.bool_)
    new[:1] = True
    for column in columns:
        new[1:] |= column[order[1:]] != column[order[:-1]]
    of = np.empty(len(order), np.intp)
    of[order] = np.cumsum(new) - 1
    return Classes(of, order[new].astype(np.intp), np.bincount(of).astype(np.float64))
