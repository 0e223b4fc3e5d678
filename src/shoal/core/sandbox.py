"""Levels of isolation of a tenant's processes from the server and from other tenants."""

from __future__ import annotations

from enum import StrEnum


class Sandbox(StrEnum):
    """From the weakest to the strongest.

    NONE: processes run as the server's own user. USER: as a user of the tenant's own, who sees nothing of the server's
    home but the job's directories, and gains no privileges. BUBBLEWRAP: that, in namespaces of the job's own, where
    only what the job needs is visible.
    """

    NONE = "none"
    USER = "user"
    BUBBLEWRAP = "bubblewrap"

    @property
    def capability(self) -> str:
        """The name of the engine's capability to have this level."""
        return f"sandbox-{self.value}"

    def at_least(self, other: Sandbox) -> Sandbox:
        """The stronger of the two."""
        return max(self, other, key=_LEVELS.index)


_LEVELS = tuple(Sandbox)
