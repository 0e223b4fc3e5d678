"""How the server's process runs: its event loop and its garbage collector. Benchmarks run what the server runs."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on uvloop."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def tune_garbage_collector() -> None:
    """To be called once everything is loaded.

    What exists now stays for good, so it is never looked at again. What jobs leave behind is nearly always freed by
    its reference count; looking for cycles after every 700 new objects, Python's default, took a fifth of the time of
    a loaded server. A hundred thousand small objects are a few tens of megabytes at most.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    gc.enable()
