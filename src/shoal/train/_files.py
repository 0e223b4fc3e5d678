"""Files that outlive a crash: lines that are appended whole, files that are replaced whole, data that is on disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path


class LineFile:
    """Appends lines to a file. A full disk costs lines, never the training: it is said once on standard error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._torn = False
        self._complained = False

    def append(self, lines: str) -> None:
        """Write lines, each with its end. One that an earlier writer left unfinished is closed off first."""
        try:
            if self._fd is None:
                self._open()
            self._write(("\n" + lines if self._torn else lines).encode())
        except OSError as error:
            if not self._complained:
                self._complained = True
                print(f"shoal.train: reports are not written to {self._path}: {error.strerror}", file=sys.stderr)

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._fd).st_size
        self._torn = size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"

    def _write(self, data: bytes) -> None:
        assert self._fd is not None
        while data:
            written = os.write(self._fd, data)
            self._torn = data[written - 1 : written] != b"\n"
            data = data[written:]


def replace(path: Path, text: str) -> None:
    """Put a whole new file in a file's place, so that a reader finds the old text or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync(path.parent, deep=False)


def files(path: Path) -> list[Path]:
    """A file, or all files in a directory."""
    return [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]


def size(path: Path) -> int:
    """Bytes of a file, or of all files in a directory."""
    return sum(each.stat().st_size for each in files(path))


def sync(path: Path, *, deep: bool = True) -> None:
    """Wait until a file, or a directory with all in it, is on disk. Raises OSError, FileNotFoundError among them."""
    if deep and path.is_dir():
        for child in path.iterdir():
            if not child.is_symlink() and (child.is_file() or child.is_dir()):  # a pipe would wait for its other end
                sync(child)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
