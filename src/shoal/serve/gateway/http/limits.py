"""What one client may take of the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Sizes in bytes, times in seconds; times are kept to within `sweep_s`.

    `json` limits the JSON of a request, which is read on the event loop while everybody waits; binary tensors only
    count towards `body`. `held` is the sum of all bodies that are being received or worked on. A body may take
    `body_s` and on top the time of its size at `slowest_bytes_per_s`; so may an answer be taken slowly.
    """

    head: int = 16 << 10
    body: int = 64 << 20
    json: int = 4 << 20
    held: int = 1 << 30
    connections: int = 4096
    idle_s: float = 75.0
    head_s: float = 10.0
    body_s: float = 20.0
    slowest_bytes_per_s: float = 64 << 10
    answer_s: float = 600.0
    """The last resort against a backend that never answers: a service's deadlines are far below it."""
    linger_s: float = 2.0
    """How long a refused sender is listened to, so that it reads why instead of a reset connection."""
    sweep_s: float = 1.0
