"""A value that changes, and those who follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Present(Generic[T]):
    """Each follower gets the present value first, then every newer one; a slow follower only the newest."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._version = 0
        self._closed = False
        self._changed = asyncio.Event()

    def set(self, value: T) -> None:
        """An equal value changes nothing."""
        if value != self.value:
            self.value = value
            self._version += 1
            self._wake()

    def close(self) -> None:
        """Every follower's iteration ends."""
        self._closed = True
        self._wake()

    async def follow(self) -> AsyncIterator[T]:
        seen = -1
        while not self._closed:
            changed = self._changed
            if seen == self._version:
                await changed.wait()
            else:
                seen = self._version
                yield self.value

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
