"""Agenda of a simulation: a heap of actions by the clock, driven by one timer of whichever loop runs now."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from shoal.core import Clock

_TOLERANCE_S = 1e-9
"""Times are sums of floats: a timer may fire this much early."""


class Agenda:
    """Actions run in order of time, then of entry. O(log n) each; no task and no timer per action."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._timer_loop: asyncio.AbstractEventLoop | None = None
        self._acting_at: float | None = None

    @property
    def now(self) -> float:
        """Monotonic seconds; while an action runs, the time it was due."""
        return self._clock.monotonic() if self._acting_at is None else self._acting_at

    @property
    def wall(self) -> float:
        """Unix seconds of `now`."""
        if self._acting_at is None:
            return self._clock.now()
        return self._clock.now() - (self._clock.monotonic() - self._acting_at)

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        entry = (self.now + delay_s, next(self._order), action)
        heapq.heappush(self._heap, entry)
        if self._acting_at is None and self._heap[0] is entry:
            self.arm()

    def run_due(self) -> None:
        """Run what is due by the clock. Needed by hand only where the clock does not move with the loop."""
        if self._acting_at is not None:
            return
        try:
            while self._heap and self._heap[0][0] <= self._clock.monotonic() + _TOLERANCE_S:
                self._acting_at, _, action = heapq.heappop(self._heap)
                action()
        finally:
            self._acting_at = None
            self.arm()

    def arm(self) -> None:
        """Set the timer for the next action, on the running loop (a new life of the program has a new one)."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if not self._heap:
            return
        when = loop.time() + max(0.0, self._heap[0][0] - self._clock.monotonic())
        if self._timer is not None:
            if self._timer_loop is loop and self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer, self._timer_loop, self._timer_at = loop.call_at(when, self._fire), loop, when

    def _fire(self) -> None:
        self._timer = None
        self.run_due()
