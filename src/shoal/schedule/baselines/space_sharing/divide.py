"""Division of a group's time among its members, who demand different rates and have one unit of time each, and who
runs beside whom.

A group's ways to run are a supply of time at different rates. Dividing each way in proportion to the demands is the
plain answer, and right unless some member would need more than all of its time. Then the members with the highest
demands must have the fastest ways. Members can be served exactly if, for each k, the k highest demands together are no
more than the k fastest units of time make (preemptive scheduling on uniform machines: Horvath, Lam and Sethi 1977).
They are served in that order, each with the slowest window of the supply line that is still fast enough, which leaves
that condition true for the rest. What is made beyond the demands goes to the lowest of them.

Who runs beside whom is told by `match`: two groups that share for a total time are laid out on two lines of that
length, each member with its portion; where the lines run beside each other, so do the jobs. That takes at most one pair
per member, instead of one per couple. A group beside itself is laid out on one line of twice the length, folded in the
middle (as McNaughton wraps around): no member meets itself if none has more than half.
"""

from __future__ import annotations

import numpy as np

from shoal.schedule.types import Array, Index

TOLERANCE = 1e-9


def divide(rate: Array, time: Array, demand: Array) -> Array | int:
    """The time (members, ways) that each member has in each way, of which there is `time` (ways,) at `rate` (ways,);
    all members' demands (members,) together are no more than the supply.

    Where the demands cannot be met, how many of the members with the highest demands should be made a group of their
    own, which then gets its own supply.
    """
    total, made = float(time.sum()), float(rate @ time)
    count = len(demand)
    if total <= 0.0 or made <= 0.0:
        return np.outer(np.full(count, 1.0 / count), time)
    least, most = demand / made, 1.0 / total
    if least.max() <= most * (1.0 + TOLERANCE):
        least = np.minimum(least, most)
        spare, room = 1.0 - least.sum(), most - least
        portion = least + (spare / room.sum()) * room if room.sum() > 0.0 and spare > 0.0 else least
        return np.outer(portion / portion.sum(), time)
    order = np.argsort(-demand, kind="stable")
    fastest = np.argsort(-rate, kind="stable")
    ends = np.concatenate([[0.0], np.cumsum(time[fastest])])
    supply = np.concatenate([[0.0], np.cumsum((rate * time)[fastest])])
    short = np.cumsum(demand[order]) - np.interp(np.arange(1, count + 1), ends, supply)
    if short.max() > TOLERANCE * made and count > 1:
        return min(int(short.argmax()) + 1, count - 1)
    return _windows(rate, time, _raised(demand, made), order, fastest)


def _raised(demand: Array, made: float) -> Array:
    """The demands with the lowest ones raised to one height, so that together they are all that is made."""
    lowest = np.sort(demand)
    ranks = np.arange(1, len(demand) + 1)
    heights = (made - (lowest.sum() - np.cumsum(lowest))) / ranks  # if the first `rank` demands were raised
    last = int(np.flatnonzero(heights >= lowest)[-1:].max(initial=0))
    raised: Array = np.maximum(demand, heights[last])
    return raised


def _windows(rate: Array, time: Array, demand: Array, order: Index, fastest: Index) -> Array:
    """Each block of members with equal demands takes the window of the line that makes just what it demands."""
    parts = np.zeros((len(demand), len(time)))
    idle = len(time)
    way = np.append(fastest, idle)
    speed = np.append(rate[fastest], 0.0)
    length = np.append(time[fastest], 2.0 * len(demand) + 1.0)
    starts = np.flatnonzero(np.r_[True, np.diff(demand[order]) != 0.0])
    for start, end in zip(starts, np.append(starts[1:], len(order)), strict=True):
        block = order[start:end]
        width = float(len(block))
        ends = np.concatenate([[0.0], np.cumsum(length)])
        made = np.concatenate([[0.0], np.cumsum(length * speed)])
        at = _where(ends, made, width, width * float(demand[block[0]]))
        low, high = np.maximum(ends[:-1], at), np.minimum(ends[1:], at + width)
        taken = np.maximum(high - low, 0.0)
        own = way < idle
        parts[np.ix_(block, way[own])] += taken[own] / width
        length = length - taken
        keep = length > 1e-15
        way, speed, length = way[keep], speed[keep], length[keep]
    given = parts.sum(axis=0)
    return parts * np.where(given > 0.0, time / np.where(given > 0.0, given, 1.0), 0.0)


def _where(ends: Array, made: Array, width: float, wanted: float) -> float:
    """The start of the window of this width that makes what is wanted; windows further right make less."""
    stops = np.unique(np.concatenate([ends, ends - width]).clip(0.0, ends[-1] - width))
    makes = np.interp(stops + width, ends, made) - np.interp(stops, ends, made)
    at = int(np.searchsorted(-makes, -wanted, side="right")) - 1  # the last stop that makes enough
    if at < 0:
        return 0.0
    if at + 1 >= len(stops) or makes[at] <= makes[at + 1]:
        return float(stops[at])
    rest = (makes[at] - wanted) / (makes[at] - makes[at + 1])
    return float(stops[at] + rest * (stops[at + 1] - stops[at]))


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
