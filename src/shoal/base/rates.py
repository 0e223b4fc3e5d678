"""How often something may be done: token buckets."""

from __future__ import annotations


class Buckets:
    """A token bucket for each key: `rate` a second, at most `burst` at once."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, key: str, now: float) -> float:
        """0.0, or in how many seconds there will be something to take."""
        left, at = self._left.get(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        granted = left >= 1
        self._left[key] = (left - granted, now)
        return 0.0 if granted else (1 - left) / self._rate
