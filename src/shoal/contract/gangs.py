"""Names of an attempt's processes for an engine, and the places of a job's things in a home."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

DOWNLOAD, RUN, STORE = PHASES = ("download", "run", "store")
"""The phases that an attempt may have, in this order: fetch inputs, run the user's command, store outputs."""


@dataclass(frozen=True, slots=True)
class Move:
    """Something to copy before or after the run, between local paths (relative ones lie in the run directory) and URLs.
    An `optional` source may be missing."""

    source: str
    target: str
    optional: bool = False

    def as_json(self) -> dict[str, Any]:
        return {"from": self.source, "to": self.target, "optional": self.optional}


class GangName(NamedTuple):
    job_id: str
    attempt: int
    phase: str


def gang_name(job_id: str, attempt: int, phase: str) -> str:
    return f"{job_id}.{attempt}.{phase}"


def parse_gang_name(name: str) -> GangName | None:
    """None for a name that is not one of ours."""
    parts = name.split(".")
    if len(parts) != 3 or not parts[1].isdigit():
        return None
    return GangName(parts[0], int(parts[1]), parts[2])
