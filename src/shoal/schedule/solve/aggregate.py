"""Interchangeable rows solved once: jobs with equal numbers are one class with many copies.

Of all optima one is symmetric in the members of a class (average any optimum over their permutations), so solving for
classes and giving each member an equal part loses nothing. A cluster runs a few hundred kinds of job, however many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.schedule.types import Array, Index, Mask, positions

_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
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
    for column in columns:
        digest ^= (column + 0.0).view(np.uint64)  # + 0.0 makes one zero of the two
        digest *= _MIX[0]
        digest ^= digest >> 29
        digest *= _MIX[1]
        digest ^= digest >> 32
    order = digest.argsort(kind="stable")
    ordered = digest[order]
    found = _runs(order, ordered[1:] != ordered[:-1])
    if len(found.first) == len(digest):  # all different: nothing to be mistaken for another
        return found
    if all((column.take(found.first).take(found.of) == column).all() for column in columns):
        return found
    return _exact(columns)


def _exact(columns: list[Array]) -> Classes:
    """As `classes`, by comparing values, for when two different rows had the same digest."""
    order = np.lexsort(columns[::-1])
    differs = np.zeros(max(len(order) - 1, 0), np.bool_)
    for column in columns:
        differs |= column[order[1:]] != column[order[:-1]]
    return _runs(order, differs)


def _runs(order: Index, differs: Mask) -> Classes:
    """Classes of rows in an `order` (m,) in which equal ones are neighbours; each but the first `differs` (m - 1,) from
    the one before or not."""
    edges = np.concatenate(([0], positions(differs) + 1, [len(order)])) if len(order) else np.zeros(1, np.intp)
    begins, copies = edges[:-1], edges[1:] - edges[:-1]
    of = np.empty(len(order), np.intp)
    of[order] = np.repeat(np.arange(len(begins)), copies)
    return Classes(of, order[begins], copies.astype(np.float64))
