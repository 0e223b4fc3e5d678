"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, data: str | bytes, *, mode: int = 0o600, durable: bool = True) -> None:
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
    if durable:
        flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """What was made, renamed or removed in it is on disk when this returns. Blocks. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def free_bytes(path: Path) -> int:
    """What this process may still write to the file system that this is on, or will be."""
    found = os.statvfs(next(each for each in (path, *path.parents) if each.exists()))
    return (found.f_bavail if os.geteuid() else found.f_bfree) * found.f_frsize


def file_system_room(path: Path) -> tuple[int, int]:
    """The bytes and the files that the file system has room for that this is on, or will be. 0 files: they are not
    counted there."""
    found = os.statvfs(next(each for each in (path, *path.parents) if each.exists()))
    return found.f_blocks * found.f_frsize, found.f_files
