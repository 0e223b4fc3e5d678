"""Rotation of backups: which is due, and which may go. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime

_NAME = re.compile(r"shoal-(?P<at>\d{8}T\d{6}Z)\.tar")
_DRAFT = re.compile(r"\.shoal-\d{8}T\d{6}Z\.tar-\w+|\.check-\w+")
_FORM = "%Y%m%dT%H%M%SZ"
_AHEAD_S = 60.0
"""A backup that is further in the future than this was made by a clock that was wrong."""


def name_at(at: float) -> str:
    """Of the backup that is made at this time."""
    return f"shoal-{time.strftime(_FORM, time.gmtime(at))}.tar"


def time_of(name: str) -> float | None:
    """When the backup of this name was made; None for any other file."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    try:
        return datetime.strptime(found["at"], _FORM).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def times(names: Iterable[str]) -> list[float]:
    """Of the backups among these files, the oldest first."""
    return sorted(at for one in names if (at := time_of(one)) is not None)


def due_in(names: Iterable[str], every_s: float, now: float) -> float:
    """Seconds until the next backup is due; 0 where it is."""
    made = [at for at in times(names) if at <= now + _AHEAD_S]
    return 0.0 if not made else max(0.0, made[-1] + every_s - now)


def to_remove(names: Iterable[str], keep: int) -> list[str]:
    """The oldest backups, without the newest `keep`. Files of other names stay."""
    made = sorted((one for one in names if time_of(one) is not None), key=lambda one: time_of(one) or 0.0)
    return made[: max(0, len(made) - keep)]


def drafts(names: Iterable[str]) -> list[str]:
    """The folders in which backups were being written or checked."""
    return [one for one in names if _DRAFT.fullmatch(one)]
