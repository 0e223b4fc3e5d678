"""A ramp of rates, the usual way to find a capacity, which the capacity search is compared with."""

from __future__ import annotations

from collections.abc import Callable

from shoal.core import Invalid
from shoal.measure.search.capacity import RateProbe
from shoal.measure.search.judge import Goal
from shoal.measure.statistics import quantile_of
from shoal.measure.types import Floats


def in_chunks(sample: Callable[[float, int], Floats], *, chunk: int = 50, warmup: int = 0) -> RateProbe:
    """A probe from a function that gives the latencies of the next n requests at a rate."""

    def probe(rate_per_s: float, enough: Callable[[Floats], bool]) -> None:
        if warmup:
            sample(rate_per_s, warmup)
        while not enough(sample(rate_per_s, chunk)):
            pass

    return probe


def ramp(
    sample: Callable[[float, int], Floats], goal: Goal, *, start_per_s: float, step: float, requests: int
) -> tuple[float, int]:
    """The usual way, for comparison: raise the rate by a factor 1 + `step` from `start_per_s` on until the quantile of
    `requests` requests breaks the goal. Returns the last rate that kept it (0 if none) and the requests spent."""
    if not (start_per_s > 0 and step > 0 and requests > 0):
        raise Invalid("a ramp needs a positive start, step and number of requests", where="ramp")
    rate, kept, spent = start_per_s, 0.0, 0
    while True:
        latencies = sample(rate, requests)
        spent += requests
        if quantile_of(latencies, goal.p) > goal.slo_s:
            return kept, spent
        kept, rate = rate, rate * (1 + step)
