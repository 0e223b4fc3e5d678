"""A read-only file system for unmodified programs: a data set as a directory, read through the cache. Needs FUSE."""

from __future__ import annotations

import ctypes
import errno
import itertools
import json
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.cache.door.filesystem import ShoalFileSystem
from shoal.cache.sources import source_of
from shoal.cache.store.views import NAMES
from shoal.core import Invalid, ShoalError, Unavailable

_PR_SET_DUMPABLE = 4
_AHEAD, _TURN_S = 2 << 20, 0.01
"""The kernel sends the reads of one file at the same time, so far ahead. Out of order each would be a request to the
source: one that comes early waits so long for those before it."""

_REMEMBERED_S = 10.0
"""Sizes and folders: a program that walks a tree asks for each name several times."""


@dataclass(slots=True)
class _Open:
    """`next` is where the last read ended."""

    file: Any
    turn: threading.Condition
    next: int = 0


def mount(
    filesystem: ShoalFileSystem, root: str, folder: Path, *, begin: Callable[[], None] = lambda: None, **options: Any
) -> None:
    """Show `root` of the file system in an empty directory, until it is unmounted. `begin` is called once it is
    mounted, and before anything is read. Raises Unavailable without FUSE."""
    try:
        import mfusepy
    except (ImportError, OSError) as error:
        raise Unavailable("FUSE is not here", hint="install fuse3 and mfusepy; `shoal cache doctor` tells") from error
    if not folder.is_dir() or any(folder.iterdir()):
        raise Invalid("an empty directory is meant", where=str(folder))
    try:
        mfusepy.FUSE(
            _operations(mfusepy, Reader(filesystem, root), begin), str(folder), foreground=True, ro=True,
            fsname="shoal", nothreads=False, attr_timeout=_REMEMBERED_S, entry_timeout=_REMEMBERED_S,
            kernel_cache=False, **options,
        )  # fmt: skip
    except RuntimeError as error:
        raise Unavailable(f"the directory cannot be mounted: FUSE says {error}", where=str(folder)) from error


class Reader:
    """What FUSE asks, answered by the cache. Paths begin with a slash. Raises OSError."""

    def __init__(self, filesystem: ShoalFileSystem, root: str) -> None:
        self._fs = filesystem
        self._root = root.rstrip("/")
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}
        self._open: dict[int, _Open] = {}
        self._numbers = itertools.count(1)

    def attributes(self, path: str) -> dict[str, Any]:
        found = self._info(path)
        folder = found["type"] == "directory"
        return {
            "st_mode": (stat.S_IFDIR | 0o555) if folder else (stat.S_IFREG | 0o444),
            "st_nlink": 2 if folder else 1, "st_size": int(found["size"] or 0), "st_uid": os.getuid(),
            "st_gid": os.getgid(), "st_mtime": 0, "st_atime": 0, "st_ctime": 0,
        }  # fmt: skip

    def names(self, path: str) -> list[str]:
        now = time.monotonic()
        rows = self._fs.ls(self._root + path.rstrip("/"), detail=True)
        for row in rows:
            self._known[f"{path.rstrip('/')}/{row['name'].rsplit('/', 1)[1]}"] = now, row
        return [row["name"].rsplit("/", 1)[1] for row in rows]

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        number = next(self._numbers)
        self._open[number] = _Open(self._fs.open(self._root + path, "rb"), threading.Condition())
        return number

    def read(self, number: int, size: int, offset: int) -> bytes:
        opened = self._open[number]
        if hasattr(opened.file, "raw") and type(opened.file.raw).__name__ == "FileIO":
            return os.pread(opened.file.fileno(), size, offset)
        with opened.turn:
            opened.turn.wait_for(lambda: not opened.next < offset <= opened.next + _AHEAD, _TURN_S)
            opened.file.seek(offset)
            data: bytes = opened.file.read(size)
            opened.next = offset + len(data)
            opened.turn.notify_all()
            return data

    def release(self, number: int) -> None:
        opened = self._open.pop(number, None)
        if opened is not None:
            opened.file.close()

    def _info(self, path: str) -> dict[str, Any]:
        if path == "/":
            return {"type": "directory", "size": 0}
        at, found = self._known.get(path, (float("-inf"), {}))
        if time.monotonic() - at > _REMEMBERED_S:
            found = self._fs.info(self._root + path)
            self._known[path] = time.monotonic(), found
        return found


def main() -> None:
    """Show a job its input, as its tenant's user, until its view ends. What to show is told on stdin, as JSON."""
    given = json.load(sys.stdin)
    protocol, split, _ = given["url"].partition("://")
    filesystem = ShoalFileSystem(target_protocol=protocol if split else "file", target_options=given["options"])
    root, uid = os.geteuid() == 0, given["uid"]
    until = Path(given["folder"]).relative_to(given["root"]).with_name(NAMES)

    def begin() -> None:
        """Only root may mount for another user; what is read is read with that user's rights. The cache is its working
        directory: the way there may be closed to the user."""
        os.chdir(given["root"])
        if root:
            source = source_of(given["url"], given["options"], uid)
            with suppress(ShoalError, OSError):  # loads what it needs, which may lie where only root can read it
                next(source.children(), None)
            with suppress(ShoalError, OSError):
                source.head()
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            # The tenant's own processes must not trace this one, which is in no sandbox.
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        threading.Thread(target=_end_without, args=(until,), daemon=True).start()

    mount(filesystem, given["url"], Path(given["folder"]), begin=begin, **({"allow_other": True} if root else {}))


def _end_without(path: Path) -> None:
    """The kernel then ends the mount, also where a sandbox still has it."""
    while path.exists():
        time.sleep(1.0)
    os._exit(0)


def _operations(mfusepy: Any, reader: Reader, begin: Callable[[], None]) -> Any:
    class Operations(mfusepy.Operations):  # type: ignore[misc]
        use_ns = True

        def init(self, path: str) -> None:  # noqa: ARG002
            begin()

        def getattr(self, path: str, fh: int | None = None) -> Any:  # noqa: ARG002
            return _told(mfusepy, reader.attributes, path)

        def readdir(self, path: str, fh: int) -> Any:  # noqa: ARG002
            return [".", "..", *_told(mfusepy, reader.names, path)]

        def open(self, path: str, flags: int) -> Any:
            return _told(mfusepy, reader.open, path, flags)

        def read(self, path: str, size: int, offset: int, fh: int) -> Any:  # noqa: ARG002
            return _told(mfusepy, reader.read, fh, size, offset)

        def release(self, path: str, fh: int) -> Any:  # noqa: ARG002
            return reader.release(fh)

    return Operations()


def _told(mfusepy: Any, action: Any, *given: Any) -> Any:
    """Errors of a source have no number of their own: an input or output error."""
    try:
        return action(*given)
    except FileNotFoundError as error:
        raise mfusepy.FuseOSError(errno.ENOENT) from error
    except PermissionError as error:
        raise mfusepy.FuseOSError(errno.EACCES) from error
    except OSError as error:
        raise mfusepy.FuseOSError(error.errno or errno.EIO) from error


if __name__ == "__main__":
    main()
