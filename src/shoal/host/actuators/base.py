"""The protocol of actuators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shoal.core import Capability
from shoal.host.linux.members import Found
from shoal.host.types import Control, Group, Setting
from shoal.host.undo.write_ahead_log import WriteAheadLog


class Actuator(Protocol):
    """One mechanism that turns one control. Each `apply` reads from the kernel what is in force and changes what
    differs; it follows a group's new processes, and brings back what others took away."""

    @property
    def name(self) -> str: ...

    @property
    def control(self) -> Control: ...

    @property
    def least_share(self) -> float:
        """The smallest share it can set; 1 for other controls."""
        ...

    def capability(self) -> Capability:
        """Whether it works on this machine, as found out by trying."""
        ...

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        """Make its control's part of the setting so, and return the setting with that part as it is in force now, which
        the hardware may have rounded; where nothing is left to limit, that part limits nothing. A part that limits
        nothing is undone.

        Raises ShoalError or OSError when it cannot for this group at this time; then nothing of it is in force.
        """
        ...

    def restore(self, group: str | None = None) -> None:
        """Leave this group, or all, as they were found."""
        ...


class Reverting:
    """What a mechanism has in the write-ahead log is taken back group by group. `_limited` are the groups that it may
    have something of."""

    name: str

    def __init__(self, wal: WriteAheadLog) -> None:
        self._wal = wal
        self._limited: set[str] = set()

    def restore(self, group: str | None = None) -> None:
        for name in [group] if group is not None else list(self._limited):
            self._limited.discard(name)
            self._wal.revert(self._scope(name))

    def _scope(self, group: str) -> str:
        return f"{group}/{self.name}"


@dataclass(frozen=True, slots=True)
class Unhindered:
    """What a group takes when nothing limits it, as far as seen: CPUs kept busy, bytes per second."""

    cpus: float | None = None
    bandwidth: float | None = None
