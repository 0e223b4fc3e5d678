"""Files that are whole or not there."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

PRIVATE_FILE, PRIVATE_DIR = 0o600, 0o700


def write_whole(path: Path, data: str | bytes, *, mode: int = PRIVATE_FILE, durable: bool = True) -> None:
    """Write a file so that readers see all of it or the one before, for its owner only unless `mode` says otherwise.
    `durable`: it is on disk when this returns. Raises OSError."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data.encode() if isinstance(data, str) else data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def file_system_bytes(path: Path) -> int:
    """The size of the file system that this is on, or will be."""
    return shutil.disk_usage(next(each for each in (path, *path.parents) if each.exists())).total
