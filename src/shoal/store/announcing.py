"""Word of what was committed: each event loop is called once, first its subscribers, then those who wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shoal.contract.records import Event
from shoal.core import ShoalError

log = logging.getLogger(__name__)

Callback = Callable[[Sequence[Event]], None]
Result = tuple["asyncio.Future[Any]", Any]


@dataclass(frozen=True, slots=True, eq=False)
class Subscriber:
    callback: Callback
    loop: asyncio.AbstractEventLoop | None
    """Where to call; None: on the loop that awaited the write, or at once when there is none."""


class Announcement(NamedTuple):
    """The events of one transaction with those who want to hear of them, and what its callers wait for."""

    subscribers: Sequence[Subscriber]
    events: Sequence[Event]
    results: Sequence[tuple[asyncio.AbstractEventLoop, Result]]


class _Call(NamedTuple):
    callbacks: list[Callback]
    events: Sequence[Event]
    results: list[Result]


def announce(told: Iterable[Announcement]) -> list[asyncio.AbstractEventLoop]:
    """Returns the loops that were called."""
    calls: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
    for one in told:
        by_loop: dict[asyncio.AbstractEventLoop | None, _Call] = {}
        for loop, result in one.results:
            by_loop.setdefault(loop, _Call([], one.events, [])).results.append(result)
        if one.events:
            fallback = next(iter(by_loop), None)
            for subscriber in one.subscribers:
                called = by_loop.setdefault(subscriber.loop or fallback, _Call([], one.events, []))
                called.callbacks.append(subscriber.callback)
        for at, call in by_loop.items():
            if at is None:
                _deliver([call])
            else:
                calls.setdefault(at, []).append(call)
    for loop, due in calls.items():
        with contextlib.suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(_deliver, due)
    return list(calls)


def _deliver(calls: Sequence[_Call]) -> None:
    for callbacks, events, results in calls:
        for callback in callbacks:
            try:
                callback(events)
            except Exception:  # the events are committed: one listener's failure is no other's
                log.exception("a subscriber to the store's events failed")
        for future, value in results:
            if future.done():  # its caller was cancelled
                continue
            if isinstance(value, ShoalError):
                future.set_exception(value)
            else:
                future.set_result(value)
