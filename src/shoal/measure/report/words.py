"""Numbers in the words of a report: an estimate with its interval, `?` for an end that is not known."""

from __future__ import annotations

import math

from shoal.base.report import duration
from shoal.measure.statistics import Estimate


def or_else(value: float, instead: float) -> float:
    return value if math.isfinite(value) else instead


def time(one: Estimate) -> str:
    if not math.isfinite(one.value):
        return "-"
    ends = (duration(end) if math.isfinite(end) else "?" for end in (one.low, one.high))
    return f"{duration(one.value)} ({' to '.join(ends)})"
