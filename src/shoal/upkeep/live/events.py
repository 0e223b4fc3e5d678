"""The kinds of events of upkeep."""

from __future__ import annotations

from shoal.contract.events import EventKinds


class UpkeepEvent(EventKinds):
    """Of the server's own care."""

    BACKED_UP = "upkeep.backed-up", "A backup was written and checked; `data` has its file, size and sequence."
    BACKUP_FAILED = "upkeep.backup-failed", "A backup could not be made or was not whole; it is tried again."
