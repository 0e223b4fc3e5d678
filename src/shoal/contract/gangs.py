"""What the processes of an attempt are called for an engine, and where a job's things lie in a home."""

from __future__ import annotations

DOWNLOAD, RUN, STORE = "download", "run", "store"
"""The phases of an attempt: fetch inputs, run the user's command, store outputs."""


def gang_name(job_id: str, attempt: int, stage: str) -> str:
    return f"{job_id}.{attempt}.{stage}"


def parse_gang_name(name: str) -> tuple[str, int, str] | None:
    """(job id, attempt, stage), or None for a name that is not one of ours."""
    parts = name.split(".")
    if len(parts) != 3 or not parts[1].isdigit():
        return None
    return parts[0], int(parts[1]), parts[2]
