"""Fetching, once: concurrent requests for one chunk are one fetch, the most valuable first, within a rate."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from shoal.cache.sources import Source, Version
from shoal.cache.store import ObjectInfo
from shoal.core import Overloaded

NOW = float("-inf")
"""The priority of what a reader waits for."""

_QUEUED = 10_000
"""Fetches that may wait: more are asked for again in the next round."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """One chunk of one version, with the credentials of a tenant that asked."""

    info: ObjectInfo
    number: int
    source: Source
    version: Version

    @property
    def name(self) -> tuple[str, str, int]:
        return self.info.key, self.info.tag, self.number


class Fills:
    """`act` fetches one chunk, on one of the threads."""

    def __init__(self, act: Callable[[Fetch], None], threads: int) -> None:
        self._act = act
        self._order = itertools.count()
        self._queue: queue.PriorityQueue[tuple[float, int, Fetch | None]] = queue.PriorityQueue()
        self._under_way: dict[tuple[str, str, int], Future[None]] = {}
        self._mutex = threading.Lock()
        self._threads = [threading.Thread(target=self._work, daemon=True, name=f"fill-{at}") for at in range(threads)]
        for thread in self._threads:
            thread.start()

    def fetch(self, fetch: Fetch, priority: float) -> Future[None]:
        """The smaller the priority, the sooner. Raises Overloaded when too many wait."""
        with self._mutex:
            found = self._under_way.get(fetch.name)
            if found is None:
                if priority != NOW and self._queue.qsize() >= _QUEUED:
                    raise Overloaded("too many fetches wait")
                found = self._under_way[fetch.name] = Future()
                self._queue.put((priority, next(self._order), fetch))
            elif priority == NOW and not found.running():
                self._queue.put((NOW, next(self._order), fetch))  # the later entry finds it done
            return found

    @property
    def waiting(self) -> int:
        return len(self._under_way)

    def close(self) -> None:
        """Fetches under way end; what waits is cancelled."""
        for _ in self._threads:
            self._queue.put((NOW, -1, None))
        with self._mutex:
            for future in self._under_way.values():
                future.cancel()
        for thread in self._threads:
            thread.join(timeout=5.0)

    def _work(self) -> None:
        while True:
            _, _, fetch = self._queue.get()
            if fetch is None:
                return
            with self._mutex:
                found = self._under_way.get(fetch.name)
                if found is None or found.running() or not found.set_running_or_notify_cancel():
                    continue
            try:
                self._act(fetch)
            except BaseException as error:
                self._end(fetch)
                found.set_exception(error)
            else:
                self._end(fetch)
                found.set_result(None)

    def _end(self, fetch: Fetch) -> None:
        with self._mutex:
            self._under_way.pop(fetch.name, None)


class Pace:
    """Bytes a second in all; 0 is no limit. `wait` blocks as long as it takes."""

    def __init__(self, bytes_per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = bytes_per_s
        self._clock = clock
        self._free_at = 0.0
        self._mutex = threading.Lock()

    def wait(self, count: int, sleep: Callable[[float], None] = time.sleep) -> None:
        if not self._rate:
            return
        with self._mutex:
            now = self._clock()
            self._free_at = max(self._free_at, now) + count / self._rate
            late = self._free_at - now - 0.1
        if late > 0:
            sleep(late)
