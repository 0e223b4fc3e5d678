"""The kinds of events that planes have in the shared server."""

from __future__ import annotations

from shoal.contract.events import EventKinds


class PlaneEvent(EventKinds):
    """What is done to planes. What is done within one is in its own event log."""

    CREATED = "plane.created", "A virtual control plane was made."
    SUSPENDED = (
        "plane.suspended",
        "A plane was suspended: it answers no more, and what it had running was asked to end.",
    )
    RESUMED = "plane.resumed", "A suspended plane answers and hands work over again."
    RESTORED = "plane.restored", "A backup was put in the place of what a plane knew."
    TOKEN_CREATED = "plane.token-created", "A token was made for another admin of a plane."
    DELETED = "plane.deleted", "A plane was deleted, with all that it knew."
