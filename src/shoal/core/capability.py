"""What a mechanism can do on this machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing that a machine, an engine or an extension can or cannot do here, and what its absence costs."""

    name: str
    available: bool
    detail: str
    consequence: str = ""
