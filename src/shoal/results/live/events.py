"""Events of results."""

from __future__ import annotations

from shoal.contract.events import EventKinds


class ResultsEvent(EventKinds):
    """Where results are."""

    TRACKED = "results.tracked", "A job that is over has runs on a tracking server; `data` has their pages."
    KEPT = "results.kept", "Artifacts of an attempt are kept; `data` has how many, their names and bytes."
    REFUSED = "results.refused", "Artifacts of an attempt were not kept; `data` has each with the cause."
    PINNED = "results.pinned", "An artifact was pinned, or let go."
    REMOVED = "results.removed", "Artifacts were removed; `data` has their names."
