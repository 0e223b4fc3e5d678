"""Choice of the trials that go on: asynchronous successive halving, in the form that stops. Pure.

A trial that has done `first`, `first * eta`, `first * eta^2`, ... steps reaches a rung. It goes on from there if it is
among the best `1 / eta` of the trials that have reached the rung so far, and is stopped otherwise. Nobody waits for
others: the first one at a rung always goes on. The rule is that of Algorithm 2 in Li et al., "A System for Massively
Parallel Hyperparameter Tuning", MLSys 2020; there a trial that is not among the best pauses, here it ends, so that its
place is free at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def rungs(first: int, eta: int, before: int, now: int) -> list[int]:
    """The rungs that a trial has reached with its step `now`, and had not with the step `before` (-1: it is new)."""
    found, at, step = [], 0, first
    while step <= now:
        if step > before:
            found.append(at)
        at, step = at + 1, step * eta
    return found


def goes_on(value: float, others: Iterable[float], eta: int, *, lower: bool) -> bool:
    """Whether a trial with this value goes on from a rung that trials with the values `others` have reached before it.
    `lower`: the lower the better. What is no number is worse than all that are; equal ones fare alike."""
    scores = sorted([_score(one, lower) for one in (*others, value)])
    return _score(value, lower) <= scores[max(1, len(scores) // eta) - 1]


def _score(value: float, lower: bool) -> float:
    if math.isnan(value):
        return math.inf
    return value if lower else -value


def order(values: Sequence[float | None], *, lower: bool) -> list[int]:
    """Positions, those of the best values first; of equal ones the first."""
    return sorted(
        range(len(values)), key=lambda at: (math.inf if (one := values[at]) is None else _score(one, lower), at)
    )
