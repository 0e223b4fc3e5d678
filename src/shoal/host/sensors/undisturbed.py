"""Readings of guaranteed work and memory while no best-effort work disturbs them: one definition for the guard's
senses, the simulator and displays of a slowdown.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from shoal.base.statistics import quantile
from shoal.host.types import Missing, Reading

_READINGS = 5


@dataclass(slots=True)
class Undisturbed:
    """The median of the last readings during which all best-effort work was frozen or idle, so that a moment in which
    something else disturbed does no harm. Readings beside best-effort work in other memory domains alone count until
    there is a better one."""

    readings: deque[float] = field(default_factory=lambda: deque(maxlen=_READINGS))
    at: float = 0.0
    everywhere: bool = False

    def add(self, value: float, now: float, *, everywhere: bool) -> None:
        """`everywhere`: best-effort work was frozen or idle in all memory domains."""
        if self.everywhere and not everywhere:
            return
        if everywhere and not self.everywhere:
            self.readings.clear()
        self.readings.append(value)
        self.at, self.everywhere = now, everywhere

    def reading(self, now: float) -> Reading:
        if not self.readings:
            return Reading(Missing("no moment yet in which all best-effort work beside it was frozen or idle"))
        return Reading(quantile(self.readings, 0.5), now - self.at)
