"""Rate limits in what requests cost, not in how many there are: token buckets of compute-seconds.

A request's expected cost is taken when it is admitted, and the difference settled when it was measured, so a tenant
with cheap requests may send more of them under the same limit.
"""

from __future__ import annotations

_ROUNDING_S = 1e-9
"""A request that comes again when it was told to finds enough, whatever the rounding."""


class CostBucket:
    """Fills by `rate` compute-seconds per second up to `burst_s` compute-seconds; full at first.

    A cost beyond `burst_s` is admitted when the bucket is full, and leaves a debt. So does an execution that turned
    out dearer than expected. Times are of one monotonic clock.
    """

    __slots__ = ("_at", "_level_s", "burst_s", "rate")

    def __init__(self, rate: float, burst_s: float, *, now: float = 0.0) -> None:
        self.rate = rate
        self.burst_s = burst_s
        self._level_s = burst_s
        self._at = now

    def level_s(self, now: float) -> float:
        """Compute-seconds that may be spent at once; negative while in debt."""
        if now > self._at:
            self._level_s = min(self.burst_s, self._level_s + (now - self._at) * self.rate)
            self._at = now
        return self._level_s

    def take(self, cost_s: float, now: float) -> float:
        """Takes the cost and returns 0, or takes nothing and returns after how many seconds to ask again."""
        missing_s = min(cost_s, self.burst_s) - self.level_s(now)
        if missing_s > _ROUNDING_S:
            return missing_s / self.rate
        self._level_s -= cost_s
        return 0.0

    def settle(self, expected_s: float, actual_s: float, now: float) -> None:
        """What was taken as `expected_s` turned out to be `actual_s` (0 if it was not executed after all)."""
        self._level_s = min(self.burst_s, self.level_s(now) + expected_s - actual_s)
