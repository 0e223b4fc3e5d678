"""Eviction, by the control plane: the last resort, and the only one that cannot be taken back here."""

from __future__ import annotations

from collections.abc import Callable

from shoal.core import Capability, Unavailable
from shoal.host.members import Found
from shoal.host.types import Control, Group, Setting


class Eviction:
    """`evict` is called with a group's name once each time that the setting turns to evicted."""

    name = "evict"
    control = Control.EVICT
    least_share = 1.0

    def __init__(self, evict: Callable[[str], None] | None) -> None:
        self._evict = evict
        self._evicted: set[str] = set()

    def capability(self) -> Capability:
        if self._evict is None:
            return Capability(self.name, False, "nothing here can evict work", "best-effort work is frozen at worst")
        return Capability(self.name, True, "by the control plane")

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:  # noqa: ARG002
        if self._evict is None:
            raise Unavailable("nothing here can evict work", where=group.name)
        if setting.evicted and group.name not in self._evicted:
            self._evict(group.name)
            self._evicted.add(group.name)
        if not setting.evicted:
            self._evicted.discard(group.name)
        return setting

    def restore(self, group: str | None = None) -> None:
        """Let it be evicted again; what is gone stays gone."""
        self._evicted -= {group} if group is not None else set(self._evicted)
