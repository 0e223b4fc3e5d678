"""Files of a slow disk or a network file system, read with the rights of the tenant's user."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import TypeVar

from shoal.cache.sources.source import Changed, Source, Uncacheable, Version
from shoal.core import Forbidden, Invalid, NotFound, ShoalError, Unavailable

Found = TypeVar("Found")
_PART = 1 << 20


class FileSource:
    """`uid` is the tenant's user; the process's own where it can be no other."""

    def __init__(self, path: str, uid: int) -> None:
        if not path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise Invalid("an absolute path without .. is meant", where="url")
        self._path = os.path.normpath(path)
        self._uid = uid

    @property
    def url(self) -> str:
        return f"file://{self._path}"

    @property
    def rights(self) -> object:
        return self._uid

    def head(self) -> Version:
        descriptor = self._open()
        try:
            return self._version(os.fstat(descriptor))
        finally:
            os.close(descriptor)

    def read(self, start: int, length: int, version: Version | None) -> Iterator[bytes]:
        descriptor = self._open()
        try:
            while length > 0:
                part = os.pread(descriptor, min(length, _PART), start)
                if version is not None and self._version(os.fstat(descriptor)).tag != version.tag:
                    raise Changed("the file changed while it was read", where=self.url)
                if not part:
                    return
                yield part
                start += len(part)
                length -= len(part)
        except OSError as error:
            raise Unavailable(f"the file cannot be read: {error.strerror}", where=self.url) from error
        finally:
            os.close(descriptor)

    def children(self) -> Iterator[tuple[str, int]]:
        folders = [""]
        while folders:
            folder = folders.pop()
            for name, size in self._as_tenant(lambda folder=folder: self._list(folder)):  # type: ignore[misc]
                below = f"{folder}{name}"
                if size is None:
                    folders.append(below + "/")
                else:
                    yield below, size

    def child(self, name: str) -> Source:
        return FileSource(f"{self._path}/{name}", self._uid)

    def _list(self, folder: str) -> list[tuple[str, int | None]]:
        found: list[tuple[str, int | None]] = []
        with os.scandir(f"{self._path}/{folder}") as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                if entry.is_dir(follow_symlinks=False):
                    found.append((entry.name, None))
                elif entry.is_file():
                    found.append((entry.name, entry.stat().st_size))
        return found

    def _open(self) -> int:
        return self._as_tenant(lambda: os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))

    def _as_tenant(self, action: Callable[[], Found]) -> Found:
        try:
            return action() if self._uid == os.geteuid() else _in_a_thread(self._uid, action)
        except FileNotFoundError as error:
            raise NotFound("there is no such file", where=self.url) from error
        except PermissionError as error:
            raise Forbidden("this user may not read the file", where=self.url) from error
        except OSError as error:
            raise Unavailable(f"the file cannot be read: {error.strerror or error}", where=self.url) from error

    def _version(self, found: os.stat_result) -> Version:
        if stat.S_ISDIR(found.st_mode):
            raise NotFound("it is a folder, not a file", where=self.url)
        if not stat.S_ISREG(found.st_mode):
            raise Uncacheable("only regular files are cached", where=self.url)
        return Version(f"{found.st_dev:x}-{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_ctime_ns:x}", found.st_size)


def _in_a_thread(uid: int, action: Callable[[], Found]) -> Found:
    """With the user's rights; the thread cannot be used for anything else afterwards."""
    from shoal.engine.sandbox.grant import acting_as

    found: list[Found] = []
    failed: list[OSError | ShoalError] = []

    def act() -> None:
        try:
            with acting_as(uid):
                found.append(action())
        except (OSError, ShoalError) as error:
            failed.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]
