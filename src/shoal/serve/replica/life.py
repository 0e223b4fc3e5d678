"""Life of a replica: how long it waits for what, and how its process ends."""

from __future__ import annotations

from dataclasses import dataclass

STOPPED, REFUSED, GAVE_UP = 0, 3, 4
"""How the process ends."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a replica waits: between two tries to reach the gateway, at first and at most; for a gateway in all;
    and for the gateway's leave to end once it was told to."""

    first_s: float = 0.05
    longest_s: float = 0.25
    give_up_s: float = 600.0
    leave_s: float = 30.0
