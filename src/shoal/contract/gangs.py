"""What the processes of an attempt are called for an engine, and where a job's things lie in a home."""

from __future__ import annotations

from typing import NamedTuple

DOWNLOAD, RUN, STORE = "download", "run", "store"
"""The phases of an attempt: fetch inputs, run the user's command, store outputs."""


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
