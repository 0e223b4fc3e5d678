"""Brute force over orders of execution on one slot, without batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations


def all_can_be_in_time(jobs: Sequence[tuple[float, float]]) -> bool:
    """Whether some order of these (seconds, deadline), all there at time 0, meets every deadline."""
    return any(_in_time(order) for order in permutations(jobs))


def _in_time(order: Sequence[tuple[float, float]]) -> bool:
    now = 0.0
    for seconds, deadline in order:
        now += seconds
        if now > deadline + 1e-9:
            return False
    return True


def completions(arrivals: Sequence[float], seconds: float, within_s: float) -> list[float | None]:
    """When one slot that serves in order of arrival completes each request; None for those that would be late, which
    it does not take."""
    free_at, ends = 0.0, list[float | None]()
    for at in arrivals:
        end = max(free_at, at) + seconds
        if end > at + within_s + 1e-9:
            ends.append(None)
        else:
            ends.append(end)
            free_at = end
    return ends
