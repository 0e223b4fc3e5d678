"""Record of the backups by the clock, in the home: for `shoal doctor`, which needs no server."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from shoal.base.files import write_whole
from shoal.core import Capability

CAPABILITY = "backups"
_LATE = 1.5
"""A backup that is older than this many intervals is missed."""


@dataclass(frozen=True, slots=True)
class BackupRecord:
    """The last good backup, and what went wrong since, if anything did."""

    every_s: float = 0.0
    folder: str = ""
    file: str = ""
    at: float = 0.0
    bytes: int = 0
    seq: int = 0
    seconds: float = 0.0
    trouble: str = ""

    def capability(self, now: float) -> Capability:
        if not self.every_s:
            cost = "what is in the database is lost with its disk, unless you back up by other means"
            return Capability(CAPABILITY, False, "none by the clock: `shoal up --backup-every 1d`", cost)
        age = f"{(now - self.at) / 3600:.1f} h old" if self.at else "none yet"
        if self.trouble:
            return Capability(CAPABILITY, False, f"{self.trouble} (the last good one: {age})", "it is tried again soon")
        if self.at and now - self.at > _LATE * self.every_s:
            return Capability(
                CAPABILITY, False, f"the last one is {age}", "the server was away, or its clock was changed"
            )
        return Capability(
            CAPABILITY, True, f"the last one is {age}, checked: {self.file}" if self.at else "the first is due"
        )


def path_of(home: Path) -> Path:
    return home / "upkeep" / "backups.json"


def read(home: Path) -> BackupRecord:
    try:
        return BackupRecord(**json.loads(path_of(home).read_bytes()))
    except (OSError, ValueError, TypeError):
        return BackupRecord()


def write(home: Path, kept: BackupRecord) -> None:
    """May raise OSError."""
    path = path_of(home)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_whole(path, json.dumps(asdict(kept)), durable=False)


def names_in(folder: Path) -> list[str]:
    """The files there; none where there is no such folder. May raise OSError."""
    return os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208
