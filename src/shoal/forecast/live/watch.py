"""Whether a running job became slower than it was, and why: what was reported becomes step times and sensors for the
change-point test. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median

from shoal.forecast.bottleneck import SENSORS, Slowdown, detect

MOST = 256
EVERY = 32
"""The test is run once for each `EVERY` reports, on at most `MOST` of them."""

TOLD_FROM = 1.1
"""Smaller slowdowns are not told."""
_OVER_BELOW = 1.05
_SETTLE_S = 10.0
"""Sensors are some seconds old: for so long after its beginning a slowdown waits for them."""
_RECENT = 8


class Watch:
    """One attempt of a job. `slowdown` is what holds it back now; `since` when that began, in Unix time."""

    def __init__(self, mean_run: float) -> None:
        self.slowdown: Slowdown | None = None
        self.since = 0.0
        self._mean_run = mean_run
        self._usual = 0.0
        self._settled_at = math.inf
        self._last: tuple[float, int] | None = None
        self._ends: list[float] = []
        self._step_s: list[float] = []
        self._sensors: dict[str, list[float]] = {}

    def observe(self, at: float, step: int, sensors: Mapping[str, float]) -> bool:
        """Take in a report; whether it shows a new slowdown."""
        last, self._last = self._last, (at, step)
        if last is None or step < last[1]:
            self._forget(len(self._step_s))
        elif step > last[1] and at > last[0]:
            self._take((at - last[0]) / (step - last[1]), at, sensors)
            return self._judge()
        else:
            self._last = last
        return False

    def _take(self, step_s: float, at: float, sensors: Mapping[str, float]) -> None:
        for name in SENSORS:
            if name in sensors and name not in self._sensors:
                self._sensors[name] = [math.nan] * len(self._step_s)
        self._step_s.append(step_s)
        self._ends.append(at)
        for name, values in self._sensors.items():
            values.append(sensors.get(name, math.nan))

    def _judge(self) -> bool:
        count = len(self._step_s)
        if self.slowdown is not None and median(self._step_s[-_RECENT:]) < _OVER_BELOW * self._usual:
            self.slowdown = None
        if count % EVERY and self._ends[-1] < self._settled_at:
            return False
        self._settled_at = math.inf
        found = detect(self._step_s, self._sensors, mean_run=self._mean_run, late=count)
        if found is None:
            if count >= MOST:
                self._forget(MOST // 2)
            return False
        began_at = self._ends[max(0, found.began - 1)]
        if self._ends[-1] < began_at + _SETTLE_S and count < 2 * MOST:
            self._settled_at = began_at + _SETTLE_S
            return False
        told = found.factor >= TOLD_FROM
        if told:
            self.slowdown, self.since = found, began_at
            self._usual = median(self._step_s[: found.began])
        self._forget(found.began)
        return told

    def _forget(self, count: int) -> None:
        self._settled_at = math.inf
        del self._step_s[:count]
        del self._ends[:count]
        for values in self._sensors.values():
            del values[:count]
