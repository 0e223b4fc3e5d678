"""Waits of jobs for data that was not on the fast disk, as their readers report them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_FORGOTTEN_S = 600.0
"""A job that reports nothing for so long is over, or reads from the fast disk alone."""

_MOST = 10_000


class Waits:
    """Thread-safe. Seconds of all readers of a job in all, by tenant and job."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waited: dict[tuple[str, str], tuple[float, float]] = {}
        self._mutex = threading.Lock()

    def add(self, tenant: str, job: str, seconds: float) -> None:
        if not job or not seconds:
            return
        with self._mutex:
            before, _ = self._waited.pop((tenant, job), (0.0, 0.0))
            if len(self._waited) < _MOST:
                self._waited[tenant, job] = before + seconds, self._clock()

    def told(self) -> list[dict[str, Any]]:
        limit = self._clock() - _FORGOTTEN_S
        with self._mutex:
            self._waited = {pair: one for pair, one in self._waited.items() if one[1] > limit}
            return [{"tenant": tenant, "job": job, "seconds": s} for (tenant, job), (s, _) in self._waited.items()]
