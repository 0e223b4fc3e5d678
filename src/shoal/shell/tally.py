"""Tally of the bytes that commands read on sites, by path."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

MOST_PATHS = 1000


class Tally:
    """Of the paths that were read last; one that is left out begins anew."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, float] = OrderedDict()

    def add(self, path: str, count: float) -> None:
        if not count:
            return
        self._counts[path] = self._counts.pop(path, 0.0) + count
        if len(self._counts) > MOST_PATHS:
            self._counts.popitem(last=False)

    def counts(self) -> Mapping[str, float]:
        return self._counts

    def take(self) -> Mapping[str, float]:
        """All of them, which then begin anew."""
        taken, self._counts = self._counts, OrderedDict()
        return taken
