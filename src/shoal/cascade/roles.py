"""The three roles of data: fit, select, certify. They never share a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.cascade.table import Table, digest, row_hashes
from shoal.core import Invalid

SHARES = (0.5, 0.1, 0.4)
"""Of fit, select and certify. To certify takes many: half a point at 95 % needs 598 rows even if none disagrees."""
ROLES = ("fit", "select", "certify")
FEWEST_ROWS = 30
"""Below that no role has rows enough to say anything."""


@dataclass(frozen=True)
class Roles:
    """Row numbers by role, and the digests of their rows."""

    fit: NDArray[np.intp]
    select: NDArray[np.intp]
    certify: NDArray[np.intp]
    hashes: tuple[bytes, ...]

    def digests(self) -> dict[str, str]:
        return {role: digest([self.hashes[row] for row in getattr(self, role)]) for role in ROLES}

    def fingerprints(self, role: str) -> NDArray[np.uint64]:
        """Eight bytes of each row's digest, ascending, so that a row used before is known again."""
        return fingerprints([self.hashes[row] for row in getattr(self, role)])


def fingerprints(hashes: Sequence[bytes]) -> NDArray[np.uint64]:
    return np.unique(np.frombuffer(b"".join(one[:8] for one in hashes), np.uint64))


def divide(
    table: Table, seed: int, groups: Sequence[Any] | NDArray[Any] | None = None,
    shares: tuple[float, float, float] = SHARES,
) -> Roles:  # fmt: skip
    """Draw the roles of rows. Equal rows, and rows of one group, get the same role. Raises Invalid for too few."""
    if len(table) < FEWEST_ROWS:
        raise Invalid(
            f"{len(table)} rows are too few for three roles", where="data", hint=f"give {FEWEST_ROWS} or more"
        )
    hashes = tuple(row_hashes(table))
    clusters = _clusters(hashes, groups)
    order = np.random.default_rng(seed).permutation(int(clusters.max()) + 1)
    rows_of = np.bincount(clusters)[order]
    reached = np.cumsum(rows_of) / len(table)
    role_of = np.empty(len(order), np.intp)
    role_of[order] = np.searchsorted(np.cumsum(shares)[:2], reached - 0.5 * rows_of / len(table))
    fit, select, certify = (np.flatnonzero(role_of[clusters] == role) for role in range(3))
    for name, rows in zip(ROLES, (fit, select, certify), strict=True):
        if not len(rows):
            raise Invalid(f"no rows are left to {name}", where="data", hint="too many rows are equal, or of one group")
    return Roles(fit, select, certify, hashes)


def _clusters(hashes: Sequence[bytes], groups: Sequence[Any] | NDArray[Any] | None) -> NDArray[np.intp]:
    """The cluster of each row: rows that are equal, or of one group, and what follows from that, are together."""
    if groups is None:
        return np.unique(np.array(hashes, dtype="S16"), return_inverse=True)[1]
    if len(groups) != len(hashes):
        raise Invalid(f"{len(hashes)} rows, but {len(groups)} groups", where="groups")
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    equal = np.unique(np.array(hashes, dtype="S16"), return_inverse=True)[1]
    named = np.unique(np.asarray(groups).astype(str), return_inverse=True)[1]
    links = coo_matrix((np.ones(len(equal)), (equal, int(equal.max()) + 1 + named)), shape=(2 * len(equal) + 2,) * 2)
    _, label = connected_components(links, directed=False)
    return np.unique(label[equal], return_inverse=True)[1]


def units_of(groups: Sequence[Any] | NDArray[Any] | None, rows: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """The independent unit of each of these rows; None: each row is one."""
    if groups is None:
        return None
    return np.unique(np.asarray(groups)[rows].astype(str), return_inverse=True)[1]


def fresh_rows(
    new: Sequence[bytes], used: dict[str, NDArray[np.uint64]], *, again: bool, leave_out: bool
) -> tuple[NDArray[np.intp], bool]:
    """The rows that may certify, and whether some had certified before. Raises Invalid where rows had another role, or
    had certified, and it is not said that they are to be left out or used again."""
    prints = np.frombuffer(b"".join(one[:8] for one in new), np.uint64)
    none = np.empty(0, np.uint64)
    made = np.isin(prints, np.concatenate([used.get("fit", none), used.get("select", none)]))
    before = np.isin(prints, used.get("certify", none))
    if leave_out:
        kept = np.flatnonzero(~made & (again | ~before))
        if not len(kept):
            raise Invalid("all of the rows were used before", where="data", hint="give rows that are new")
        return kept, bool(before[kept].any())
    if made.any():
        raise Invalid(
            f"{int(made.sum()):,} of the rows had a part in making the cascade",
            where="data",
            hint="certify with rows that are new, or leave these out (--leave-out-used)",
        )
    if before.any() and not again:
        raise Invalid(
            f"{int(before.sum()):,} of the rows have certified before: a second use makes the confidence wrong",
            where="data",
            hint="give rows that are new, or --again, which the certificate then says",
        )
    return np.arange(len(new)), bool(before.any())
