"""Bounded samples over time: recent samples one by one, older ones joined, the oldest forgotten."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
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
WRONG_S = 3600.0
"""A clock that goes back further was wrong before."""


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
        """A sample of now. One that is not newer than the last is left out: a clock went back. Those that are later by
        far are forgotten: a clock was wrong."""
        for points in (self._recent, self._older):
            while points and points[-1][0] > at + WRONG_S:
                points.pop()
            if points and points[-1][0] >= at:
                return
        self._recent.append((at, value))
        if len(self._recent) >= self._most:
            old = [self._recent.popleft() for _ in range(self._joined)]
            self._older.append((old[-1][0], self._join([value for _, value in old])))

    def points(self) -> list[tuple[float, T]]:
        """(Unix seconds, value), oldest first. A joined value stands at its last sample."""
        return [*self._older, *self._recent]

    def marked(self) -> Iterator[tuple[float, T, bool]]:
        """The same, each with whether it was joined of several."""
        yield from ((at, value, True) for at, value in self._older)
        yield from ((at, value, False) for at, value in self._recent)

    def restore(self, older: Iterable[tuple[float, T]], recent: Iterable[tuple[float, T]]) -> None:
        """Go on from such points, oldest first, in place of what is here."""
        self._older.clear()
        self._older.extend(older)
        self._recent = deque(recent)
