"""Bounded samples over time: recent samples one by one, older ones joined, the oldest forgotten."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

EVERY_S = 10.0
"""How often samples are meant to be taken."""
RECENT = 360
"""Samples that are kept one by one: an hour of them."""
JOINED = 30
"""The number of samples that become one when they are older: five minutes."""
OLDER = 288
"""Joined samples that are kept: a day of them."""


class History(Generic[T]):
    """`join` makes one value of several, which were sampled one after the other."""

    def __init__(
        self, join: Callable[[Sequence[T]], T], *, recent: int = RECENT, joined: int = JOINED, older: int = OLDER
    ) -> None:
        self._join = join
        self._joined = joined
        self._most = recent + joined
        self._recent: deque[tuple[float, T]] = deque()
        self._older: deque[tuple[float, T]] = deque(maxlen=older)

    def add(self, at: float, value: T) -> None:
        """A sample of now. One that is not newer than the last is left out: a clock went back."""
        if self._recent and at <= self._recent[-1][0]:
            return
        self._recent.append((at, value))
        if len(self._recent) >= self._most:
            old = [self._recent.popleft() for _ in range(self._joined)]
            self._older.append((old[-1][0], self._join([value for _, value in old])))

    def points(self) -> list[tuple[float, T]]:
        """(Unix seconds, value), oldest first. A joined value stands at its last sample."""
        return [*self._older, *self._recent]
