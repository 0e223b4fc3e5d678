"""Counts and times of each model version: totals for the protocol's statistics, the last minute for people."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from shoal.serve.replica.messages import Times

WINDOW_S = 60
_GROWTH = math.log(1.03)
"""Neighbouring buckets differ by 3 %, so a quantile is right to 1.5 %."""
_LEAST_S = 1e-5
_BUCKETS = 600
"""From 10 us to about 500 s."""


def _bucket(latency_s: float) -> int:
    if latency_s <= _LEAST_S:
        return 0
    return min(_BUCKETS - 1, int(math.log(latency_s / _LEAST_S) / _GROWTH) + 1)


def _middle(bucket: int) -> float:
    return _LEAST_S * math.exp((bucket - 0.5) * _GROWTH) if bucket else _LEAST_S


class Window:
    """Latencies of the last minute: one histogram a second, and the sum of all that are in it."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, dict[int, int]]] = deque()
        self._total: dict[int, int] = {}
        self._count = 0

    def add(self, latency_s: float, now: float) -> None:
        second = int(now)
        if not self._seconds or self._seconds[-1][0] != second:
            self._forget(second)
            self._seconds.append((second, {}))
        bucket = _bucket(latency_s)
        histogram, total = self._seconds[-1][1], self._total
        histogram[bucket] = histogram.get(bucket, 0) + 1
        total[bucket] = total.get(bucket, 0) + 1
        self._count += 1

    def _forget(self, second: int) -> None:
        """What is older than the window, or from a future that the clock was set back from."""
        while self._seconds and not second - WINDOW_S < self._seconds[0][0] <= second:
            for bucket, count in self._seconds.popleft()[1].items():
                self._count -= count
                self._total[bucket] -= count
                if not self._total[bucket]:
                    del self._total[bucket]

    def quantiles(self, wanted: tuple[float, ...], now: float) -> tuple[float | None, ...]:
        """In seconds; None for all where there was nothing."""
        return merged_quantiles([self], wanted, now)

    def histogram(self, now: float) -> Mapping[int, int]:
        """Counts by bucket, until the next call of any method."""
        self._forget(int(now))
        return self._total

    def within_per_s(self, goal_s: float, now: float) -> float:
        """The rate of those that took no longer than this."""
        found = self.histogram(now)
        good = sum(count for bucket, count in found.items() if _middle(bucket) <= goal_s)
        return self.rate_per_s(now) * good / self._count if self._count else 0.0

    def rate_per_s(self, now: float) -> float:
        self._forget(int(now))
        if not self._seconds:
            return 0.0
        return self._count / max(1.0, min(float(WINDOW_S), now - self._seconds[0][0]))


def merged_quantiles(windows: Sequence[Window], wanted: tuple[float, ...], now: float) -> tuple[float | None, ...]:
    """Of several windows as if they were one."""
    histograms = [found for window in windows if (found := window.histogram(now))]
    total = histograms[0] if len(histograms) == 1 else _sum(histograms)
    if not total:
        return (None,) * len(wanted)
    buckets = sorted(total)
    sums = list(accumulate(total[bucket] for bucket in buckets))
    ranks = [max(1, math.ceil(quantile * sums[-1])) for quantile in wanted]
    return tuple(_middle(buckets[bisect_left(sums, rank)]) for rank in ranks)


def _sum(histograms: Sequence[Mapping[int, int]]) -> Mapping[int, int]:
    total: dict[int, int] = {}
    for histogram in histograms:
        for bucket, count in histogram.items():
            total[bucket] = total.get(bucket, 0) + count
    return total


@dataclass(slots=True)
class Total:
    """How often, and how long in all."""

    count: int = 0
    total_s: float = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        self.count += times
        self.total_s += seconds * times


@dataclass(slots=True)
class Stats:
    """One model version's, as a part of a service, since the gateway started. `inferences` counts samples, `executions`
    batches; times are sums over requests, in seconds. `rejected` were refused before they were worked on, `causes` says
    why by the reason's code. `last_at` and `now` are in Unix seconds, 0 for never. `batches` are by their samples. A
    `shadow`'s requests are copies of others.
    """

    name: str
    version: str
    service_id: str = ""
    shadow: bool = False
    window: Window = field(default_factory=Window)
    inferences: int = 0
    executions: int = 0
    last_at: float = 0.0
    success: Total = field(default_factory=Total)
    fail: Total = field(default_factory=Total)
    rejected: Total = field(default_factory=Total)
    causes: Counter[str] = field(default_factory=Counter)
    queue: Total = field(default_factory=Total)
    compute_input: Total = field(default_factory=Total)
    compute_infer: Total = field(default_factory=Total)
    compute_output: Total = field(default_factory=Total)
    batches: dict[int, Total] = field(default_factory=dict)

    @property
    def busy_s(self) -> float:
        """How long models ran, each batch counted once."""
        return sum(total.total_s for total in self.batches.values())

    def executed(self, samples: int, requests: int, times: Times) -> None:
        """A batch of this size is done; each of its requests took part in all of it, and is counted by `answered`."""
        self.executions += 1
        self.inferences += samples
        self.compute_input.add(times.compute_input_s, requests)
        self.compute_infer.add(times.compute_infer_s, requests)
        self.compute_output.add(times.compute_output_s, requests)
        batch = self.batches.get(samples)
        if batch is None:
            batch = self.batches[samples] = Total()
        batch.add(times.compute_infer_s)

    def answered(self, latency_s: float, queue_s: float, now: float) -> None:
        self.success.add(latency_s)
        self.queue.add(queue_s)
        self.window.add(latency_s, now)
        self.last_at = now

    def failed(self, latency_s: float, now: float) -> None:
        self.fail.add(latency_s)
        self.last_at = now

    def refused(self, waited_s: float, cause: str) -> None:
        self.rejected.add(waited_s)
        self.causes[cause] += 1
