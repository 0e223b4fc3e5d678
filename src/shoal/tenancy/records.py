"""A plane as the shared server keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PlaneState(StrEnum):
    """ACTIVE: it answers, and hands work over. SUSPENDED: it does neither, and what it had running was asked to end."""

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
