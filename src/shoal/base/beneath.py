"""Files beneath a directory whose content others may change at any time: no name of a path is followed as a link.

Each name is opened relative to the directory before it, so that nothing that is swapped in between leads elsewhere, and
no open waits for the other end of a pipe.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

Parts = Sequence[str]
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def parts_of(path: str) -> tuple[str, ...]:
    """The names of a relative path. Raises ValueError for one that could lead out."""
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if path.startswith("/") or ".." in parts or "\x00" in path:
        raise ValueError(f"{path!r} is not beneath the directory")
    return parts


@contextlib.contextmanager
def directory(root: Path, parts: Parts, *, make: bool = False) -> Iterator[int]:
    """A descriptor of the directory at `parts` beneath `root`; with `make`, those that are missing are made, for their
    owner only. Raises OSError, for a link too."""
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=at)
            inner = os.open(name, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = inner
        yield at
    finally:
        os.close(at)


@contextlib.contextmanager
def regular_file(root: Path, parts: Parts) -> Iterator[int]:
    """A descriptor of the regular file at `parts` beneath `root`, to read. Raises OSError, and ValueError for what is
    no regular file."""
    if not parts:
        raise ValueError("it is a directory")
    with directory(root, parts[:-1]) as folder:
        if stat.S_ISLNK(os.lstat(parts[-1], dir_fd=folder).st_mode):
            raise ValueError("it is a link, and links are not followed")
        descriptor = os.open(parts[-1], _FILE, dir_fd=folder)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise ValueError("it is a directory" if stat.S_ISDIR(mode) else "it is no regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def keep_file(source: int, name: str, target: int, new_name: str) -> None:
    """Give the regular file `name` in the directory `source` a second name in the directory `target`, or copy it where
    that cannot be. What stands there is replaced. Raises OSError."""
    descriptor = os.open(name, _FILE, dir_fd=source)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "it is no regular file", name)
        beside = f".{new_name}.kept"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=target)
        try:
            os.link(name, beside, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
            made = os.lstat(beside, dir_fd=target)
            if (made.st_dev, made.st_ino) != (found.st_dev, found.st_ino):  # another was put in its place
                raise OSError(0, "it changed while it was kept", name)
        except PermissionError:
            _copy(descriptor, beside, target)
        except OSError as error:
            if error.errno != errno.EXDEV:  # another file system
                raise
            _copy(descriptor, beside, target)
        os.replace(beside, new_name, src_dir_fd=target, dst_dir_fd=target)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=target)  # two names of one file are left alone by a renaming
    finally:
        os.close(descriptor)


def _copy(descriptor: int, name: str, target: int) -> None:
    made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=target)
    with os.fdopen(descriptor, "rb", closefd=False) as reader, os.fdopen(made, "wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
