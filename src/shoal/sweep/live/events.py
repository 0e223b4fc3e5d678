"""The kinds of events that sweeps write."""

from __future__ import annotations

from shoal.contract.events import EventKinds


class SweepEvent(EventKinds):
    """How trials fare."""

    RUNG = "sweep.rung", "A trial has reached a rung; `data` has its value there, and whether it goes on."
