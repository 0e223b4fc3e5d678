"""What the sandbox of a rank is made of, for `enter`. Reads the modes of directories, changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import shoal
from shoal.core import Sandbox


def plan(level: Sandbox, uid: int, home: Path, keep: Sequence[Path]) -> dict[str, Any]:
    """In types that `marshal` takes. `keep` are the directories that the rank has of the home."""
    runtime = [path for path in _runtime() if path.is_dir()]
    private = sorted({str(folder) for path in (home, *runtime) if (folder := _private(path)) is not None})
    shown = [str(path) for path in runtime if any(path.is_relative_to(folder) for folder in private)]
    mine = [str(path) for path in keep if path.is_relative_to(home)]
    mine += [str(path) for path in keep if not path.is_relative_to(home) and any(map(path.is_relative_to, private))]
    return {
        "level": level.value,
        "uid": uid,
        # An empty directory hides what others may not enter: so the way to what is shown behind it is open.
        "mounts": [
            *(("hide", folder) for folder in private),
            *(("show", path) for path in shown),
            ("hide", str(home)),
            *(("show", path) for path in dict.fromkeys(mine)),
        ],
        "module_dir": str(Path(__file__).parent),
    }


def _runtime() -> list[Path]:
    """Where the interpreter, its packages and this one are."""
    package = Path(shoal.__file__).parent
    return sorted({Path(sys.base_prefix).resolve(), Path(sys.prefix), Path(sys.prefix).resolve(), package})


def _private(path: Path) -> Path | None:
    """The first directory on the way to a path that others may not enter."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)
