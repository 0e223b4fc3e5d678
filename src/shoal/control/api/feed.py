"""Wakes all requests that wait for a change: event streams, long polls, log followers.

The store calls `committed` after each commit. Watchers do not get the events from here, only the news that there are
some for them; they read from the store by sequence number, so a slow reader holds nothing up and misses nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from shoal.contract.records import Event

T = TypeVar("T")


class Watch:
    """Use it as: clear, look, wait, and again; what is committed after the look ends the wait."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._news = asyncio.Event()

    @property
    def closed(self) -> bool:
        return self._feed.closed

    def clear(self) -> None:
        if not self._feed.closed:
            self._news.clear()

    def wake(self) -> None:
        self._news.set()

    async def wait(self, timeout_s: float) -> bool:
        """True when there is news, or the feed is closed; False when the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._news.wait()
        except TimeoutError:
            return False

    async def until(
        self, look: Callable[[], Awaitable[T]], enough: Callable[[T], bool], wait_s: float, *, every_s: float = math.inf
    ) -> T:
        """What a look finds once it is enough, the time is over, or the feed is closed. There is a look at first, at
        all news, and after `every_s` without any."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + wait_s
        while True:
            self.clear()
            found = await look()
            left_s = give_up_at - loop.time()
            if enough(found) or self.closed or left_s <= 0:
                return found
            await self.wait(min(left_s, every_s))


class Feed:
    """Bound to the event loop it is made in; `committed` may be called from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watches: dict[tuple[str, str], set[Watch]] = {}
        self.closed = False

    def committed(self, events: Sequence[Event]) -> None:
        # Also without a watch: one that begins before memory follows the commit would look too early.
        self._loop.call_soon_threadsafe(self._wake, events)

    def close(self) -> None:
        """End all waits, for good: the server is about to leave."""
        self.closed = True
        for watches in self._watches.values():
            for watch in watches:
                watch.wake()

    @contextmanager
    def watch(
        self, *, tenant: str | None = None, job_id: str | None = None, owner_id: str | None = None
    ) -> Iterator[Watch]:
        """Watch one job, else what jobs belong to, else one tenant, else everything."""
        asked = (("job", job_id), ("owner", owner_id), ("tenant", tenant))
        key = next(((kind, name) for kind, name in asked if name is not None), ("all", ""))
        watch = Watch(self)
        self._watches.setdefault(key, set()).add(watch)
        try:
            if self.closed:
                watch.wake()
            yield watch
        finally:
            watches = self._watches[key]
            watches.discard(watch)
            if not watches:
                del self._watches[key]

    def _wake(self, events: Sequence[Event]) -> None:
        if not self._watches:
            return
        keys = {("all", "")}
        for event in events:
            keys.add(("job", event.job_id or ""))
            keys.add(("owner", event.owner_id or ""))
            keys.add(("tenant", event.tenant or ""))
        for key in keys & self._watches.keys():
            for watch in self._watches[key]:
                watch.wake()
