"""Who runs beside whom, once it is known how long two groups of jobs do.

Two groups that share for a total time are laid out on two lines of that length, each member with its portion; where
the lines run beside each other, so do the jobs. That takes at most one pair per member, instead of one per couple. A
group beside itself is laid out on one line of twice the length, folded in the middle (as McNaughton wraps around): no
member meets itself if none has more than half.
"""

from __future__ import annotations

import numpy as np

from shoal.schedule.types import Array, Index


def match(first: Index, first_portion: Array, second: Index, second_portion: Array) -> tuple[Index, Index, Array]:
    """Pairs (k,), (k,) of members and the portion of the shared time of each; both portions sum to one."""
    return _overlay(first, np.cumsum(first_portion), second, np.cumsum(second_portion))


def fold(members: Index, portion: Array) -> tuple[Index, Index, Array]:
    """As `match`, for a group beside itself; no portion may be more than a half."""
    ends = 2.0 * np.cumsum(portion)
    middle = int(np.searchsorted(ends, 1.0))
    left, right = members[: middle + 1], members[middle:]
    return _overlay(left, np.minimum(ends[: middle + 1], 1.0), right, ends[middle:] - 1.0)


def _overlay(first: Index, first_end: Array, second: Index, second_end: Array) -> tuple[Index, Index, Array]:
    stops = np.unique(np.concatenate([[0.0], first_end, second_end]).clip(0.0, 1.0))
    length = np.diff(stops)
    centre = stops[:-1] + 0.5 * length
    real = length > 1e-12
    one = np.minimum(np.searchsorted(first_end, centre[real]), len(first) - 1)
    other = np.minimum(np.searchsorted(second_end, centre[real]), len(second) - 1)
    return first[one], second[other], length[real] / length[real].sum()
