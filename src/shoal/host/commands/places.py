"""Places of the files that a guard writes."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.base.home import default_home
from shoal.core import NotFound


def home_of(home: Path | None) -> Path:
    return home or default_home(os.environ)


def guard_folder(home: Path | None) -> Path:
    return home_of(home) / "guard"


def journal_of(home: Path | None, journal: Path | None) -> Path:
    """Raises NotFound if there is none."""
    path = journal or guard_folder(home) / "journal.jsonl"
    if not path.is_file():
        raise NotFound("no guard has kept a journal there", where=str(path), hint="shoal guard run --config guard.yaml")
    return path
