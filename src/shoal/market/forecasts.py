"""What other components predict, in the terms of a market: lifetimes as rates, speeds by kind of accelerator."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.core import Invalid, Lifetimes, Speeds
from shoal.market.policy.beliefs import CLASSES_S, Rates


def from_lifetimes(lifetimes: Lifetimes, kind: str, region: str, tick_s: float, worth: float = 50.0) -> Rates:
    """What a forecast of lifetimes says, as if it had been seen for `worth` ticks of each class."""
    rates = Rates.none()
    for at, start in enumerate((0.0, *CLASSES_S)):
        rates.seen[1, at] = worth
        rates.ended[1, at] = worth * (1 - lifetimes.survival(kind, region, start, tick_s))
    return rates


def speeds_by_kind(
    speeds: Speeds, job: str, kinds: Iterable[str], reference: str, workers: int = 1
) -> dict[str, float]:
    """Steps per second relative to the kind on which the job's work was counted; kinds of unknown speed are left out.
    The lower end of each interval counts, so that the safety net does not rely on luck."""
    base = speeds.steps_per_s(job, reference, workers)
    if base is None:
        raise Invalid(f"the speed of {job} on {reference} is not known")
    found = {kind: speeds.steps_per_s(job, kind, workers) for kind in kinds if kind != reference}
    return {reference: 1.0} | {kind: one.low / base.median for kind, one in found.items() if one is not None}
