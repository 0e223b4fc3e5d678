"""The kinds of events that the component writes."""

from __future__ import annotations

from shoal.contract.events import EventKinds


class EnvironmentEvent(EventKinds):
    """What software jobs run with."""

    READY = "environment.ready", "The software of a job is there; `data` has its kind and its key."
    REMOVED = "environment.removed", "An environment was removed, for room or because somebody asked for it."
