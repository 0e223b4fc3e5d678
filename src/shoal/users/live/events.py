"""The kinds of events that this component writes."""

from __future__ import annotations

from shoal.contract.events import EventKinds


class UserEvent(EventKinds):
    """Who belongs where."""

    ADDED = (
        "user.added",
        "A user or a group of the machine belongs to a tenant from now on; `data` has the role.",
    )
    REMOVED = "user.removed", "A user or a group belongs to no tenant any more."
