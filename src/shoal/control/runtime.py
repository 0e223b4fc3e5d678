"""The runtime of the server's process: its event loop and its interpreter. Benchmarks run what the server runs."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on uvloop."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def tune_interpreter() -> None:
    """To be called once everything is loaded.

    What exists now stays for good, so it is never looked at again for cycles. What jobs leave behind is nearly always
    freed by its reference count; looking after every 700 new objects, Python's default, took a fifth of the time of a
    loaded server. After twenty thousand everything stands still for 20 to 30 ms, after a hundred thousand for 150 ms.

    The store's writer gives up the interpreter's lock for each statement and then needs it again for a moment. A busy
    event loop would keep it for 5 ms each time, Python's default, while all callers wait for their writes.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 100)
    gc.enable()
    sys.setswitchinterval(5e-5)
