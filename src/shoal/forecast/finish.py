"""Finish time of a running job, from the steps that it reports. Pure, and without numerical libraries: every report of
every job passes here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from shoal.core import Estimate
from shoal.forecast.pauses import Ahead, Pauses

LEVEL = 0.9
_MOST = 64
_BLOCKS = 8
_LEAST = 4
_FARTHEST = 2.0
"""As how many independent blocks the future counts at most: a slow phase lasts, so that a long future does not average
out as independent blocks would."""
_STUDENT = {3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895}
"""The 95 % point of Student's distribution by degrees of freedom: 90 % lie within both signs of it."""
_QUIET = 0.02
"""No job is taken for steadier than this part of its step time. The smallest of 0.005, 0.01, 0.015 and 0.02 whose
intervals held in 90 % of CM-DARE's recorded runs on K80 and of 96 jobs of `benchmarks/forecast_finish.py` with its own
seed. Runs on P100 and another seed test it."""


@dataclass
class Track:
    """Reported (time, step) at about equal distances, at most 65 of them; the last one is the newest report,
    wherever it lies. Pauses are left out of these times and counted apart; `at` is the time of the newest report."""

    at: float = 0.0
    points: list[tuple[float, int]] = field(default_factory=list)
    pauses: Pauses = field(default_factory=Pauses)
    _apart: int = 0
    """Steps between two points, at least; grows when there are too many."""

    def observe(self, at: float, step: int, saved_at: float | None = None) -> None:
        """Take in a report, and when the newest reported checkpoint was complete. A step behind the last one is a
        restart from a checkpoint, and what was before does not count."""
        points = self.points
        if points:
            last = points[-1][1]
            if step < last:
                points.clear()
                self._apart, self.pauses = 0, Pauses()
            elif step == last or at <= self.at:
                return
            else:
                saved = saved_at is not None and self.at < saved_at <= at
                self.pauses.observe(step, step - last, at - self.at, saved=saved)
        self.at = at
        at -= self.pauses.seconds
        if self._partial():
            points[-1] = (at, step)
        else:
            points.append((at, step))
        if len(points) > _MOST and not self._partial():
            del points[1::2]  # an odd number: the first and the last stay
            self._apart = (points[-1][1] - points[0][1]) // (len(points) - 1)

    def _partial(self) -> bool:
        """The last point is nearer to the one before than points are apart."""
        return len(self.points) > 1 and self.points[-1][1] - self.points[-2][1] < self._apart

    def remaining(self, total: int) -> Estimate | None:
        """Seconds from the last report to the last step; None with fewer than five reports."""
        whole = self.points[:-1] if self._partial() else self.points
        if len(whole) <= _LEAST:
            return None
        points = whole[_warm_up(whole) :]
        (first_at, first), (last_at, last) = points[0], points[-1]
        left = max(0, total - self.points[-1][1])
        seconds = left * (last_at - first_at) / (last - first)
        logs = _blocks(points)
        mean = sum(logs) / len(logs)
        spread = math.sqrt(sum((one - mean) ** 2 for one in logs) / (len(logs) - 1))
        ahead = min(_FARTHEST, max(1.0, left / ((last - first) / len(logs))))
        width = _STUDENT[len(logs) - 1] * max(_QUIET, spread * math.sqrt(1 / len(logs) + 1 / ahead))
        source = f"measured over {last - first} steps of this job"
        steady = Estimate(seconds, seconds * math.exp(-width), seconds * math.exp(width), LEVEL, source)
        paused = self.pauses.ahead(self.points[-1][1], left)
        return steady if paused is None else _with_pauses(steady, paused)


_NORMAL = 1.645


def _with_pauses(steady: Estimate, paused: Ahead) -> Estimate:
    """Both errors are independent: their squares add up. No less is left than where no pause comes any more."""
    wide = _NORMAL * paused.deviation
    median = steady.median + paused.seconds
    low = max(steady.low, median - math.hypot(steady.median - steady.low, wide))
    high = median + math.hypot(steady.high - steady.median, wide)
    pauses = "a pause" if paused.seen == 1 else f"{paused.seen} pauses"
    source = f"{steady.source}, with {pauses} of {paused.length_s:.2g} s on average"
    return Estimate(median, low, high, steady.level, source)


_EQUAL = 1e-9
"""Sums of squares below this are rounding."""


def _warm_up(points: Sequence[tuple[float, int]]) -> int:
    """How many stretches between reports to leave out at the beginning, while workers join and caches fill: those whose
    loss makes the mean of the rest the most certain (MSER; White, Simulation 1997). Four stay at least."""
    stretches = _logs(points)
    best, least, total, squares = 0, math.inf, 0.0, 0.0
    for start in range(len(stretches) - 1, -1, -1):
        total += stretches[start]
        squares += stretches[start] ** 2
        count = len(stretches) - start
        doubt = max(_EQUAL, squares - total**2 / count) / count**2
        if count >= _LEAST and doubt <= least:
            best, least = start, doubt
    return best


def _blocks(points: Sequence[tuple[float, int]]) -> list[float]:
    """Of stretches with about the same number of reports, eight at most."""
    count = min(_BLOCKS, len(points) - 1)
    return _logs([points[round(one * (len(points) - 1) / count)] for one in range(count + 1)])


def _logs(points: Sequence[tuple[float, int]]) -> list[float]:
    """Logarithms of seconds per step between neighbours."""
    return [math.log((b[0] - a[0]) / (b[1] - a[1])) for a, b in pairwise(points)]
