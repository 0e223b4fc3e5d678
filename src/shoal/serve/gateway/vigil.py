"""Keeps the event loop awake for a moment after traffic with replicas, where the next will come within one.

A callback that puts itself into the loop's queue again and again makes the loop look for what came instead of sleeping,
whatever it is: requests, answers, timers. Only while nothing else is being executed than what is waited for: where
there is more, the loop has no need to wait, and answers a moment later cost nobody anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from shoal.serve.polling import HaltPoll, worth_polling

_LONGEST_S = 0.001
"""Long enough to wait for executions that are short against four wake-ups, and for the next request of a caller that
asks again at once."""


class Vigil:
    """One event loop only, which is `awake` or may sleep. `in_flight` says how much replicas are asked at present;
    without a `poll`, the loop sleeps at once."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        in_flight: Callable[[], int],
        poll: HaltPoll | None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._loop = loop
        self._in_flight = in_flight
        self._poll = poll
        self._clock = clock
        self._stirred_at = clock()
        self._until = 0.0
        self.awake = False

    @classmethod
    def here(cls, in_flight: Callable[[], int]) -> Vigil:
        """Of the loop that runs."""
        return cls(asyncio.get_running_loop(), in_flight, HaltPoll(_LONGEST_S) if worth_polling() else None)

    def stir(self) -> None:
        """A replica was asked, or answers."""
        poll = self._poll
        if poll is None:
            return
        now = self._clock()
        if self._in_flight() > 1:
            self._until = 0.0
        else:
            poll.waited(now - self._stirred_at, now)
            self._until = now + poll.window_s
            if not self.awake and poll.window_s:
                self.awake = True
                self._loop.call_soon(self._look)
        self._stirred_at = now

    def _look(self) -> None:
        assert self._poll is not None
        if self._poll.give_way() < self._until and self._poll.window_s:
            self._loop.call_soon(self._look)
        else:
            self.awake = False
