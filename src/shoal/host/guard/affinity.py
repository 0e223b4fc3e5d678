"""Placement of the guard's own thread: out of the way of guaranteed work."""

from __future__ import annotations

import os
from contextlib import suppress

PRIORITY = 3
"""Of SCHED_FIFO: one above the pacer, whose idle burning is what it takes its time from."""


class CpuAffinity:
    """On cores of best-effort work, with real-time priority: on a paced one ordinary work waits for its window, and
    on those of guaranteed work each tick would interrupt a step. Where that priority is refused, off the cores that
    may be slowed down. To be used by one thread, the guard's."""

    def __init__(self) -> None:
        self._home = frozenset(os.sched_getaffinity(0))
        self._at, self._real_time = self._home, False

    def move(self, slowed: frozenset[int]) -> None:
        """`slowed` are the cores on which best-effort work alone runs."""
        there = self._home & slowed
        real_time = bool(there) and (self._real_time or _prefer(real_time=True))
        wanted = there if real_time else self._home - slowed or self._home
        if self._real_time and not real_time:
            _prefer(real_time=False)
        self._real_time = real_time
        if wanted != self._at:
            with suppress(OSError):
                os.sched_setaffinity(0, wanted)
                self._at = wanted

    def leave(self) -> None:
        """As it was found."""
        self.move(frozenset())


def _prefer(*, real_time: bool) -> bool:
    """Whether it could be had. Threads and processes that are started do not inherit it."""
    policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK if real_time else os.SCHED_OTHER
    try:
        os.sched_setscheduler(0, policy, os.sched_param(PRIORITY if real_time else 0))
    except OSError:
        return False
    return True
