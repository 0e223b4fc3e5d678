"""The threads that write for stores: one commits in rounds, the others flush.

In a round one transaction of each store with work is committed, all are flushed at once, and then every event loop is
woken once. The disk takes little longer for all of them than for one; and while the loop does what it was woken for,
the next round's work gathers.

Under a flood a store with much more work than the others is left out of some rounds, and then writes little:
what the others have is soon done."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from statistics import median_low
from typing import TYPE_CHECKING

from shoal.store.announcing import Announcement, announce

if TYPE_CHECKING:
    from shoal.store.writer import Writer

GROUP_LIMIT = 1024
"""Rows of work per transaction: beyond it the flush is well shared, and waiting callers only wait longer."""

_LEFT_OUT, _LEAST = 3, 8
"""A store with more than twice as much work as the usual one is left out of this number of rounds, and then writes at
least as many rows, or as many as the usual one has."""

_PASSES, _PATIENCE_S = 4, 0.1
"""The next round begins when the event loops have gone through what they were woken for: this number of passes, or this
time."""

_REST, _REST_S = 4.0, 0.5
"""A round of several stores is followed by a rest: this multiple of its processor time, or this time.
So what busy stores write gathers in few transactions."""

_BURST_S, _BURST_STORES = 0.5, 25
"""For so long after there was nothing to write, nothing is gathered: the callers of so few stores go on while the
others are written, and there is no rest. Machines that are free have their first work sooner."""


class WriterThreads:
    """`flushers` stores are flushed at once."""

    def __init__(self, flushers: int = 1) -> None:
        self._ready: queue.SimpleQueue[Writer | None] = queue.SimpleQueue()
        self._flushing = ThreadPoolExecutor(flushers, "shoal-store-flush")
        self._thread = threading.Thread(target=self._serve, name="shoal-store-writer", daemon=True)
        self._thread.start()

    def wake(self, writer: Writer) -> None:
        """Something was queued for this writer."""
        if not writer.due:
            writer.due = True
            self._ready.put(writer)

    def close(self) -> None:
        """Serve those whose turn is to come, then end. The stores are closed before or after, as it comes."""
        self._ready.put(None)
        self._thread.join()
        self._flushing.shutdown()

    def _serve(self) -> None:
        waiting: dict[Writer, int] = {}
        closing = False
        burst_until = 0.0
        while waiting or not closing:
            idle = not waiting and self._ready.empty()
            for writer in self._arrived(wait=not waiting):
                if writer is None:
                    closing = True
                else:
                    waiting.setdefault(writer, 0)
            turns = whose_turn(waiting)
            for writer in turns:
                del waiting[writer]
            for writer in waiting:
                waiting[writer] += 1
            now = time.monotonic()
            if idle:
                burst_until = now + _BURST_S
            self._round(turns, burst=now < burst_until)
            for writer in turns:
                writer.due = False
                if writer.backlog:  # queued since it looked
                    self.wake(writer)

    def _arrived(self, *, wait: bool) -> Iterable[Writer | None]:
        with contextlib.suppress(queue.Empty):
            if wait:
                yield self._ready.get()
            while True:
                yield self._ready.get_nowait()

    def _round(self, turns: dict[Writer, int], *, burst: bool) -> None:
        began = time.thread_time()
        left = iter(turns.items())
        loops: list[asyncio.AbstractEventLoop] = []
        while part := dict(islice(left, _BURST_STORES if burst else None)):
            loops = self._write(part)
        _pass_through(loops)
        if len(turns) > 1 and not burst:
            time.sleep(min(_REST_S, _REST * (time.thread_time() - began)))

    def _write(self, turns: dict[Writer, int]) -> list[asyncio.AbstractEventLoop]:
        with contextlib.ExitStack() as using:
            for writer in turns:
                using.enter_context(writer.lock)
            groups = [(writer, writer.commit(limit)) for writer, limit in turns.items()]
            flush = map if len(groups) == 1 else self._flushing.map
            told: list[Announcement] = list(flush(lambda each: each[0].flush(each[1]), groups))
            return announce(told)


def whose_turn(waiting: dict[Writer, int]) -> dict[Writer, int]:
    """The writers of the next round with the rows that each may write. `waiting` says how many rounds each has been
    left out of."""
    if not waiting:
        return {}
    usual = median_low(writer.backlog for writer in waiting)
    return {
        writer: max(_LEAST, usual) if writer.backlog > 2 * usual else GROUP_LIMIT
        for writer, left_out in waiting.items()
        if left_out >= _LEFT_OUT or writer.backlog <= max(_LEAST, 2 * usual)
    }


def _pass_through(loops: Iterable[asyncio.AbstractEventLoop]) -> None:
    for loop in loops:
        through = threading.Event()

        def step(left: int, loop: asyncio.AbstractEventLoop = loop, through: threading.Event = through) -> None:
            if left:
                loop.call_soon(step, left - 1)
            else:
                through.set()

        with contextlib.suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(step, _PASSES)
            through.wait(_PATIENCE_S)
