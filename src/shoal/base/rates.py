"""Token buckets: bounds of how often something may be done."""

from __future__ import annotations

_KEPT = 4096


class Buckets:
    """A token bucket for each key: `rate` a second, at most `burst` at once. What is full again is forgotten now and
    then, so that many keys take no memory for ever."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._left: dict[str, tuple[float, float]] = {}
        self._most = _KEPT

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._left)

    def take(self, key: str, now: float) -> float:
        """0.0, or in how many seconds there will be something to take."""
        if len(self._left) >= self._most:
            self._left = {name: kept for name, kept in self._left.items() if self._filled(*kept, now) < self._burst}
            self._most = max(_KEPT, 2 * len(self._left))
        left = self._filled(*self._left.get(key, (self._burst, now)), now)
        granted = left >= 1
        self._left[key] = (left - granted, now)
        return 0.0 if granted else (1 - left) / self._rate

    def _filled(self, left: float, at: float, now: float) -> float:
        return min(self._burst, left + (now - at) * self._rate)
