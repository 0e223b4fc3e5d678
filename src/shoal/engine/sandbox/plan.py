"""What the sandbox of a rank is made of, for `enter`. Reads the modes of directories, changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.core import Sandbox


def plan(level: Sandbox, uid: int, home: Path, keep: Sequence[Path]) -> dict[str, Any]:
    """In types that `marshal` takes. `keep` are the directories below the home that the rank sees."""
    hidden = mask(home)
    return {
        "level": level.value,
        "uid": uid,
        "mask": str(hidden),
        "keep": sorted({str(path) for path in keep if path.is_relative_to(hidden)}),
        "module_dir": str(Path(__file__).parent),
    }


def mask(home: Path) -> Path:
    """The directory that an empty one hides: the home, or the first above it that others may not enter, since the way
    to the kept ones must be open to the tenant."""
    for folder in reversed(home.parents):
        if not folder.stat().st_mode & 0o001:
            return folder
    return home
