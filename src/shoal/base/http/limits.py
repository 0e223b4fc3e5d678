"""Limits of one client, of one address and of all clients together."""

from __future__ import annotations

import resource
from dataclasses import dataclass

_RESERVED_SHARE = 4
"""At most one descriptor in this number is kept in reserve. That matters where there are few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes in bytes, times in seconds; times are kept to within `sweep_s`.

    `head` is the longest first line with all headers. `body` is the largest body that is collected, also after it was
    decompressed; an application that reads its body in pieces limits it itself. `held` is the sum of all collected
    bodies that are being received or worked on. A body may take `body_s` and on top the time of its size at
    `slowest_bytes_per_s`; so may an answer be taken slowly.

    `connections` is for all clients, `per_address` for each address (None: half of what all may have).
    `reserved_files` descriptors of the process are never used for connections.
    """

    head: int = 32 << 10
    body: int = 64 << 20
    held: int = 1 << 30
    connections: int = 4096
    per_address: int | None = None
    reserved_files: int = 128
    idle_s: float = 75.0
    head_s: float = 10.0
    body_s: float = 20.0
    slowest_bytes_per_s: float = 16 << 10
    answer_s: float = 600.0
    """The last resort against an application that never answers; not for those that stream."""
    half_closed_s: float = 10.0
    """How long a collected request is worked on whose client has ended its side: it may wait for the answer, or be
    gone."""
    linger_s: float = 2.0
    """How long a refused sender is listened to, so that it reads why instead of a reset connection."""
    sweep_s: float = 1.0

    def room(self, open_files: int | None = None) -> Room:
        """What these limits come to in a process that may have `open_files` descriptors (None: this one)."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if open_files is None else open_files
        if files == resource.RLIM_INFINITY:
            files = _MANY_FILES
        first_reserved = files - min(self.reserved_files, files // _RESERVED_SHARE)
        connections = max(1, min(self.connections, first_reserved))
        per_address = max(1, connections // 2) if self.per_address is None else min(self.per_address, connections)
        return Room(connections, per_address, first_reserved)


_MANY_FILES = 1 << 30


@dataclass(frozen=True, slots=True)
class Room:
    """Limits as they hold in this process. A connection whose descriptor is `first_reserved` or higher stands in the
    reserve: the system always gives the lowest free one, so that all below it are in use."""

    connections: int
    per_address: int
    first_reserved: int
