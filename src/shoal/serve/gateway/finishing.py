"""Work that goes on when its caller is gone: a model must not be left half loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Finishing:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps no hold of them

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Await the work. It is not cancelled when this is."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)
