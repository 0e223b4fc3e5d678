"""Step times for the host guard: `report` says when a step ended, a ring file keeps it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.ring import Ring

TELL_EVERY_S = 0.002
"""Shorter steps are told together, so that telling costs a thousandth at most."""


class Steps:
    """The ring of one process, made when its first step is reported. A forked child has one of its own."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._ring: Ring | None = None
        self._pid = 0
        self._last: int | None = None
        self._due = 0.0

    def reached(self, step: int, now: float) -> None:
        """Step `step` has ended at `now`. Time after an interruption or a step back counts for no step."""
        last = self._last
        if last is not None and now < self._due and step >= last:
            return
        self._due = now + TELL_EVERY_S
        if self._pid != os.getpid():
            self._begin()
            last = None
        assert self._ring is not None
        if last is None or step < last:
            self._ring.start()
        elif step == last:
            return
        else:
            self._ring.step(step - last)
        self._last = step

    def interrupted(self) -> None:
        """Something else than a step was done, such as a checkpoint."""
        self._last = None

    def _begin(self) -> None:
        from shoal.ring import Ring  # not before it is needed: mmap and zlib are half a millisecond of every start

        self._pid = os.getpid()
        self._ring = Ring.from_environment(self._environ)
