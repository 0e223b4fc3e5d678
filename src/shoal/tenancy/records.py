"""A plane as the shared server keeps it, and the events it has there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shoal.contract.events import EventKinds


class PlaneState(StrEnum):
    """ACTIVE: it answers, and hands work over. SUSPENDED: it does neither; what runs goes on."""

    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"


@dataclass(frozen=True, slots=True)
class PlaneRecord:
    """`tenant` is whose quota and share its work counts against in the shared server. `busy` while it has work that is
    not over, as far as was written: such a plane is woken when the server starts."""

    id: str
    name: str
    tenant: str
    state: PlaneState
    busy: bool
    created_at: float
    updated_at: float


class PlaneEvent(EventKinds):
    """What is done to planes. What is done within one is in its own event log."""

    CREATED = "plane.created", "A virtual control plane was made."
    SUSPENDED = (
        "plane.suspended",
        "A plane was suspended: it answers no more, and nothing new of it starts. What runs goes on.",
    )
    RESUMED = "plane.resumed", "A suspended plane answers and hands work over again."
    RESTORED = "plane.restored", "A backup was put in the place of what a plane knew."
    TOKEN_CREATED = "plane.token-created", "A token was made for another admin of a plane."
    DELETED = "plane.deleted", "A plane was deleted, with all that it knew."
