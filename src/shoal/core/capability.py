"""Capabilities of a mechanism on this machine."""

from __future__ import annotations

from dataclasses import dataclass

NO_JOBS = "no job can start"
"""How the consequence of an absence begins that stops everything."""


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing that a machine, an engine or an extension can or cannot do here, and what its absence costs."""

    name: str
    available: bool
    detail: str
    consequence: str = ""

    @property
    def stops_everything(self) -> bool:
        """Whether no job can start for want of it."""
        return not self.available and self.consequence.startswith(NO_JOBS)
